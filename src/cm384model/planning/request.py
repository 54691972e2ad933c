"""What is asked of the planner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from cm384model.prediction.case import Case
from cm384model.specs.deployment import Field, read_at
from cm384model.specs.diagnostics import Problem, SpecError, with_suggestion
from cm384model.specs.reuse import ReuseCurve, read_reuse_curve
from cm384model.specs.traces import RequestTrace, read_trace
from cm384model.specs.units import Dimension, parse_value

Objective = Literal["throughput", "npus", "latency"]
Serving = Literal["disaggregated", "colocated", "both"]
Layouts = Literal["default", "all"]

ABLATIONS = ("microbatch", "mtp", "attention-tp", "expert-tp", "redundancy", "caching")
"""What ``--without`` can take from the planner's choices."""

DEFAULT_NPUS = 384
"""NPUs to plan for where nobody says how many, if the machine has them. [-]"""

PLANES = ("ub", "vpc")
"""Networks over which prefill loads from the context cache."""


@dataclass(frozen=True)
class Slo:
    """Limits that every plan keeps. [s]"""

    tpot: float
    ttft: float
    e2e: float = float("inf")


@dataclass(frozen=True)
class Request:
    """One planning problem.

    Attributes
    ----------
    npus : int
        NPUs to spend, the spare ones included. [-]
    slo : Slo
    objective : {"throughput", "npus", "latency"}
        Most requests per second within ``npus``; fewest NPUs for ``rate``; lowest TPOT at ``rate``.
    rate : float or None
        Requests per second to serve, for the last two objectives. [1/s]
    top : int
        Plans to return. [-]
    max_concurrency : float
        Most requests that may decode at once. [-]
    spare_nodes : int
        Nodes kept free for failures. [-]
    reuse : float
        Share of the prompt tokens that come from the context cache. [-]
    without : frozenset of str
        Choices taken from the planner, of `ABLATIONS`.
    kv_precisions : tuple of str
        Precisions of the KV cache to choose from; empty means the model's own.
    cache_curve : ReuseCurve or None
        Hit rate by the size of the context cache, in place of ``reuse``.
    cache_retention : float or None
        Time for which the cache keeps every token, beside ``reuse``. [s]
    cache_nodes : int
        Most nodes that lend DRAM to the cache, where it is sized. [-]
    cache_plane : {"ub", "vpc"}
        Network over which prefill loads from the cache.
    cache_levels : tuple of float
        Hit rates to choose from where sizes go with the rate; empty means every whole percent. [-]
    serving : {"disaggregated", "colocated", "both"}
        Pools of prefill and of decode instances, instances that do both, or the best of each.
    layouts : {"default", "all"}
        How dies may share a model: what pays for its family, or every way there is.
    scale_out : bool
        Whether an instance may reach beyond one scale-up network.
    arrivals : RequestTrace or None
        Requests whose drifting rate, in proportion to the plan's, the plans are told for too.
    """

    npus: int
    slo: Slo
    objective: Objective = "throughput"
    rate: float | None = None
    top: int = 5
    max_concurrency: float = float("inf")
    spare_nodes: int = 0
    reuse: float = 0.0
    without: frozenset[str] = field(default_factory=frozenset)
    kv_precisions: tuple[str, ...] = ()
    cache_curve: ReuseCurve | None = None
    cache_retention: float | None = None
    cache_nodes: int = 0
    cache_plane: str = "ub"
    cache_levels: tuple[float, ...] = ()
    serving: Serving = "disaggregated"
    layouts: Layouts = "default"
    scale_out: bool = False
    arrivals: RequestTrace | None = None


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
    reuse_curve: str | Path | ReuseCurve | None = None,
    reuse_rate: float | str | None = None,
    cache_retention: float | str | None = None,
    cache_nodes: int | None = None,
    cache_plane: str = "ub",
    serving: Serving = "disaggregated",
    layouts: Layouts = "default",
    scale_out: bool = False,
    arrivals: str | Path | RequestTrace | None = None,
) -> Request:
    """A checked planning problem; operands as in `cm384model.api.plan`.

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

    counts = {"npus": npus, "top": top, "spare_nodes": spare_nodes, "cache_nodes": cache_nodes}
    for name, count in counts.items():
        check(count is None or count == int(count), f"{name} = {count} is out of bounds", "a whole number")
    check(1 <= npus <= total, f"npus = {npus} is out of bounds", case.hardware.said_to_have(int(npus)))
    check(top >= 1, f"top = {top} is out of bounds", "at least 1")
    check(
        spare_nodes == 0 or 0 < spare_nodes < npus // node,
        f"spare_nodes = {spare_nodes} is out of bounds",
        f"{npus} NPUs are {npus // node} nodes; at least one must be left",
    )
    check(0 <= reuse < 1, f"reuse = {reuse:g} is out of bounds", "a share from 0 to below 1")
    check(
        max_concurrency is None or max_concurrency > 0,
        f"max_concurrency = {max_concurrency} is out of bounds",
        "above 0",
    )
    words = [
        ("objective", objective, get_args(Objective)),
        ("serving", serving, get_args(Serving)),
        ("layouts", layouts, get_args(Layouts)),
        ("cache_plane", cache_plane, PLANES),
    ]
    words += [("", w, ABLATIONS) for w in without] + [("", w, ("bf16", "int8")) for w in kv_precisions]
    for name, word, known in words:
        message = f"{name} = '{word}' is not known" if name else f"'{word}' is not known"
        check(word in known, with_suggestion(message, word, known), f"one of {', '.join(known)}")
    check(
        objective not in get_args(Objective) or (objective == "throughput") == (rate is None),
        f"objective {objective} {'takes no' if objective == 'throughput' else 'needs a'} rate",
        "for example --objective npus --rate 120/s",
    )
    check(
        serving == "disaggregated" or case.workload.traffic.output_len.si >= 2,
        "an output of one token has no decode",
        "serving disaggregated",
    )
    check(
        reuse_curve is None or (reuse == 0 and cache_retention is None),
        "reuse_curve goes with neither reuse nor cache_retention",
        "the curve says what is reused",
    )
    check(
        cache_retention is None or reuse > 0 or reuse_curve is not None,
        "cache_retention needs reuse",
        "for example --reuse 0.5 --cache-retention 10min",
    )
    check(reuse_rate is None or reuse_curve is not None, "reuse_rate needs reuse_curve", "a table or a trace")
    check(
        arrivals is None or serving == "disaggregated",
        f"serving {serving} has no queue for arrivals to drift in",
        "serve disaggregated",
    )
    sized = reuse_curve is not None or cache_retention is not None
    check(cache_nodes is None or sized, "cache_nodes needs reuse_curve, or reuse and cache_retention", _SIZED)
    check(
        serving == "disaggregated" or (not sized and cache_plane == "ub"),
        f"serving {serving} takes a context cache without a size, over ub",
        "give its share alone, --reuse 0.5, or serve disaggregated",
    )
    nodes = total // node
    check(
        cache_nodes is None or 0 <= cache_nodes <= nodes,
        f"cache_nodes = {cache_nodes} is out of bounds",
        f"{case.hardware.name} has {nodes} nodes",
    )
    per_second = _above_zero("rate", rate, "request_rate", problems)
    curve_rate = _above_zero("reuse_rate", reuse_rate, "request_rate", problems)
    retention = _above_zero("cache_retention", cache_retention, "time", problems)
    if problems:
        raise SpecError(problems)
    curve = reuse_curve if isinstance(reuse_curve, ReuseCurve | None) else read_reuse_curve(reuse_curve)
    if curve is not None and curve_rate is not None:
        curve = curve.for_requests(curve_rate)
    return Request(
        npus=int(npus),
        slo=read_slo(case, slo),
        objective=objective,
        rate=per_second,
        top=int(top),
        max_concurrency=max_concurrency or float("inf"),
        spare_nodes=int(spare_nodes),
        reuse=reuse,
        without=frozenset(without),
        kv_precisions=tuple(kv_precisions),
        cache_curve=curve,
        cache_retention=retention,
        cache_nodes=0 if not sized else int(npus // node if cache_nodes is None else cache_nodes),
        cache_plane=cache_plane,
        serving=serving,
        layouts=layouts,
        scale_out=scale_out or case.engine.scale_out,
        arrivals=arrivals if isinstance(arrivals, RequestTrace | None) else read_trace(arrivals),
    )


_SIZED = "without them the cache is a share and has no size"


def _above_zero(
    name: str, given: float | str | None, dimension: Dimension, problems: list[Problem]
) -> float | None:
    if given is None:
        return None
    try:
        value = parse_value(given, dimension) if isinstance(given, str) else float(given)
    except SpecError as error:
        problems += [Problem(f"{name}: {p.message}", hint=p.hint) for p in error.problems]
        return None
    if not 0 < value < float("inf"):
        problems.append(Problem(f"{name} = {given} is out of bounds", hint="above 0"))
    return value


def given_limits(slo: Mapping[str, Any] | str | None) -> dict[str, Any]:
    """The limits that are given, by name, in seconds; errors as those of `read_slo`."""
    limit = Field("a time limit", "time", low=1e-9)
    return read_at(slo or {}, {"tpot": limit, "ttft": limit, "e2e": limit}, "an SLO")


def read_slo(case: Case, slo: Mapping[str, Any] | str | None) -> Slo:
    """Limits from ``tpot=50ms,ttft=2s,e2e=20s``; what is not given is the workload's.

    Raises
    ------
    SpecError
        For an unknown limit, a number without a unit and a limit that is not above zero.
    """
    given, default = given_limits(slo), case.workload.slo
    return Slo(
        given.get("tpot", float(default.tpot.si)),
        given.get("ttft", float(default.ttft.si)),
        given.get("e2e", float("inf")),
    )
