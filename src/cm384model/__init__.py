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

_PUBLIC = (
    "Capacity",
    "Calibration",
    "Case",
    "Comparison",
    "DecodePrediction",
    "OperatorPrediction",
    "PlanComparison",
    "PlanResult",
    "PrefillPrediction",
    "SpecError",
    "Validation",
    "compare",
    "compare_plans",
    "fit",
    "calibrate",
    "load_case",
    "load_engine",
    "load_hardware",
    "load_model",
    "load_workload",
    "op",
    "plan",
    "predict",
    "validate",
)
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    """Load the public names on first use: ``import cm384model`` alone brings no numpy."""
    if name in _PUBLIC:
        return getattr(import_module("cm384model.api"), name)
    raise AttributeError(f"module 'cm384model' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
