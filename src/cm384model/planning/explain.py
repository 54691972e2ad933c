"""Why a plan is what it is, and why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cm384model.planning.results import Infeasible, Plan
from cm384model.planning.space import Candidates
from cm384model.prediction.case import Case
from cm384model.prediction.evaluate import predict_decode, predict_prefill

if TYPE_CHECKING:
    from cm384model.planning.search import Slo


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
        }
        if d.microbatches > 1:
            deployment["attention_aic_share"] = d.attention_aic_share
        terms, pool = predict_decode(case, deployment).terms, "decode"
    else:
        p = plan.prefill
        deployment = {"ep": p.ep, "tokens_per_npu": p.tokens_per_npu, "microbatches": p.microbatches}
        terms, pool = predict_prefill(case, deployment).terms, "prefill"
    largest = max(terms, key=lambda term: term.time_s)
    share = largest.time_s / sum(term.time_s for term in terms)
    return f"{pool}: {largest.name} ({largest.bound}, {share:.0%})"


def why_infeasible(
    case: Case, npus: int, slo: Slo, transfer: float, decode: Candidates, prefill: Candidates
) -> Infeasible:
    """The constraint that no candidate meets, the nearest miss and the smallest change."""
    if not np.any(decode.feasible):
        return _phase_miss("decode", "tpot", slo.tpot, decode, decode.values["tpot"])
    if not np.any(prefill.feasible):
        after = transfer + float(decode.values["step_time"][decode.feasible].min())
        return _phase_miss("prefill", "ttft", slo.ttft, prefill, prefill.values["batch_time"] + after)
    smallest = [
        int(c.axes["ep"][np.nonzero(c.feasible)[0].min()] / case.hardware.dies_per_npu)
        for c in (decode, prefill)
    ]
    if sum(smallest) > npus:
        return Infeasible(
            f"npus: {npus} do not hold one prefill and one decode instance",
            f"the smallest instances take {smallest[1]} and {smallest[0]} NPUs",
            f"try --npus {sum(smallest)}",
        )
    quickest = float(
        np.min(prefill.values["batch_time"][prefill.feasible])
        + np.min(decode.values["step_time"][decode.feasible])
        + transfer
    )
    return Infeasible(
        f"ttft: no pair of instances within {npus} NPUs answers in {slo.ttft:.3g} s",
        f"the quickest prefill batch, transfer and decode step take {quickest:.3g} s",
        f"try --slo ttft={_rounded_up(quickest * 1e3)}ms",
    )


def _phase_miss(
    phase: str, limit_name: str, limit: float, candidates: Candidates, times: np.ndarray
) -> Infeasible:
    fits = ~np.logical_or.reduce([m for name, m in candidates.reasons.items() if name != limit_name])
    if not np.any(fits):
        free = candidates.values["free"]
        nearest = np.unravel_index(int(np.argmax(free)), candidates.shape)
        at = candidates.at(tuple(int(i) for i in nearest))
        return Infeasible(
            f"hbm: no {phase} deployment fits the memory of a die",
            f"the nearest, ep={at['ep']:.0f}, is {-free[nearest] / 1e9:.2f} GB over",
            "try more NPUs, a shorter context or a smaller model.precision.kv",
        )
    quickest = np.unravel_index(int(np.argmin(np.where(fits, times, np.inf))), candidates.shape)
    at = candidates.at(tuple(int(i) for i in quickest))
    best = float(times[quickest])
    where = ", ".join(f"{name}={value:g}" for name, value in at.items())
    return Infeasible(
        f"{limit_name}: no {phase} deployment that fits keeps {limit * 1e3:g} ms",
        f"the nearest takes {best * 1e3:.4g} ms ({where})",
        f"try --slo {limit_name}={_rounded_up(best * 1e3)}ms",
    )


def _rounded_up(milliseconds: float) -> str:
    return f"{np.ceil(milliseconds * 10) / 10:g}"
