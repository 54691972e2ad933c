"""Why a plan is what it is, and why there is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cm384model.planning.pairs import Pools, Problem, best_pools, staircase
from cm384model.planning.request import Slo
from cm384model.planning.results import Infeasible, Plan
from cm384model.planning.space import Explored, decode_space, prefill_space
from cm384model.prediction.case import Case
from cm384model.prediction.evaluate import predict_decode, predict_prefill


def bound_by(case: Case, plan: Plan) -> str:
    """The pool that limits the rate and the largest term in it, with that term's own bound."""
    decode_limits = plan.decode.capacity_requests_per_s <= plan.prefill.capacity_requests_per_s * (1 + 1e-9)
    if decode_limits:
        d = plan.decode
        deployment: dict[str, float] = {
            "ep": d.ep,
            "batch_per_die": d.batch_per_die,
            "microbatches": d.microbatches,
            "draft_tokens": d.draft_tokens,
            "attention_tp": d.attention_tp,
            "redundant_experts": d.redundant_experts,
        }
        if d.microbatches > 1:
            deployment["attention_aic_share"] = d.attention_aic_share
        terms, pool = predict_decode(case, deployment).terms, "decode"
    else:
        p = plan.prefill
        deployment = {
            "ep": p.ep,
            "tokens_per_npu": p.tokens_per_npu,
            "microbatches": p.microbatches,
            "redundant_experts": p.redundant_experts,
        }
        terms, pool = predict_prefill(case, deployment).terms, "prefill"
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

    The limits are lifted one at a time, then all: what the best combination without them takes
    is the smallest limit that has a plan.
    """
    request, slo, npus = problem.request, problem.request.slo, problem.npus
    for phase, explored in (("decode", decode), ("prefill", prefill)):
        if explored.nearest["free"] < 0:
            return Infeasible(
                f"hbm: no {phase} deployment fits the memory of a die",
                f"the nearest is {-explored.nearest['free'] / 1e9:.2f} GB over",
                "try more NPUs, a shorter context or --set model.precision.kv=int8",
            )
    lifted = Slo(np.inf, np.inf)
    free = replace(request, slo=lifted, max_concurrency=np.inf)
    smallest = {"batch_per_die": np.arange(1.0, 17.0)}
    any_decode = decode_space(case, free, npus, smallest).options
    any_prefill = prefill_space(case, free, npus).options
    decode_npus, prefill_npus = int(any_decode.npus.min()), int(any_prefill.npus.min())
    if decode_npus + prefill_npus > npus:
        return Infeasible(
            f"npus: {npus} do not hold one prefill and one decode instance",
            f"the smallest that fit take {prefill_npus} and {decode_npus} NPUs",
            f"try --npus {decode_npus + prefill_npus}",
        )
    if request.rate is not None:
        missed = _rate_missed(problem)
        if missed is not None:
            return missed
    slower = replace(problem, request=replace(request, slo=replace(slo, tpot=np.inf)))
    quick_decode = decode_space(case, slower.request, npus, smallest).options
    if len(found := _light(replace(slower, decode=quick_decode))):
        return _missed("tpot", slo.tpot, float(found.tpot.min()), "decode instance")
    if len(problem.decode):
        lowest = float(_lowest_ttft(replace(problem, prefill=any_prefill)).min())
        return _missed("ttft", slo.ttft, lowest, "pair of instances")
    ttft = _lowest_ttft(replace(problem, request=free, decode=any_decode, prefill=any_prefill))
    quickest = any_decode.tpot == any_decode.tpot[np.isfinite(ttft)].min()
    tpot, after = float(any_decode.tpot[quickest].min()), float(ttft[quickest].min())
    return Infeasible(
        f"tpot and ttft: no plan within {npus} NPUs keeps either limit beside the other",
        f"the lowest TPOT is {tpot * 1e3:.4g} ms, with a TTFT of {after:.4g} s",
        f"try --slo tpot={_milliseconds(tpot)},ttft={_milliseconds(after)}",
    )


def _rate_missed(problem: Problem) -> Infeasible | None:
    """Whether the rate is what no plan within the NPUs can serve under the limits."""
    most = best_pools(replace(problem, request=replace(problem.request, objective="throughput", top=1)))
    if not len(most):
        return None
    return Infeasible(
        f"rate: no plan within {problem.npus} NPUs serves {problem.request.rate:g} requests/s",
        f"the most is {most.rate[0]:.4g} requests/s",
        f"try --rate {np.floor(most.rate[0] * 10) / 10:g}/s or more NPUs",
    )


VANISHING = 1e-9
"""A rate at which nothing queues. [1/s]"""


def _light(problem: Problem) -> Pools:
    """Combinations that keep the limits when nothing queues."""
    request = replace(problem.request, objective="latency", rate=VANISHING, top=len(problem.decode) + 1)
    return best_pools(replace(problem, request=request))


def _lowest_ttft(problem: Problem) -> np.ndarray:
    """For every decode option the lowest TTFT beside one instance of it, when nothing queues. [s]"""
    stairs = staircase(problem, VANISHING, problem.npus)
    quickest = np.concatenate([[np.inf], stairs.delay])
    left = problem.npus - problem.decode.npus
    lowest: np.ndarray = (
        quickest[np.searchsorted(stairs.npus, left, side="right")] + problem.transfer + problem.decode.delay
    )
    return lowest


def _missed(limit_name: str, limit: float, best: float, what: str) -> Infeasible:
    return Infeasible(
        f"{limit_name}: no {what} that fits keeps {limit * 1e3:g} ms",
        f"the nearest takes {best * 1e3:.4g} ms",
        f"try --slo {limit_name}={_milliseconds(best)}",
    )


def less_than_a_node(case: Case, npus: int) -> Infeasible:
    """Instances take whole nodes, and there is not even one."""
    node = int(case.hardware.npus_per_node)
    return Infeasible(
        f"npus: {npus} do not fill one node",
        f"an instance takes whole nodes of {node} NPUs",
        f"try --npus {2 * node}",
    )


def _milliseconds(seconds: float) -> str:
    """A limit in ms that ``seconds`` keeps, rounded up to four digits."""
    milliseconds = seconds * 1e3
    grain = 10.0 ** (np.floor(np.log10(milliseconds)) - 3)
    return f"{np.ceil(milliseconds / grain * (1 + 1e-12)) * grain:.6g}ms"
