"""cm384: an analytical capacity planner for LLM serving on CloudMatrix384.

>>> import cm384model
>>> step = cm384model.predict("deepseek-r1-4k-256", at={"ep": 320, "batch_per_die": 48})
>>> step.feasible
True
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "Calibration": "evidence.calibration",
    "Capacity": "prediction.capacity",
    "Case": "prediction.case",
    "ColocatedPrediction": "prediction.results",
    "Comparison": "prediction.compare",
    "DecodePrediction": "prediction.results",
    "OperatorPrediction": "prediction.results",
    "PlanComparison": "planning.compare",
    "PlanResult": "planning.results",
    "PrefillPrediction": "prediction.results",
    "SpecError": "specs.diagnostics",
    "Validation": "evidence.validate",
    **dict.fromkeys(
        (
            "calibrate",
            "compare",
            "compare_plans",
            "fit",
            "load_case",
            "load_engine",
            "load_hardware",
            "load_model",
            "load_workload",
            "op",
            "plan",
            "predict",
            "validate",
        ),
        "api",
    ),
}
"""The public names and the modules that have them."""

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    """Load the public names on first use: ``import cm384model`` alone brings no numpy."""
    if name in _PUBLIC:
        return getattr(import_module(f"cm384model.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module 'cm384model' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
