"""Why a plan is what it is, and why there is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cm384model.planning.pairs import best_pools, staircase
from cm384model.planning.problem import Problem
from cm384model.planning.request import Request, Slo
from cm384model.planning.results import Infeasible, Plan
from cm384model.planning.space import decode_space, prefill_space
from cm384model.planning.walk import Explored
from cm384model.prediction.case import Case
from cm384model.prediction.evaluate import decode_outputs, filled_decode, filled_prefill, prefill_outputs
from cm384model.prediction.operators import scales_out
from cm384model.prediction.results import TermResult


def bound_by(case: Case, plan: Plan) -> str:
    """The pool that limits the rate and the largest term in it, with that term's own bound."""
    decode_limits = plan.decode.capacity_requests_per_s <= plan.prefill.capacity_requests_per_s * (1 + 1e-9)
    if decode_limits:
        pool, case = "decode", case.with_kv_precision(plan.decode.kv_precision)
        parts = decode_outputs(case, filled_decode(case, plan.decode.at))[0].terms
    else:
        pool = "prefill"
        parts = prefill_outputs(case, filled_prefill(case, plan.prefill.at))[0].terms
    terms = [TermResult.of(term) for term in parts]
    largest = max(terms, key=lambda term: term.time_s)
    share = largest.time_s / sum(term.time_s for term in terms)
    return f"{pool}: {largest.name} ({largest.bound}, {share:.0%})"


def runner_up(plans: tuple[Plan, ...]) -> str:
    """What the second plan gives up and what it gains against the first."""
    if len(plans) < 2:
        return ""
    first, second = plans[:2]
    columns = {
        "requests/s": (second.requests_per_s, first.requests_per_s),
        "TPOT": (second.tpot_s, first.tpot_s),
        "TTFT": (second.ttft_s, first.ttft_s),
        "NPUs": (second.npus, first.npus),
    }
    changes = [f"{name} {other / own - 1:+.1%}" for name, (other, own) in columns.items() if other != own]
    return f"decode EP{second.decode.ep} for EP{first.decode.ep}: " + (", ".join(changes) or "the same")


def why_infeasible(case: Case, problem: Problem, decode: Explored, prefill: Explored) -> Infeasible:
    """The constraint that no plan meets, the nearest miss and the smallest change that mends it.

    First whether any two instances fit, then the rate, then the limits, lifted one at a time and
    then all. What the best combination without a limit takes is the smallest limit that has a
    plan, so every hint that names one leads to a plan.
    """
    request = problem.request
    for phase, explored in (("decode", decode), ("prefill", prefill)):
        if explored.nearest["free"] < 0:
            return Infeasible(
                f"hbm: no {phase} deployment fits the memory of a die",
                f"the nearest is {-explored.nearest['free'] / 1e9:.2f} GB over",
                _more_npus(case, request) or "try a shorter context or --set model.precision.kv=int8",
            )
    decode_npus, prefill_npus = _smallest(case, request, problem.npus)
    if decode_npus + prefill_npus > problem.npus:
        return Infeasible(
            f"npus: {problem.npus} do not hold one prefill and one decode instance",
            f"the smallest that fit take {prefill_npus} and {decode_npus} NPUs",
            _more_npus(case, request) or f"try --npus {decode_npus + prefill_npus + _spare(case, request)}",
        )
    if request.rate is not None:
        missed = _rate_missed(case, problem)
        if missed is not None:
            return missed
    for name in ("tpot", "ttft", "e2e"):
        slo = replace(request.slo, **{name: np.inf})
        found = _quickest(_without_limits(case, problem, slo), _least_rate(request))
        if found is not None:
            limit, nearest = vars(request.slo)[name], float(found[name].min())
            return Infeasible(
                f"{name}: no plan that fits keeps {limit * 1e3:g} ms",
                f"the nearest takes {nearest * 1e3:.4g} ms",
                f"try --slo {name}={_milliseconds(nearest)}",
            )
    return _all_missed(case, problem)


def less_than_a_node(case: Case, request: Request, npus: int) -> Infeasible:
    """Instances take whole nodes, and there is not even one."""
    node = int(case.hardware.npus_per_node)
    return Infeasible(
        f"npus: {npus} do not fill one node",
        f"an instance takes whole nodes of {node} NPUs",
        _more_npus(case, request) or f"try --npus {2 * node + _spare(case, request)}",
    )


VANISHING = 1e-9
"""A rate at which nothing queues. [1/s]"""

NO_LIMITS = Slo(1e6, 1e6)
"""Limits that nothing comes near; finite, so that differences of them are numbers."""


def _least_rate(request: Request) -> float:
    return VANISHING if request.rate is None else request.rate


def _spare(case: Case, request: Request) -> int:
    return request.spare_nodes * int(case.hardware.npus_per_node)


def _without_limits(case: Case, problem: Problem, slo: Slo) -> Problem:
    """The problem under wider limits; without a rate the smallest batches are the best."""
    request = replace(problem.request, slo=slo)
    few = {"batch_per_die": np.arange(1.0, 17.0)} if request.rate is None else None
    decode = decode_space(case, request, problem.npus, few).options
    prefill = prefill_space(case, request, problem.npus).options
    return replace(problem, request=request, decode=decode, prefill=prefill)


def _quickest(problem: Problem, rate: float) -> dict[str, np.ndarray] | None:
    """TPOT, TTFT and end-to-end time of the combinations that keep every limit, each as quick as it can."""
    d, slo = problem.decode, problem.request.slo
    if not len(d) or not len(problem.prefill):
        return None
    rows = np.flatnonzero(problem.most_rate(np.arange(len(d))) >= rate)
    instances = np.maximum(np.ceil(rate / d.rate[rows] * (1 - 1e-12)), 1.0)
    stairs = staircase(problem, rate, problem.npus)
    delay = np.concatenate([[np.inf], stairs.delay])
    left = problem.npus - instances * d.npus[rows]
    ttft = delay[np.searchsorted(stairs.npus, left, side="right")] + d.transfer[rows] + d.delay[rows]
    e2e = ttft + (problem.output_len - 1) * d.tpot[rows]
    kept = np.isfinite(ttft) & (ttft <= slo.ttft) & (e2e <= slo.e2e)
    if not kept.any():
        return None
    return {"tpot": d.tpot[rows][kept], "ttft": ttft[kept], "e2e": e2e[kept]}


def _smallest(case: Case, request: Request, npus: int) -> tuple[int, int]:
    """NPUs of the smallest decode and the smallest prefill instance that fit their memory."""
    free = replace(request, slo=NO_LIMITS, max_concurrency=np.inf)
    one = {"batch_per_die": np.array([1.0])}
    decode, prefill = decode_space(case, free, npus, one).options, prefill_space(case, free, npus).options
    return int(decode.npus.min()), int(prefill.npus.min())


def _more_npus(case: Case, request: Request) -> str:
    """The hint that names the fewest NPUs with a plan under all limits; empty where none is enough.

    Instances that span scale-up networks are tried last.
    """
    spare, total = _spare(case, request), int(case.hardware.total_npus)
    request = replace(request, objective="npus", rate=_least_rate(request), top=1)
    decode, prefill = (space(case, request, total - spare).options for space in (decode_space, prefill_space))
    output_len = float(case.workload.traffic.output_len.si)
    found = best_pools(Problem(request, total - spare, output_len, decode, prefill))
    if not len(found):
        beyond = scales_out(case.hardware) and not request.scale_out
        hint = _more_npus(case, replace(request, scale_out=True)) if beyond else ""
        return hint and f"{hint} --scale-out"
    return f"try --npus {int(found.npus[0]) + spare}"


def _rate_missed(case: Case, problem: Problem) -> Infeasible | None:
    """Whether the rate is what no plan within the NPUs can serve under the limits."""
    hardware, rate = case.hardware, problem.request.rate or 0.0
    most = best_pools(replace(problem, request=replace(problem.request, objective="throughput", top=1)))
    if not len(most):
        return None
    more = _more_npus(case, problem.request).removeprefix("try ")
    if not more and problem.npus + _spare(case, problem.request) < hardware.total_npus:
        more = "more NPUs"
    elif not more and hardware.cluster is not None:
        supernodes = int(np.ceil(rate / most.rate[0] * hardware.supernodes))
        more = f"a larger machine, such as one of cluster.supernodes={supernodes}"
    return Infeasible(
        f"rate: no plan within {problem.npus} NPUs serves {rate:g} requests/s",
        f"the most is {most.rate[0]:.4g} requests/s",
        f"try --rate {_rounded_down(float(most.rate[0]))}/s" + (f" or {more}" if more else ""),
    )


def _all_missed(case: Case, problem: Problem) -> Infeasible:
    """No limit alone is in the way: the limits of the plan with the lowest TPOT."""
    free, rate = _without_limits(case, problem, NO_LIMITS), ""
    found = _quickest(free, _least_rate(problem.request))
    if found is None:  # nor is the rate served without limits: ask for one that is
        request = replace(free.request, objective="throughput", rate=None, top=1)
        most = best_pools(replace(free, request=request))
        rate = _rounded_down(float(most.rate[0])) if len(most) else "0"
        found = _quickest(free, float(rate))
    if found is None:
        return Infeasible("rate: no plan serves it", "not even without limits", "try fewer --spare-nodes")
    row = int(np.lexsort((found["ttft"], found["tpot"]))[0])
    names = [name for name, limit in vars(problem.request.slo).items() if np.isfinite(limit)]
    limits = ",".join(f"{name}={_milliseconds(float(found[name][row]))}" for name in names)
    nearest = (
        f"the lowest TPOT is {found['tpot'][row] * 1e3:.4g} ms, with a TTFT of {found['ttft'][row]:.4g} s"
    )
    return Infeasible(
        f"{' and '.join(names)}: no plan within {problem.npus} NPUs keeps one limit beside the other",
        nearest,
        f"try --slo {limits}" + (f" --rate {rate}/s" if rate else ""),
    )


def _rounded_down(rate: float) -> str:
    """A rate to three digits, no higher than the one given."""
    grain = 10.0 ** (np.floor(np.log10(rate)) - 2)
    return f"{np.floor(rate / grain * (1 - 1e-12)) * grain:.6g}"


def _milliseconds(seconds: float) -> str:
    """A limit in ms that ``seconds`` keeps, rounded up to four digits."""
    milliseconds = seconds * 1e3
    grain = 10.0 ** (np.floor(np.log10(milliseconds)) - 3)
    return f"{np.ceil(milliseconds / grain * (1 + 1e-12)) * grain:.6g}ms"
