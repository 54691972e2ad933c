"""The planner against loops over every deployment and every number of instances, on small random spaces.

The reference predicts one deployment at a time, prunes nothing, and finds the highest rate of a
combination by bisection on `prefill_delay`. It shares with the planner the predictors and the
formula of the queue, and no line of the search.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from cm384model.planning import pairs, search, space
from cm384model.planning.request import ABLATIONS, Request, Slo
from cm384model.planning.results import Infeasible
from cm384model.planning.search import plan_case
from cm384model.prediction.case import load_case
from cm384model.prediction.decode import DecodeDeployment, decode_step
from cm384model.prediction.prefill import PrefillDeployment, prefill_batch
from cm384model.prediction.serving import kv_transfer_time, prefill_delay
from cm384model.specs.spec import replace_node

NPUS_PER_NODE, DIES_PER_NPU = 8, 2
NO_PLAN = Infeasible("none", "none", "none")
EQUAL = 1e-9
"""Relative difference up to which two numbers are the same, summed in another order. [-]"""

LENGTHS = {
    "4K in, 256 out": (4096.0, 256.0),
    "1K in, 1K out": (1024.0, 1024.0),
    "1K in, 16 out": (1024.0, 16.0),
    "prompts in chunks": (20000.0, 64.0),
}


@functools.cache
def case_of(lengths, kv_precision="bf16"):
    """A shipped workload with other lengths, on dies of 128 GB, so that one node holds the model."""
    case = load_case("deepseek-r1-4k-256", settings=["hardware.die.hbm_capacity=128GB"])
    for name, value in zip(("prompt_len", "output_len"), LENGTHS[lengths], strict=True):
        case = case.replaced(f"workload.traffic.{name}", value)
    return replace(case, model=replace_node(case.model, "precision.kv", kv_precision))


# --- the reference ------------------------------------------------------------------------------------------


@functools.cache
def decode_of(lengths, kv_precision, ep, batch, share, drafts, tp, redundant):
    """TPOT, step time and free memory of one decode deployment."""
    case = case_of(lengths, kv_precision)
    step = decode_step(
        case.system,
        DecodeDeployment(
            ep=ep,
            batch_per_die=batch,
            kv_len=case.decode_kv_len,
            microbatches=1.0 if share == 1 else 2.0,
            attention_aic_share=share,
            draft_tokens=drafts,
            acceptance=case.workload.serving.acceptance.si,
            imbalance=case.imbalance(case.workload.serving.balance, redundant),
            redundant_experts=redundant,
            attention_tp=tp,
        ),
    )
    return float(step.tpot), float(step.step_time), float(step.memory.free)


@functools.cache
def prefill_of(lengths, ep, tokens, microbatches, redundant, reuse):
    """Batch time and free memory of one prefill deployment."""
    case = case_of(lengths)
    batch = prefill_batch(
        case.system,
        PrefillDeployment(
            ep=ep,
            tokens_per_npu=tokens,
            prompt_len=LENGTHS[lengths][0],
            microbatches=microbatches,
            imbalance=case.imbalance(case.workload.serving.balance, redundant),
            redundant_experts=redundant,
            reuse=reuse,
        ),
    )
    return float(batch.batch_time), float(batch.memory.free)


@dataclass(frozen=True)
class Axes:
    """What is left of every axis of the planner in a small space."""

    most_batch: int
    shares: tuple[float, ...]
    most_drafts: int
    attention_tp: tuple[float, ...]
    tokens_step: int
    tokens_steps: int

    def shrink(self, patch):
        """Give the planner these axes."""
        patch.setattr(space, "MAX_BATCH_PER_DIE", self.most_batch)
        patch.setattr(space, "MAX_DRAFT_TOKENS", self.most_drafts)
        patch.setattr(space, "ATTENTION_TP", self.attention_tp)
        patch.setattr(space, "TOKENS_STEP", self.tokens_step)
        patch.setattr(space, "MAX_TOKENS_PER_NPU", self.tokens_step * self.tokens_steps)
        patch.setattr(space, "core_shares", lambda case: np.array(self.shares))


@dataclass(frozen=True)
class Combination:
    """Decode instances and prefill instances, and what they do at their rate."""

    rate: float
    tpot: float
    npus: int
    ttft: float
    decode_npus: int


def combinations(lengths, axes, request):
    """Every combination that serves the rate asked for, or each at its highest rate."""
    prompt_len, output_len = LENGTHS[lengths]
    npus = request.npus - request.spare_nodes * NPUS_PER_NODE
    sizes = [float(node * NPUS_PER_NODE * DIES_PER_NPU) for node in range(1, npus // NPUS_PER_NODE + 1)]
    without, slo = request.without, request.slo
    redundancies = (0.0,) if "redundancy" in without else (0.0, 32.0)
    decode = []
    for kv_precision in request.kv_precisions or ("bf16",):
        for ep in sizes:
            for batch in range(1, axes.most_batch + 1):
                for share in (1.0,) if "microbatch" in without else (1.0, *axes.shares):
                    for drafts in range(1 if "mtp" in without else axes.most_drafts + 1):
                        for tp in (1.0,) if "attention-tp" in without else axes.attention_tp:
                            for redundant in redundancies:
                                at = (ep, float(batch), share, float(drafts), tp, redundant)
                                tpot, step, free = decode_of(lengths, kv_precision, *at)
                                if free >= 0 and tpot <= slo.tpot:
                                    decode.append((int(ep) // DIES_PER_NPU, batch * ep, tpot, step))
    reuse = 0.0 if "caching" in without else request.reuse
    prefill = []
    for ep in sizes:
        each = int(ep) // DIES_PER_NPU
        for step_count in range(1, axes.tokens_steps + 1):
            tokens = float(axes.tokens_step * step_count)
            for microbatches in (1.0,) if "microbatch" in without else (1.0, 2.0):
                for redundant in redundancies:
                    time, free = prefill_of(lengths, ep, tokens, microbatches, redundant, reuse)
                    if free < 0:
                        continue
                    chunks = np.ceil(prompt_len / (tokens * each))
                    one = min(prompt_len / each, tokens)
                    alone = chunks * prefill_of(lengths, ep, one, microbatches, redundant, reuse)[0]
                    prompts = tokens * each / prompt_len
                    capacity = max(prompts, 1.0) / (chunks * time)
                    prefill.append((each, capacity, prompts, chunks * time, alone))
    transfer = float(kv_transfer_time(case_of(lengths)))
    rows = []
    for d_npus, load, tpot, step in decode:
        budget = min(slo.ttft, slo.e2e - output_len * tpot) - transfer - step
        if budget < 0:
            continue
        by_concurrency = request.max_concurrency / (output_len * tpot)
        for many in range(1, npus // d_npus + 1):
            most = min(many * load / (output_len * tpot), by_concurrency)
            for p_npus, capacity, prompts, full, alone in prefill:
                for more in range(1, (npus - many * d_npus) // p_npus + 1):
                    total = many * d_npus + more * p_npus
                    limit = min(most, more * capacity)
                    rows.append(
                        (limit, tpot, total, transfer + step, d_npus, budget, more, prompts, full, alone)
                    )
    if not rows:
        return []
    limit, tpot, total, after, d_npus, budget, more, prompts, full, alone = np.array(rows).T

    def delay(rate):
        return prefill_delay(rate, instances=more, prompts=prompts, full_time=full, alone_time=alone)

    if request.rate is None:
        low, high = np.zeros(len(rows)), limit
        at_limit = delay(limit * (1 - 1e-12)) <= budget
        for _ in range(60):
            middle = (low + high) / 2
            kept = delay(middle) <= budget
            low, high = np.where(kept, middle, low), np.where(kept, high, middle)
        rate = np.where(at_limit, limit, low)
        served = delay(rate * 1e-6) <= budget
    else:
        rate = np.full(len(rows), request.rate)
        served = (limit >= rate * (1 - 1e-12)) & (delay(rate) <= budget)
    ttft = delay(rate * (1 - 1e-12)) + after
    columns = zip(rate[served], tpot[served], total[served], ttft[served], d_npus[served], strict=True)
    return [Combination(*map(float, row)) for row in columns]


def best_of(found, objective, same_rate):
    """The best of all combinations, by the rule that the planner states; of equals, the highest rate."""
    if objective == "npus":
        return min(found, key=lambda c: (c.npus, c.tpot, c.ttft))
    if objective == "throughput":
        top = max(c.rate for c in found)
        found = [c for c in found if c.rate >= top * (1 - same_rate)]
    lowest = min(c.tpot for c in found)
    found = [c for c in found if c.tpot == lowest]
    fewest = min(c.npus for c in found)
    found = [c for c in found if c.npus == fewest]
    highest = max(c.rate for c in found)
    return min((c for c in found if c.rate >= highest * (1 - EQUAL)), key=lambda c: c.ttft)


# --- the comparison -----------------------------------------------------------------------------------------


def random_problem(seed, longest_ttft):
    """Axes, a request, slices of the walk and a tolerance, evenly drawn."""
    rng = np.random.default_rng(seed)

    def one_of(*choices):
        return choices[rng.integers(len(choices))]

    def log_uniform(low, high):
        return float(low * (high / low) ** rng.random())

    axes = Axes(
        most_batch=int(rng.integers(1, 9)),
        shares=one_of((), (1 / 3,), (1 / 3, 5 / 8)),
        most_drafts=int(rng.integers(0, 3)),
        attention_tp=one_of((1.0,), (1.0, 2.0), (1.0, 4.0)),
        tokens_step=one_of(512, 2048),
        tokens_steps=int(rng.integers(1, 4)),
    )
    objective = one_of("throughput", "throughput", "npus", "latency")
    spare = one_of(0, 0, 1)
    request = Request(
        npus=int(rng.integers(16, 41)) + spare * NPUS_PER_NODE,
        slo=Slo(
            log_uniform(0.02, 0.15),
            log_uniform(longest_ttft / 20, longest_ttft),
            one_of(float("inf"), log_uniform(5.0, 60.0)),
        ),
        objective=objective,
        rate=None if objective == "throughput" else log_uniform(0.2, 30.0),
        top=one_of(1, 1, 3),
        max_concurrency=one_of(float("inf"), log_uniform(5.0, 500.0)),
        spare_nodes=spare,
        reuse=one_of(0.0, 0.0, 0.5),
        without=frozenset(w for w in ABLATIONS if rng.random() < 0.2),
        kv_precisions=one_of((), (), ("int8",), ("bf16", "int8")),
    )
    return axes, request, int(rng.integers(1, 10)), one_of(1, 40, 100_000), one_of(1e-3, 0.02, 0.2)


@pytest.mark.parametrize("lengths", LENGTHS)
@settings(max_examples=70)
@given(seed=st.integers(0, 2**62))
def test_the_winner_is_the_best_of_all_combinations(lengths, seed):
    """And every rank is the best of the decode sizes that are left."""
    axes, request, block, chunk, same_rate = random_problem(seed, 40.0 if "chunks" in lengths else 10.0)
    note(f"{axes}, {request}, RISING_BLOCK={block}, CHUNK={chunk}, SAME_RATE={same_rate}")
    with pytest.MonkeyPatch.context() as patch:
        axes.shrink(patch)
        patch.setattr(space, "RISING_BLOCK", block)
        patch.setattr(space, "CHUNK", chunk)
        patch.setattr(space, "FEW", 0)
        patch.setattr(pairs, "SAME_RATE", same_rate)
        patch.setattr(search, "marginals", lambda *operands: ("", ()))  # has tests of its own
        patch.setattr(search, "why_infeasible", lambda *operands: NO_PLAN)
        result = plan_case(case_of(lengths), request)
    left = combinations(lengths, axes, request)
    assert result.feasible == bool(left)
    sizes = {c.decode_npus for c in left}
    assert len(result.plans) == min(len(sizes), request.top)
    for plan in result.plans:
        best = best_of(left, request.objective, same_rate)
        assert plan.requests_per_s == pytest.approx(best.rate, rel=EQUAL)
        assert plan.tpot_s == pytest.approx(best.tpot, rel=EQUAL)
        assert plan.npus == best.npus
        assert plan.ttft_s == pytest.approx(best.ttft, rel=EQUAL)
        left = [c for c in left if c.decode_npus != plan.decode.npus / plan.decode.instances]
