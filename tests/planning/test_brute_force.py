"""The planner against loops over every deployment and every number of instances, on small random spaces.

The reference predicts one deployment at a time, prunes nothing, and finds the highest rate of a
combination by bisection on `prefill_delay`. It shares with the planner the predictors and the
formula of the queue, and no line of the search.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from cm384model.planning import cache_pool, caching, layouts, pairs, search, space, walk
from cm384model.planning.request import ABLATIONS, Request, Slo
from cm384model.planning.results import Infeasible
from cm384model.planning.search import plan_case
from cm384model.prediction.case import load_case
from cm384model.prediction.decode import DecodeDeployment, decode_step
from cm384model.prediction.prefill import PrefillDeployment, prefill_batch
from cm384model.prediction.serving import kv_transfer_time, prefill_delay
from cm384model.specs.reuse import ReuseCurve
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
    "4K in, 16 out": (4096.0, 16.0),
}


SETTINGS = ("hardware.die.hbm_capacity=128GB", "hardware.node.dram_capacity=40GB")


@functools.cache
def case_of(lengths, kv_precision="bf16", dram_bandwidth="1TB/s"):
    """A shipped workload with other lengths, on dies of 128 GB, so that one node holds the model.

    Nodes have little DRAM, so that a pool of a few of them is not enough for everything.
    """
    settings = [*SETTINGS, f"hardware.node.dram_bandwidth={dram_bandwidth}"]
    case = load_case("deepseek-r1-4k-256", settings=settings)
    for name, value in zip(("prompt_len", "output_len"), LENGTHS[lengths], strict=True):
        case = case.replaced(f"workload.traffic.{name}", value)
    return replace(case, model=replace_node(case.model, "precision.kv", kv_precision))


# --- the reference ------------------------------------------------------------------------------------------


@functools.cache
def decode_of(lengths, kv_precision, ep, batch, share, drafts, tp, expert_tp, redundant):
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
            expert_tp=expert_tp,
        ),
    )
    return float(step.tpot), float(step.step_time), float(step.memory.free)


@functools.cache
def prefill_of(lengths, ep, tokens, microbatches, redundant, reuse, layout):
    """Time from batch to batch, free memory, and what of the time follows the first tokens."""
    tp, expert_tp, parts, stages, chunks = layout
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
            attention_tp=tp,
            expert_tp=expert_tp,
            context_parallel=parts,
            pipeline_stages=stages,
            chunks=chunks,
        ),
    )
    interval, first = float(batch.interval), float(batch.batch_time)
    return interval, float(batch.memory.free), interval - first


@dataclass(frozen=True)
class Axes:
    """What is left of every axis of the planner in a small space."""

    most_batch: int
    shares: tuple[float, ...]
    most_drafts: int
    attention_tp: tuple[float, ...]
    expert_tp: tuple[float, ...]
    parts: tuple[float, ...]
    stages: tuple[float, ...]
    tokens_step: int
    tokens_steps: int

    def shrink(self, patch):
        """Give the planner these axes."""
        patch.setattr(space, "MAX_BATCH_PER_DIE", self.most_batch)
        patch.setattr(space, "MAX_DRAFT_TOKENS", self.most_drafts)
        patch.setattr(layouts, "ATTENTION_TP", self.attention_tp)
        patch.setattr(layouts, "MORE_TP", self.attention_tp)
        patch.setattr(layouts, "EXPERT_TP", self.expert_tp)
        patch.setattr(layouts, "CONTEXT_PARALLEL", self.parts)
        patch.setattr(layouts, "PIPELINE_STAGES", self.stages)
        patch.setattr(layouts, "CHUNKS_PER_STAGE", (2.0,))
        patch.setattr(space, "TOKENS_STEP", self.tokens_step)
        patch.setattr(space, "MAX_TOKENS_PER_NPU", self.tokens_step * self.tokens_steps)
        patch.setattr(space, "core_shares", lambda case: np.array(self.shares))

    def splits(self, request):
        """Degrees of attention TP and of expert TP that the planner may choose."""
        tps = (1.0,) if "attention-tp" in request.without else self.attention_tp
        chosen = request.layouts == "all" and "expert-tp" not in request.without
        return tps, self.expert_tp if chosen else (1.0,)

    def prefill_layouts(self, request):
        """Attention TP, expert TP, parts of a sequence, stages, chunks: within a node of 16 dies."""
        if request.layouts == "default":
            return [(1.0, 1.0, 0.0, 1.0, 1.0)]
        tps, expert_tps = self.splits(request)
        return [
            (tp, expert_tp, parts, stages, 1.0 if stages == 1 else 2 * stages)
            for tp in tps
            for expert_tp in expert_tps
            for parts in self.parts
            for stages in self.stages
            if tp * max(parts, 1) * stages <= 16 and expert_tp * stages <= 16
        ]


@dataclass(frozen=True)
class Combination:
    """Decode instances and prefill instances, and what they do at their rate."""

    rate: float
    tpot: float
    npus: int
    ttft: float
    decode_npus: int
    cache_nodes: int


def cache_choices(request):
    """Hit rates of the cache, nodes of DRAM, and the rate that these carry; one without a size."""
    if "caching" in request.without:
        return [(0.0, 0, np.inf)]
    return [(request.reuse, 0, np.inf)]


def combinations(lengths, axes, request, caches=None):
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
                        for tp, expert_tp in itertools.product(*axes.splits(request)):
                            for redundant in redundancies:
                                at = (ep, float(batch), share, float(drafts), tp, expert_tp, redundant)
                                tpot, step, free = decode_of(lengths, kv_precision, *at)
                                if free >= 0 and tpot <= slo.tpot:
                                    transfer = float(kv_transfer_time(case_of(lengths, kv_precision)))
                                    each = int(ep) // DIES_PER_NPU
                                    decode.append((each, batch * ep, tpot, transfer + step))
    caches = cache_choices(request) if caches is None else caches
    prefill = []
    for ep in sizes:
        each = int(ep) // DIES_PER_NPU
        for step_count in range(1, axes.tokens_steps + 1):
            tokens = float(axes.tokens_step * step_count)
            for microbatches in (1.0,) if "microbatch" in without else (1.0, 2.0):
                choices = itertools.product(redundancies, caches, axes.prefill_layouts(request))
                for redundant, (reuse, nodes, carried), layout in choices:
                    tp, _, parts, stages, _ = layout
                    usual = (microbatches, redundant, reuse, layout)
                    time, free, _ = prefill_of(lengths, ep, tokens, *usual)
                    if free < 0:
                        continue
                    sharing = tp * parts * stages / DIES_PER_NPU if parts else each
                    chunks = np.ceil(prompt_len / (tokens * sharing))
                    one = min(prompt_len / sharing, tokens)
                    single, _, after = prefill_of(lengths, ep, one, *usual)
                    prompts = max(tokens * each / prompt_len, each / sharing)
                    capacity = prompts / (chunks * time)
                    times = (chunks * time, chunks * single, after)
                    prefill.append((each, capacity, carried, nodes, prompts, *times))
    rows = []
    for d_npus, load, tpot, after in decode:
        budget = min(slo.ttft, slo.e2e - (output_len - 1) * tpot) - after
        if budget < 0:
            continue
        by_concurrency = request.max_concurrency / (output_len * tpot)
        for many in range(1, npus // d_npus + 1):
            most = min(many * load / (output_len * tpot), by_concurrency)
            for p_npus, capacity, carried, nodes, *batch in prefill:
                for more in range(1, (npus - many * d_npus) // p_npus + 1):
                    total = many * d_npus + more * p_npus
                    limit = min(most, more * capacity, carried)
                    rows.append((limit, tpot, total, after, d_npus, nodes, budget, more, *batch))
    if not rows:
        return []
    limit, tpot, total, after, d_npus, nodes, budget, more, prompts, full, alone, spared = np.array(rows).T

    def delay(rate):
        queued = prefill_delay(rate, instances=more, prompts=prompts, full_time=full, alone_time=alone)
        return queued - spared

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
    columns = (column[served] for column in (rate, tpot, total, ttft, d_npus, nodes))
    return [Combination(*map(float, row)) for row in zip(*columns, strict=True)]


def best_of(found, objective, same_rate):
    """The best of all combinations, by the rule that the planner states; of equals, the highest rate."""
    if objective == "npus":
        return min(found, key=lambda c: (c.npus, c.tpot, c.cache_nodes, c.ttft))
    if objective == "throughput":
        top = max(c.rate for c in found)
        found = [c for c in found if c.rate >= top * (1 - same_rate)]
    lowest = min(c.tpot for c in found)
    found = [c for c in found if c.tpot == lowest]
    fewest = min(c.npus for c in found)
    found = [c for c in found if c.npus == fewest]
    highest = max(c.rate for c in found)
    found = [c for c in found if c.rate >= highest * (1 - EQUAL)]
    return min(found, key=lambda c: (c.cache_nodes, c.ttft))


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
        expert_tp=one_of((1.0,), (1.0, 4.0), (1.0, 16.0)),
        parts=one_of((0.0,), (0.0, 1.0), (0.0, 2.0, 8.0)),
        stages=one_of((1.0,), (1.0, 2.0)),
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
        layouts=one_of("default", "all"),
    )
    return axes, request, int(rng.integers(1, 10)), one_of(1, 40, 100_000), one_of(1e-3, 0.02, 0.2)


def planned(patch, case, axes, request, same_rate):
    """The planner's result on small axes."""
    axes.shrink(patch)
    patch.setattr(pairs, "SAME_RATE", same_rate)
    patch.setattr(cache_pool, "SAME_RATE", same_rate)
    patch.setattr(search, "marginals", lambda *operands: ("", ()))  # has tests of its own
    patch.setattr(search, "why_infeasible", lambda *operands: NO_PLAN)
    return plan_case(case, request)


@pytest.mark.parametrize("lengths", list(LENGTHS)[:4])
@settings(max_examples=50)
@given(seed=st.integers(0, 2**62))
def test_the_winner_is_the_best_of_all_combinations(lengths, seed):
    """And every rank is the best of the decode sizes that are left."""
    axes, request, block, chunk, same_rate = random_problem(seed, 40.0 if "chunks" in lengths else 10.0)
    note(f"{axes}, {request}, RISING_BLOCK={block}, CHUNK={chunk}, SAME_RATE={same_rate}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "RISING_BLOCK", block)
        patch.setattr(walk, "CHUNK", chunk)
        patch.setattr(walk, "FEW", 0)
        result = planned(patch, case_of(lengths), axes, request, same_rate)
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


# --- with a context cache whose pool is sized ---------------------------------------------------------------

SIZES = np.array([2e4, 1.5e5, 6e5])
HITS = np.array([0.2, 0.45, 0.6])


def sized_choices(case, request, curve, dram_bandwidth):
    """Every hit rate on every number of nodes that holds its tokens, counted by hand."""
    per_token = 61 * 576 * 2.0
    tokens_of_a_node = 40e9 * 0.5 / per_token
    prompt_len = float(case.workload.traffic.prompt_len.si)
    traffic = prompt_len * per_token
    choices = [(0.0, 0, np.inf)]
    for nodes in range(1, request.cache_nodes + 1):
        carried = nodes * dram_bandwidth / traffic  # less than what four sockets send
        if curve.requests_per_s is None:
            for own in range(1, nodes + 1):
                hits = float(np.interp(own * tokens_of_a_node, [0, *SIZES], [0, *HITS]))
                choices.append((hits, nodes, carried))
            continue
        for hits in (0.2, 0.4, 0.6):
            tokens = float(np.interp(hits, [0, *HITS], [0, *SIZES]))
            most = nodes * tokens_of_a_node / tokens * curve.requests_per_s
            choices.append((hits, nodes, min(carried, most)))
    return choices


@pytest.mark.parametrize("lengths", ["4K in, 16 out", "prompts in chunks"])
@settings(max_examples=40)
@given(seed=st.integers(0, 2**62))
def test_the_smallest_pool_that_reaches_the_best_of_all_combinations(lengths, seed):
    """Over every hit rate and every number of nodes that lend DRAM to it."""
    rng = np.random.default_rng(seed)
    axes, request, *_, same_rate = random_problem(seed, 40.0)
    bandwidth = float(rng.choice([1e12, 2e9, 1e9]))
    scaled = float(rng.choice([0.0, 1.0, 10.0])) or None
    curve = ReuseCurve("tokens", SIZES, HITS, requests_per_s=scaled)
    request = replace(
        request,
        npus=min(request.npus, 32),
        max_concurrency=float("inf"),
        spare_nodes=0,
        reuse=0.0,
        without=request.without - {"caching"},
        cache_curve=curve,
        cache_nodes=int(rng.integers(0, 5)),
    )
    axes = replace(axes, most_batch=min(axes.most_batch, 4), tokens_steps=min(axes.tokens_steps, 2))
    note(f"{axes}, {request}, dram_bandwidth={bandwidth:g}, SAME_RATE={same_rate}")
    case = case_of(lengths, dram_bandwidth=f"{bandwidth:.0f}B/s")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(caching, "LEVEL_STEP", 0.2)
        patch.setattr(search, "finer", lambda *operands: None)
        result = planned(patch, case, axes, request, same_rate)
    left = combinations(lengths, axes, request, sized_choices(case, request, curve, bandwidth))
    assert result.feasible == bool(left)
    assert len(result.plans) == min(len({c.decode_npus for c in left}), request.top)
    for plan in result.plans:
        best = best_of(left, request.objective, same_rate)
        assert plan.requests_per_s == pytest.approx(best.rate, rel=2 * EQUAL)
        assert plan.tpot_s == pytest.approx(best.tpot, rel=EQUAL)
        assert plan.npus == best.npus
        assert plan.cache.nodes == best.cache_nodes
        assert plan.ttft_s == pytest.approx(best.ttft, rel=1e-6)
        left = [c for c in left if c.decode_npus != plan.decode.npus / plan.decode.instances]
