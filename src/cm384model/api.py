"""The planner in Python: load, predict, op, plan; the same names as on the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cm384model.evidence.intervals import (
    with_decode_interval,
    with_operator_interval,
    with_plan_intervals,
    with_prefill_interval,
)
from cm384model.planning.request import Layouts, Objective, Serving, plan_request
from cm384model.planning.results import PlanResult
from cm384model.planning.search import plan_case
from cm384model.planning.walk import Progress
from cm384model.prediction.case import DEFAULT_WORKLOAD, Case, load_case
from cm384model.prediction.evaluate import predict_decode, predict_operator, predict_prefill
from cm384model.prediction.results import (
    ColocatedPrediction,
    DecodePrediction,
    OperatorPrediction,
    PrefillPrediction,
)
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.load import load_engine, load_hardware, load_model, load_workload
from cm384model.specs.reuse import ReuseCurve, read_reuse_curve
from cm384model.specs.traces import RequestTrace, read_trace

if TYPE_CHECKING:
    from cm384model.evidence.calibration import Calibration
    from cm384model.evidence.validate import Validation
    from cm384model.planning.compare import PlanComparison
    from cm384model.planning.vary import Varied
    from cm384model.prediction.capacity import Capacity, Phase
    from cm384model.prediction.compare import Comparison

__all__ = [
    "Case",
    "ColocatedPrediction",
    "DecodePrediction",
    "OperatorPrediction",
    "PlanResult",
    "PrefillPrediction",
    "SpecError",
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
]

At = Mapping[str, Any] | Iterable[str] | str
Name = str | Path
Served = Literal["decode", "prefill", "colocated"]


def predict(
    workload: Name | Case,
    *,
    phase: Served = "decode",
    at: At,
    model: Name | None = None,
    hardware: Name | None = None,
    engine: Name | None = None,
    settings: Iterable[str] = (),
) -> DecodePrediction | PrefillPrediction | ColocatedPrediction:
    """Predict one deployment.

    Parameters
    ----------
    workload : name, path or Case
        A shipped workload, a TOML file, or a loaded case.
    phase : {"decode", "prefill", "colocated"}
        Which half of serving, or both on the same dies.
    at : mapping, str or iterable of str
        The deployment: ``{"ep": 320, "batch_per_die": 48}`` or ``"ep=320,batch_per_die=48"``.
    model, hardware, engine : name or path, optional
        Defaults: the workload's own, else CloudMatrix384 and CloudMatrix-Infer.
    settings : iterable of str
        ``PATH=VALUE`` changes to any number.

    Returns
    -------
    DecodePrediction, PrefillPrediction or ColocatedPrediction
        SI values under names that carry their unit.

    Raises
    ------
    SpecError
        For unknown names, faulty files and values out of bounds.
    """
    case = _case(workload, settings, model=model, hardware=hardware, engine=engine)
    if phase == "prefill":
        return with_prefill_interval(case, at, predict_prefill(case, at))
    if phase == "colocated":
        from cm384model.evidence.colocated_intervals import with_colocated_interval
        from cm384model.prediction.evaluate_colocated import predict_colocated

        return with_colocated_interval(case, at, predict_colocated(case, at))
    return with_decode_interval(case, at, predict_decode(case, at))


def op(
    name: str,
    *,
    at: At = (),
    workload: Name | Case = DEFAULT_WORKLOAD,
    model: Name | None = None,
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
    case = _case(workload, settings, model=model, hardware=hardware, engine=engine)
    return with_operator_interval(case, at, predict_operator(case, name, at))


def plan(
    workload: Name | Case,
    *,
    npus: int | None = None,
    slo: Mapping[str, Any] | str | None = None,
    objective: Objective = "throughput",
    rate: float | str | None = None,
    top: int = 5,
    max_concurrency: float | None = None,
    spare_nodes: int = 0,
    reuse: float = 0.0,
    without: Iterable[str] = (),
    kv_precisions: Iterable[str] = (),
    reuse_curve: Name | ReuseCurve | None = None,
    reuse_rate: float | str | None = None,
    cache_retention: float | str | None = None,
    cache_nodes: int | None = None,
    cache_plane: Literal["ub", "vpc"] = "ub",
    serving: Serving = "disaggregated",
    layouts: Layouts = "default",
    scale_out: bool = False,
    arrivals: Name | RequestTrace | None = None,
    frontier: bool = False,
    mixed: bool = False,
    progress: Progress | None = None,
    model: Name | None = None,
    hardware: Name | None = None,
    engine: Name | None = None,
    settings: Iterable[str] = (),
) -> PlanResult:
    """Plan the pools of prefill and decode instances.

    Parameters
    ----------
    workload : name, path or Case
        A shipped workload, a TOML file, or a loaded case.
    npus : int, optional
        NPUs to spend, spare ones included; by default all of the machine, at most 384. [-]
    slo : mapping or str, optional
        ``"tpot=50ms,ttft=2s"`` or the same in seconds, ``e2e`` too; what is not given is the
        workload's.
    objective : {"throughput", "npus", "latency"}
        Most requests per second; fewest NPUs for ``rate``; lowest TPOT at ``rate``.
    rate : float or str, optional
        Requests per second to serve (``"120/s"``), for the last two objectives. [1/s]
    top : int
        Plans to return. [-]
    max_concurrency : float, optional
        Most requests that may decode at once. [-]
    spare_nodes : int
        Nodes kept free for failures. [-]
    reuse : float
        Share of the prompt tokens whose cache comes from the pool. [-]
    without : iterable of str
        Choices taken from the planner: ``microbatch``, ``mtp``, ``attention-tp``, ``expert-tp``,
        ``redundancy``, ``caching``.
    kv_precisions : iterable of str
        Precisions of the KV cache to choose from; by default the model's own.
    reuse_curve : path or ReuseCurve, optional
        Hit rate by the size of the cache, in place of ``reuse``: a CSV table, or a request trace
        with prefix blocks. The pool is then sized.
    reuse_rate : float or str, optional
        Request rate that the sizes of the curve are for (``"3/s"``); they grow with the rate of the
        plan. A trace has its own, a table's sizes are for any rate. [1/s]
    cache_retention : float or str, optional
        Time for which the cache keeps a token (``"10min"``) to reach ``reuse``; sizes the pool. [s]
    cache_nodes : int, optional
        Most nodes that lend DRAM to the pool; by default the nodes of ``npus``. [-]
    cache_plane : {"ub", "vpc"}
        Network over which prefill loads from the pool.
    serving : {"disaggregated", "colocated", "both"}
        Pools of prefill and of decode instances, instances that do both, or the best of each.
    layouts : {"default", "all"}
        How dies may share a model: what pays for its family, or every way there is.
    scale_out : bool
        Whether an instance may reach beyond one scale-up network; an engine may be made for it.
    arrivals : path or RequestTrace, optional
        A request trace: plans also tell the mean TTFT where the rate drifts as it does there.
    frontier : bool
        Whether to return the throughput-TPOT frontier too.
    mixed : bool
        Whether to look for decode instances of different sizes too.
    progress : callable, optional
        Told the share of the decode space that is behind.
    model, hardware, engine, settings
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
    case = _case(workload, settings, model=model, hardware=hardware, engine=engine)
    request = plan_request(
        case,
        npus=npus,
        slo=slo,
        objective=objective,
        rate=rate,
        top=top,
        max_concurrency=max_concurrency,
        spare_nodes=spare_nodes,
        reuse=reuse,
        without=without,
        kv_precisions=kv_precisions,
        reuse_curve=reuse_curve,
        reuse_rate=reuse_rate,
        cache_retention=cache_retention,
        cache_nodes=cache_nodes,
        cache_plane=cache_plane,
        serving=serving,
        layouts=layouts,
        scale_out=scale_out,
        arrivals=arrivals,
    )
    result = plan_case(case, request, frontier=frontier, mixed=mixed, progress=progress)
    result = with_plan_intervals(case, result)
    if not result.colocated:
        return result
    from cm384model.evidence.colocated_intervals import with_colocated_plan_intervals

    return with_colocated_plan_intervals(case, result)


def vary_plan(case: Case, vary: str, **asked: Any) -> list[Varied]:
    """Plan once per value of one input.

    Parameters
    ----------
    case : Case
    vary : str
        ``NAME=START:STOP:STEP``; the name is a limit, one of `plan`'s numbers, or the path of any
        number of the case.
    asked
        The other arguments of `plan`.

    Returns
    -------
    list of Varied
        One plan per value, in their order.

    Raises
    ------
    SpecError
        For an unknown name or a faulty range, and as `plan`.
    """
    from cm384model.planning.vary import Varied, variants

    if isinstance(asked.get("reuse_curve"), str | Path):
        asked["reuse_curve"] = read_reuse_curve(asked["reuse_curve"])
    if isinstance(asked.get("arrivals"), str | Path):
        asked["arrivals"] = read_trace(asked["arrivals"])
    return [
        Varied(one.name, one.value, plan(one.case, **asked | one.asked))
        for one in variants(case, vary, asked.get("slo"))
    ]


def validate(
    *, groups: Sequence[str] = (), rows: str | Path | None = None, leave_one_out: bool = False
) -> Validation:
    """Predict every published row again, and sum up how far off the predictions are.

    Parameters
    ----------
    groups : sequence of str
        Only groups that begin with one of these words; all by default.
    rows : path, optional
        A file of your own rows instead of those that ship.
    leave_one_out : bool
        Whether to predict each decode row by a fit that never saw it; takes some seconds.

    Raises
    ------
    SpecError
        For a faulty file and a group that there is not.
    """
    from cm384model.evidence.published import in_groups, read_rows, shipped_rows
    from cm384model.evidence.validate import validate as validated

    ledger = shipped_rows() if rows is None else read_rows(Path(rows))
    return validated(in_groups(ledger, groups), leave_one_out=leave_one_out)


def fit(
    workload: Name | Case,
    *,
    phase: Phase = "decode",
    at: At = (),
    npus: int | None = None,
    model: Name | None = None,
    hardware: Name | None = None,
    engine: Name | None = None,
    settings: Iterable[str] = (),
) -> Capacity:
    """Say what fits: the fewest NPUs, the memory ledger, the frontier of context against batch.

    Parameters
    ----------
    workload : name, path or Case
        A shipped workload, a TOML file, or a loaded case.
    phase : {"decode", "prefill"}
        Which half of serving.
    at : mapping, str or iterable of str
        As in `predict`; whatever is not given is left open.
    npus : int, optional
        NPUs at hand for one instance; by default all of the machine. [-]
    model, hardware, engine, settings
        As in `predict`.

    Raises
    ------
    SpecError
        For bad input; a model that does not fit is an answer and no error.
    """
    from cm384model.prediction.capacity import fit_case

    return fit_case(_case(workload, settings, model=model, hardware=hardware, engine=engine), phase, at, npus)


def calibrate(
    measurements: str | Path | None = None,
    *,
    workload: Name | Case = DEFAULT_WORKLOAD,
    model: Name | None = None,
    hardware: Name | None = None,
    engine: Name | None = None,
    stages: Sequence[str] = (),
    constants: Sequence[str] = (),
    leave_one_out: bool = True,
    tell: Callable[[float], None] | None = None,
) -> Calibration:
    """Fit the constants of a machine and an engine to measurements.

    Parameters
    ----------
    measurements : path, optional
        CSV or JSON with the columns ``id, subject, at, quantity, value, unit``; without it, the
        shipped calibration is run again on the published rows.
    workload, model, hardware, engine
        What was measured; as in `predict`.
    stages : sequence of str
        Only these stages; all that have rows by default.
    constants : sequence of str
        Only these constants of your machine, such as ``engine.constants.step_overhead``.
    leave_one_out : bool
        Whether to fit again without each row, for the error on rows that a fit never saw.
    tell : callable, optional
        Hears which share of the stages is done.

    Raises
    ------
    SpecError
        For a faulty file, rows that cannot be right, and too few rows for a stage.
    """
    from cm384model.evidence.calibration import own_calibration, shipped_calibration
    from cm384model.evidence.measurements import read_measurements

    if measurements is None:
        return shipped_calibration(stages, left_out=leave_one_out, tell=tell)
    case = _case(workload, model=model, hardware=hardware, engine=engine)
    rows = read_measurements(Path(measurements), case)
    return own_calibration(case, rows, stages, only=constants, left_out=leave_one_out, tell=tell)


def compare(
    a: Name | Case,
    b: Name | Case,
    *,
    phase: Served = "decode",
    at: At,
    at_b: At = (),
) -> Comparison:
    """Put two predictions side by side, term by term.

    Parameters
    ----------
    a, b : name, path or Case
        Two workloads, or two loaded cases with whatever else differs; the same twice is fine.
    phase : {"decode", "prefill", "colocated"}
        Which half of serving, or both on the same dies.
    at : mapping, str or iterable of str
        The deployment of both, as in `predict`.
    at_b : mapping, str or iterable of str
        What B has in its place.

    Raises
    ------
    SpecError
        For bad input, and if nothing differs.
    """
    from cm384model.prediction.compare import check_different, compare_predictions, merged_at, told_of_b

    first, second = _case(a), _case(b)
    own = predict(first, phase=phase, at=at)
    with told_of_b():
        other = predict(second, phase=phase, at=merged_at(phase, at, at_b))
    found = compare_predictions(first, second, own, other)
    check_different(found.differences)
    return found


def compare_plans(
    a: Name | Case,
    b: Name | Case,
    *,
    npus: int | None = None,
    npus_b: int | None = None,
    slo: Mapping[str, Any] | str | None = None,
    slo_b: Mapping[str, Any] | str | None = None,
) -> PlanComparison:
    """Put the best plans of two cases side by side.

    Parameters
    ----------
    a, b : name, path or Case
        As in `compare`.
    npus, slo
        As in `plan`, for both.
    npus_b, slo_b
        What B has in their place.

    Raises
    ------
    SpecError
        For bad input, and if nothing differs.
    """
    from cm384model.planning.compare import compare_plan_results
    from cm384model.planning.request import given_limits
    from cm384model.prediction.compare import check_different, told_of_b

    first, second = _case(a), _case(b)
    own = plan(first, npus=npus, slo=slo, top=1)
    with told_of_b():
        limits = given_limits(slo) | given_limits(slo_b)
        other = plan(second, npus=npus if npus_b is None else npus_b, slo=limits, top=1)
    found = compare_plan_results(first, second, own, other)
    check_different(found.differences)
    return found


def _case(workload: Name | Case, settings: Iterable[str] = (), **files: Name | None) -> Case:
    if isinstance(workload, Case):
        return workload
    return load_case(workload, settings=settings, **files)
