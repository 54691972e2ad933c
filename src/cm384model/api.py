"""The planner in Python: load, predict, op, plan; the same names as on the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_args

from cm384model.evidence.calibration import Calibration, own_calibration, shipped_calibration
from cm384model.evidence.intervals import (
    with_colocated_interval,
    with_colocated_plan_intervals,
    with_decode_interval,
    with_operator_interval,
    with_plan_intervals,
    with_prefill_interval,
)
from cm384model.evidence.measurements import read_measurements
from cm384model.evidence.published import in_groups, read_rows, shipped_rows
from cm384model.evidence.validate import Validation
from cm384model.evidence.validate import validate as validated
from cm384model.planning.compare import PlanComparison, compare_plan_results
from cm384model.planning.request import ABLATIONS, Layouts, Objective, Request, Serving, Slo
from cm384model.planning.results import PlanResult
from cm384model.planning.search import plan_case
from cm384model.planning.space import Progress, reuse_of
from cm384model.planning.vary import Varied, steps
from cm384model.prediction.capacity import Capacity, Phase, fit_case
from cm384model.prediction.case import DEFAULT_WORKLOAD, Case, load_case
from cm384model.prediction.compare import (
    Comparison,
    Prediction,
    check_different,
    compare_predictions,
    merged_at,
)
from cm384model.prediction.evaluate import predict_decode, predict_operator, predict_prefill
from cm384model.prediction.evaluate_colocated import predict_colocated
from cm384model.prediction.results import (
    ColocatedPrediction,
    DecodePrediction,
    OperatorPrediction,
    PrefillPrediction,
)
from cm384model.specs.deployment import Field, read_at
from cm384model.specs.diagnostics import Problem, SpecError, with_suggestion
from cm384model.specs.load import load_engine, load_hardware, load_model, load_workload
from cm384model.specs.overrides import apply_overrides, find_quantity
from cm384model.specs.units import Dimension, parse_value

__all__ = [
    "Capacity",
    "Case",
    "ColocatedPrediction",
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


def predict(
    workload: Name | Case,
    *,
    phase: Literal["decode", "prefill", "colocated"] = "decode",
    at: At,
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
    hardware, engine : name or path, optional
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
    case = _case(workload, hardware, engine, settings)
    if phase == "prefill":
        return with_prefill_interval(case, at, predict_prefill(case, at))
    if phase == "colocated":
        return with_colocated_interval(case, at, predict_colocated(case, at))
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
    serving: Serving = "disaggregated",
    layouts: Layouts = "default",
    scale_out: bool = False,
    frontier: bool = False,
    mixed: bool = False,
    progress: Progress | None = None,
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
    serving : {"disaggregated", "colocated", "both"}
        Pools of prefill and of decode instances, instances that do both, or the best of each.
    layouts : {"default", "all"}
        How dies may share a model: what pays for its family, or every way there is.
    scale_out : bool
        Whether an instance may reach beyond one scale-up network; an engine may be made for it.
    frontier : bool
        Whether to return the throughput-TPOT frontier too.
    mixed : bool
        Whether to look for decode instances of different sizes too.
    progress : callable, optional
        Told the share of the decode space that is behind.
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
        serving=serving,
        layouts=layouts,
        scale_out=scale_out,
    )
    result = plan_case(case, request, frontier=frontier, mixed=mixed, progress=progress)
    reuse = reuse_of(request)
    return with_colocated_plan_intervals(case, with_plan_intervals(case, result, reuse), reuse)


DEFAULT_NPUS = 384
"""NPUs to plan for where nobody says how many, if the machine has them. [-]"""

LIMITS = ("tpot", "ttft", "e2e")
NUMBERS: dict[str, Dimension] = {
    "npus": "number",
    "rate": "request_rate",
    "spare_nodes": "number",
    "max_concurrency": "number",
    "reuse": "number",
}


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
    name, equals, text = vary.partition("=")
    if not equals:
        raise SpecError.of(f"'{vary}' is not NAME=START:STOP:STEP", "for example tpot=10ms:50ms:5ms")
    if name in LIMITS:
        limits = {k: v for k, v in vars(read_slo(case, asked.pop("slo", None))).items() if v != float("inf")}
        values = steps(text, "time")
        given = [{"slo": limits | {name: parse_value(value, "time")}} for value in values]
        return [Varied(name, v, plan(case, **asked | g)) for v, g in zip(values, given, strict=True)]
    if name in NUMBERS:
        values = steps(text, NUMBERS[name])
        numbers = [parse_value(value, NUMBERS[name]) for value in values]
        whole = name in ("npus", "spare_nodes")
        return [
            Varied(name, v, plan(case, **asked | {name: int(number) if whole else number}))
            for v, number in zip(values, numbers, strict=True)
        ]
    specs = {kind: getattr(case, kind) for kind in ("hardware", "engine", "model", "workload")}
    quantity = find_quantity(specs, name)
    return [
        Varied(name, value, plan(Case(**apply_overrides(specs, [f"{name}={value}"])), **asked))
        for value in steps(text, quantity.dimension)
    ]


def plan_request(
    case: Case,
    *,
    npus: int | None,
    slo: Mapping[str, Any] | str | None,
    objective: Objective,
    rate: float | str | None,
    top: int,
    max_concurrency: float | None,
    spare_nodes: int,
    reuse: float,
    without: Iterable[str],
    kv_precisions: Iterable[str],
    serving: Serving = "disaggregated",
    layouts: Layouts = "default",
    scale_out: bool = False,
) -> Request:
    """A checked planning problem; operands as in `plan`.

    Raises
    ------
    SpecError
        With every value that is out of bounds or unknown, at once.
    """
    total, node = int(case.hardware.total_npus), int(case.hardware.npus_per_node)
    npus = min(DEFAULT_NPUS, total) if npus is None else npus
    problems: list[Problem] = []

    def check(fine: bool, message: str, hint: str) -> None:
        if not fine:
            problems.append(Problem(message, hint=hint))

    check(1 <= npus <= total, f"npus = {npus} is out of bounds", f"{case.hardware.name} has {total} NPUs")
    check(top >= 1, f"top = {top} is out of bounds", "at least 1")
    check(
        0 <= spare_nodes * node < max(npus, 1),
        f"spare_nodes = {spare_nodes} is out of bounds",
        f"{npus} NPUs are {npus // node} nodes; at least one must be left",
    )
    check(0 <= reuse < 1, f"reuse = {reuse:g} is out of bounds", "a share from 0 to below 1")
    check(
        max_concurrency is None or max_concurrency > 0,
        f"max_concurrency = {max_concurrency} is out of bounds",
        "above 0",
    )
    check(
        objective in get_args(Objective),
        with_suggestion(f"objective = '{objective}' is not known", objective, get_args(Objective)),
        f"one of {', '.join(get_args(Objective))}",
    )
    words = {"serving": (serving, get_args(Serving)), "layouts": (layouts, get_args(Layouts))}
    for name, (given, choices) in words.items():
        check(
            given in choices,
            with_suggestion(f"{name} = '{given}' is not known", given, choices),
            f"one of {', '.join(choices)}",
        )
    check(
        serving == "disaggregated" or case.workload.traffic.output_len.si >= 2,
        "an output of one token has no decode",
        "serving disaggregated",
    )
    for word, known in [(w, ABLATIONS) for w in without] + [(w, ("bf16", "int8")) for w in kv_precisions]:
        check(
            word in known,
            with_suggestion(f"'{word}' is not known", word, known),
            f"one of {', '.join(known)}",
        )
    per_second = _rate(rate, problems)
    check(
        objective not in get_args(Objective) or (objective == "throughput") == (rate is None),
        f"objective {objective} {'takes no' if objective == 'throughput' else 'needs a'} rate",
        "for example --objective npus --rate 120/s",
    )
    if problems:
        raise SpecError(problems)
    return Request(
        npus=npus,
        slo=read_slo(case, slo),
        objective=objective,
        rate=per_second,
        top=top,
        max_concurrency=max_concurrency or float("inf"),
        spare_nodes=spare_nodes,
        reuse=reuse,
        without=frozenset(without),
        kv_precisions=tuple(kv_precisions),
        serving=serving,
        layouts=layouts,
        scale_out=scale_out or case.engine.scale_out,
    )


def _rate(rate: float | str | None, problems: list[Problem]) -> float | None:
    if rate is None:
        return None
    try:
        value = parse_value(rate, "request_rate") if isinstance(rate, str) else float(rate)
    except SpecError as error:
        problems += [Problem(f"rate: {p.message}", hint=p.hint) for p in error.problems]
        return None
    if not 0 < value < float("inf"):
        problems.append(Problem(f"rate = {rate} is out of bounds", hint="above 0"))
    return value


def read_slo(case: Case, slo: Mapping[str, Any] | str | None) -> Slo:
    """Limits from ``tpot=50ms,ttft=2s,e2e=20s``; what is not given is the workload's.

    Raises
    ------
    SpecError
        For an unknown limit, a number without a unit and a limit that is not above zero.
    """
    limit = Field("a time limit", "time", low=1e-9)
    given = read_at(slo or {}, {"tpot": limit, "ttft": limit, "e2e": limit}, "an SLO")
    default = case.workload.slo
    return Slo(
        given.get("tpot", float(default.tpot.si)),
        given.get("ttft", float(default.ttft.si)),
        given.get("e2e", float("inf")),
    )


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
    ledger = shipped_rows() if rows is None else read_rows(Path(rows))
    return validated(in_groups(ledger, groups), leave_one_out=leave_one_out)


def fit(
    workload: Name | Case,
    *,
    phase: Phase = "decode",
    at: At = (),
    npus: int | None = None,
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
    hardware, engine, settings
        As in `predict`.

    Raises
    ------
    SpecError
        For bad input; a model that does not fit is an answer and no error.
    """
    return fit_case(_case(workload, hardware, engine, settings), phase, at, npus)


def calibrate(
    measurements: str | Path | None = None,
    *,
    workload: Name | Case = DEFAULT_WORKLOAD,
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
    workload, hardware, engine
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
    if measurements is None:
        return shipped_calibration(stages, left_out=leave_one_out, tell=tell)
    case = _case(workload, hardware, engine, ())
    rows = read_measurements(Path(measurements), case)
    return own_calibration(case, rows, stages, only=constants, left_out=leave_one_out, tell=tell)


def compare(
    a: Name | Case,
    b: Name | Case,
    *,
    phase: Phase = "decode",
    at: At,
    at_b: At = (),
) -> Comparison:
    """Put two predictions side by side, term by term.

    Parameters
    ----------
    a, b : name, path or Case
        Two workloads, or two loaded cases with whatever else differs; the same twice is fine.
    phase : {"decode", "prefill"}
        Which half of serving.
    at : mapping, str or iterable of str
        The deployment of both, as in `predict`.
    at_b : mapping, str or iterable of str
        What B has in its place.

    Raises
    ------
    SpecError
        For bad input, and if nothing differs.
    """
    first, second = _case(a, None, None, ()), _case(b, None, None, ())
    found = compare_predictions(
        first,
        second,
        cast(Prediction, predict(first, phase=phase, at=at)),
        cast(Prediction, predict(second, phase=phase, at=merged_at(phase, at, at_b))),
    )
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
    first, second = _case(a, None, None, ()), _case(b, None, None, ())
    found = compare_plan_results(
        first,
        second,
        plan(first, npus=npus, slo=slo, top=1),
        plan(second, npus=npus if npus_b is None else npus_b, slo=slo if slo_b is None else slo_b, top=1),
    )
    check_different(found.differences)
    return found


def _case(workload: Name | Case, hardware: Name | None, engine: Name | None, settings: Iterable[str]) -> Case:
    if isinstance(workload, Case):
        return workload
    return load_case(workload, hardware=hardware, engine=engine, settings=settings)
