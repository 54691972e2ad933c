"""Why a plan is what it is, and why there is none."""

from __future__ import annotations

import numpy as np

from cm384model.planning.pairs import Slo, decode_options, pairs, prefill_options
from cm384model.planning.results import Infeasible, Plan
from cm384model.planning.space import MAX_TOKENS_PER_NPU, Candidates
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
    """The constraint that no plan meets, the nearest miss and the smallest change that mends it.

    The limits are lifted one at a time, then both: what the best pair without them takes is the
    smallest limit that has a plan.
    """
    for phase, limit, candidates in (("decode", "tpot", decode), ("prefill", "ttft", prefill)):
        if not np.any(candidates.allowed(limit)):
            return _nothing_fits(phase, candidates)
    any_decode, any_prefill = decode_options(case, decode, "tpot"), prefill_options(case, prefill, "ttft")
    free = Slo(np.inf, np.inf)
    if len(pairs(npus, free, transfer, any_decode, any_prefill).rate) == 0:
        smallest = int(any_decode.npus.min()), int(any_prefill.npus.min())
        return Infeasible(
            f"npus: {npus} do not hold one prefill and one decode instance",
            f"the smallest that fit take {smallest[1]} and {smallest[0]} NPUs",
            f"try --npus {sum(smallest)}",
        )
    decode_kept, prefill_kept = decode_options(case, decode), prefill_options(case, prefill)
    slower = pairs(npus, Slo(np.inf, slo.ttft), transfer, any_decode, prefill_kept)
    if len(slower.rate):
        return _missed("tpot", slo.tpot, float(slower.tpot.min()), "decode instance")
    later = pairs(npus, Slo(slo.tpot, np.inf), transfer, decode_kept, any_prefill)
    if len(later.rate):
        return _missed("ttft", slo.ttft, float(later.ttft.min()), "pair of instances")
    both = pairs(npus, free, transfer, any_decode, any_prefill)
    quickest = int(np.argmin(both.tpot))
    tpot, ttft = float(both.tpot[quickest]), float(both.ttft[both.tpot == both.tpot[quickest]].min())
    return Infeasible(
        f"tpot and ttft: no plan within {npus} NPUs keeps either limit beside the other",
        f"the lowest TPOT is {tpot * 1e3:.4g} ms, with a TTFT of {ttft:.4g} s",
        f"try --slo tpot={_milliseconds(tpot)},ttft={_milliseconds(ttft)}",
    )


def _missed(limit_name: str, limit: float, best: float, what: str) -> Infeasible:
    return Infeasible(
        f"{limit_name}: no {what} that fits keeps {limit * 1e3:g} ms",
        f"the nearest takes {best * 1e3:.4g} ms",
        f"try --slo {limit_name}={_milliseconds(best)}",
    )


def _nothing_fits(phase: str, candidates: Candidates) -> Infeasible:
    """No deployment of a phase survives its structural constraints: memory, or whole prompts."""
    others = {name: mask for name, mask in candidates.reasons.items() if name not in ("tpot", "ttft")}
    alone = [name for name, mask in others.items() if np.all(mask)]
    if "prompt" in alone:
        return Infeasible(
            "prompt: no prefill batch holds a whole prompt",
            f"the largest batch has {MAX_TOKENS_PER_NPU} tokens per NPU",
            "try more NPUs or a shorter traffic.prompt_len",
        )
    free = candidates.values["free"]
    nearest = np.unravel_index(int(np.argmax(free)), candidates.shape)
    at = candidates.at(tuple(int(i) for i in nearest))
    return Infeasible(
        f"hbm: no {phase} deployment fits the memory of a die",
        f"the nearest, ep={at['ep']:.0f}, is {max(-float(free[nearest]), 0) / 1e9:.2f} GB over",
        "try more NPUs, a shorter context or --set model.precision.kv=int8",
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
