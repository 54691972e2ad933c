"""The planner in Python: load, predict, op, plan; the same names as on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from cm384model.evidence.intervals import (
    with_decode_interval,
    with_operator_interval,
    with_plan_intervals,
    with_prefill_interval,
)
from cm384model.planning.pairs import Slo
from cm384model.planning.results import PlanResult
from cm384model.planning.search import plan_case
from cm384model.prediction.case import DEFAULT_WORKLOAD, Case, load_case
from cm384model.prediction.evaluate import predict_decode, predict_operator, predict_prefill
from cm384model.prediction.results import DecodePrediction, OperatorPrediction, PrefillPrediction
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.load import load_engine, load_hardware, load_model, load_workload

__all__ = [
    "Case",
    "DecodePrediction",
    "OperatorPrediction",
    "PlanResult",
    "PrefillPrediction",
    "SpecError",
    "load_case",
    "load_engine",
    "load_hardware",
    "load_model",
    "load_workload",
    "op",
    "plan",
    "predict",
]

At = Mapping[str, Any] | Iterable[str] | str
Name = str | Path


def predict(
    workload: Name | Case,
    *,
    phase: Literal["decode", "prefill"] = "decode",
    at: At,
    hardware: Name | None = None,
    engine: Name | None = None,
    settings: Iterable[str] = (),
) -> DecodePrediction | PrefillPrediction:
    """Predict one deployment.

    Parameters
    ----------
    workload : name, path or Case
        A shipped workload, a TOML file, or a loaded case.
    phase : {"decode", "prefill"}
        Which half of serving.
    at : mapping, str or iterable of str
        The deployment: ``{"ep": 320, "batch_per_die": 48}`` or ``"ep=320,batch_per_die=48"``.
    hardware, engine : name or path, optional
        Defaults: the workload's own, else CloudMatrix384 and CloudMatrix-Infer.
    settings : iterable of str
        ``PATH=VALUE`` changes to any number.

    Returns
    -------
    DecodePrediction or PrefillPrediction
        SI values under names that carry their unit.

    Raises
    ------
    SpecError
        For unknown names, faulty files and values out of bounds.
    """
    case = _case(workload, hardware, engine, settings)
    if phase == "prefill":
        return with_prefill_interval(case, at, predict_prefill(case, at))
    return with_decode_interval(case, at, predict_decode(case, at))


def op(
    name: str,
    *,
    at: At = (),
    workload: Name | Case = DEFAULT_WORKLOAD,
    hardware: Name | None = None,
    engine: Name | None = None,
    settings: Iterable[str] = (),
) -> OperatorPrediction:
    """Predict one operator on one die; sizes not given are those of the workload's model.

    Raises
    ------
    SpecError
        For an unknown operator, unknown names and values out of bounds.
    """
    case = _case(workload, hardware, engine, settings)
    return with_operator_interval(case, at, predict_operator(case, name, at))


def plan(
    workload: Name | Case,
    *,
    npus: int = 384,
    slo: Mapping[str, Any] | str | None = None,
    top: int = 5,
    hardware: Name | None = None,
    engine: Name | None = None,
    settings: Iterable[str] = (),
) -> PlanResult:
    """Plan the pools that serve the most requests per second within ``npus``.

    Parameters
    ----------
    workload : name, path or Case
        A shipped workload, a TOML file, or a loaded case.
    npus : int
        NPUs to spend. [-]
    slo : mapping or str, optional
        ``"tpot=50ms,ttft=2s"`` or the same in seconds; what is not given is the workload's.
    top : int
        Plans to return. [-]
    hardware, engine, settings
        As in `predict`.

    Returns
    -------
    PlanResult
        Ranked plans, or why there is none.

    Raises
    ------
    SpecError
        For bad input; an infeasible plan is an answer and no error.
    """
    case = _case(workload, hardware, engine, settings)
    total = int(case.hardware.total_npus)
    if not 1 <= npus <= total:
        raise SpecError.of(f"npus = {npus} is out of bounds", f"{case.hardware.name} has {total} NPUs")
    if top < 1:
        raise SpecError.of(f"top = {top} is out of bounds", "at least 1")
    return with_plan_intervals(case, plan_case(case, npus, read_slo(case, slo), top))


def read_slo(case: Case, slo: Mapping[str, Any] | str | None) -> Slo:
    """Limits from ``tpot=50ms,ttft=2s``; what is not given is the workload's.

    Raises
    ------
    SpecError
        For an unknown limit, a number without a unit and a limit that is not above zero.
    """
    from cm384model.specs.deployment import Field, read_at

    limit = Field("a time limit", "time", low=1e-9)
    given = read_at(slo or {}, {"tpot": limit, "ttft": limit}, "an SLO")
    default = case.workload.slo
    return Slo(given.get("tpot", float(default.tpot.si)), given.get("ttft", float(default.ttft.si)))


def _case(workload: Name | Case, hardware: Name | None, engine: Name | None, settings: Iterable[str]) -> Case:
    if isinstance(workload, Case):
        return workload
    return load_case(workload, hardware=hardware, engine=engine, settings=settings)
