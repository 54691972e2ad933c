"""The planner against loops over every candidate and every number of instances, on small spaces."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cm384model.planning import space
from cm384model.planning.pairs import Slo, frontier
from cm384model.planning.search import plan_case
from cm384model.prediction.case import load_case
from cm384model.prediction.decode import DecodeDeployment, decode_step
from cm384model.prediction.prefill import PrefillDeployment, prefill_batch
from cm384model.prediction.serving import kv_transfer_time
from cm384model.specs.overrides import replace_value

NODES = 6
NPUS_PER_NODE, DIES_PER_NPU = 8, 2
BATCHES = (1.0, 5.0, 24.0, 70.0)
SHARES = (1 / 3, 5 / 8)
DRAFTS = (0.0, 1.0, 2.0)
TOKENS = (1024.0, 5120.0, 16384.0)
EQUAL = 1e-12
"""Relative difference up to which two rates are the same rate, summed in another order."""
SEARCH = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass(frozen=True)
class Candidate:
    """One deployment of one instance, predicted by a scalar call."""

    ep: int
    npus: int
    rate: float
    limit: float
    delay: float
    load: float


@dataclass(frozen=True)
class Combination:
    """Some decode instances and some prefill instances."""

    decode: Candidate
    prefill: Candidate
    decode_instances: int
    prefill_instances: int
    rate: float
    tpot: float
    npus: int
    ttft: float

    @property
    def order(self):
        return (-self.rate, self.tpot, self.npus, self.ttft)


def roomy(workload, **traffic):
    """A shipped workload on dies of 128 GB, so that one node holds the model."""
    case = load_case(workload, settings=["hardware.die.hbm_capacity=128GB"])
    for name, value in traffic.items():
        case = replace(case, workload=replace_value(case.workload, f"traffic.{name}", value))
    return case


CASES = {
    "4k-256": lambda: roomy("deepseek-r1-4k-256"),
    "1k-1k": lambda: roomy("deepseek-r1-1k-1k"),
    "1k-16": lambda: roomy("deepseek-r1-1k-1k", output_len=16.0),
    "as shipped": lambda: load_case("deepseek-r1-2k-256"),
}


@pytest.fixture(scope="module", autouse=True)
def small_space():
    """A handful of values on every axis, evaluated in many small chunks."""
    full = space.evaluate

    def evaluate(axes, predict):
        picked = {
            "batch_per_die": np.array(BATCHES),
            "attention_aic_share": np.array([1.0, *SHARES]),
            "draft_tokens": np.array(DRAFTS),
            "tokens_per_npu": np.array(TOKENS),
        }
        return full({name: picked.get(name, axis) for name, axis in axes.items()}, predict)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(space, "evaluate", evaluate)
        patch.setattr(space, "CHUNK", 50)
        yield


def decode_pool(case):
    """Every decode candidate that fits, one scalar prediction each."""
    traffic, found = case.workload.traffic, []
    for node in range(1, NODES + 1):
        ep = node * NPUS_PER_NODE * DIES_PER_NPU
        for batch in BATCHES:
            for share in (1.0, *SHARES):
                if share < 1 and batch < 2:
                    continue
                for drafts in DRAFTS:
                    step = decode_step(
                        case.system,
                        DecodeDeployment(
                            ep=float(ep),
                            batch_per_die=batch,
                            kv_len=float(traffic.prompt_len.si + traffic.output_len.si / 2),
                            microbatches=1.0 if share == 1 else 2.0,
                            attention_aic_share=share,
                            draft_tokens=drafts,
                            acceptance=0.7,
                            imbalance=case.imbalance("eplb"),
                            redundant_experts=32.0,
                        ),
                    )
                    if step.memory.free < 0:
                        continue
                    rate = batch * ep / (float(traffic.output_len.si) * step.tpot)
                    found.append(
                        Candidate(ep, ep // DIES_PER_NPU, rate, step.tpot, step.step_time, batch * ep)
                    )
    return found


def prefill_pool(case):
    """Every prefill candidate that fits, one scalar prediction each."""
    prompt_len, found = float(case.workload.traffic.prompt_len.si), []
    for node in range(1, NODES + 1):
        ep = node * NPUS_PER_NODE * DIES_PER_NPU
        for tokens in TOKENS:
            for microbatches in (1.0, 2.0):
                prompts = tokens * ep / DIES_PER_NPU / prompt_len
                if prompts < microbatches:
                    continue
                batch = prefill_batch(
                    case.system,
                    PrefillDeployment(
                        ep=float(ep),
                        tokens_per_npu=tokens,
                        prompt_len=prompt_len,
                        microbatches=microbatches,
                        imbalance=case.imbalance("eplb"),
                        redundant_experts=32.0,
                    ),
                )
                if batch.memory.free < 0:
                    continue
                time = float(batch.batch_time)
                found.append(Candidate(ep, ep // DIES_PER_NPU, prompts / time, time, time, prompts))
    return found


@pytest.fixture(scope="module", params=CASES)
def pools(request):
    """A case with its scalar candidates."""
    case = CASES[request.param]()
    return case, decode_pool(case), prefill_pool(case), kv_transfer_time(case)


def combinations(pools, npus, slo):
    """Every feasible combination of candidates and instance counts."""
    _, decode, prefill, transfer = pools
    for d in decode:
        if d.limit > slo.tpot:
            continue
        for p in prefill:
            ttft = p.delay + transfer + d.delay
            if ttft > slo.ttft:
                continue
            for many in range(1, npus // d.npus + 1):
                left = npus - many * d.npus
                for more in range(1, left // p.npus + 1):
                    rate = min(many * d.rate, more * p.rate)
                    total = many * d.npus + more * p.npus
                    yield Combination(d, p, many, more, rate, d.limit, total, ttft)


def best_of(found):
    """The lexicographic optimum; rates that differ by rounding alone are equal."""
    found = list(found)
    if not found:
        return None
    top = max(c.rate for c in found)
    return min((c for c in found if c.rate >= top * (1 - EQUAL)), key=lambda c: c.order[1:])


def check_plan(case, plan, npus, slo):
    """What holds for every plan, the winner or not."""
    d, p = plan.decode, plan.prefill
    output_len = float(case.workload.traffic.output_len.si)
    assert plan.npus == d.npus + p.npus <= npus
    assert plan.dies == d.dies + p.dies == plan.npus * DIES_PER_NPU
    for pool in (d, p):
        assert pool.instances >= 1
        assert pool.dies == pool.ep * pool.instances
        assert pool.npus % NPUS_PER_NODE == 0
        assert pool.ep % (NPUS_PER_NODE * DIES_PER_NPU) == 0
        assert pool.free_bytes >= 0
    assert plan.tpot_s <= slo.tpot
    assert plan.ttft_s <= slo.ttft * (1 + EQUAL)
    limit = min(d.capacity_requests_per_s, p.capacity_requests_per_s)
    assert plan.requests_per_s == pytest.approx(limit, rel=1e-12)
    # Little's law: requests in decode = arrivals x time in decode
    in_flight = plan.requests_per_s * output_len * plan.tpot_s
    assert plan.concurrency == pytest.approx(in_flight, rel=1e-12)
    assert plan.concurrency <= d.dies * d.batch_per_die * (1 + 1e-9)
    assert plan.throughput_tokens_per_s == pytest.approx(plan.requests_per_s * output_len, rel=1e-12)
    per_npu = plan.throughput_tokens_per_s_per_npu
    assert per_npu * plan.npus == pytest.approx(plan.throughput_tokens_per_s, rel=1e-12)
    assert plan.ttft_s == pytest.approx(p.batch_time_s + plan.kv_transfer_s + d.step_time_s, rel=1e-12)
    assert plan.bound_by


@SEARCH
@given(npus=st.integers(8, 48), tpot=st.floats(0.008, 0.1), ttft=st.floats(0.1, 6.0))
def test_the_winner_is_the_best_of_all_combinations(pools, npus, tpot, ttft):
    case, slo = pools[0], Slo(tpot, ttft)
    result = plan_case(case, npus, slo, 1)
    found = list(combinations(pools, npus, slo))
    best = best_of(found)
    assert result.feasible == (best is not None)
    if best is None:
        return
    (winner,) = result.plans
    check_plan(case, winner, npus, slo)
    assert winner.requests_per_s == pytest.approx(best.rate, rel=EQUAL)
    assert winner.tpot_s == pytest.approx(best.tpot, rel=EQUAL)
    assert winner.npus == best.npus
    assert winner.ttft_s == pytest.approx(best.ttft, rel=EQUAL)
    for c in found:
        no_worse = (
            c.rate >= winner.requests_per_s * (1 - EQUAL)
            and c.tpot <= winner.tpot_s * (1 + EQUAL)
            and c.npus <= winner.npus
            and c.ttft <= winner.ttft_s * (1 + EQUAL)
        )
        better = (
            c.rate > winner.requests_per_s * (1 + 1e-9)
            or c.tpot < winner.tpot_s * (1 - 1e-9)
            or c.npus < winner.npus
            or c.ttft < winner.ttft_s * (1 - 1e-9)
        )
        assert not (no_worse and better), c


@SEARCH
@given(npus=st.integers(16, 48), tpot=st.floats(0.01, 0.1), ttft=st.floats(0.3, 6.0))
def test_every_rank_is_the_best_of_its_instance_sizes(pools, npus, tpot, ttft):
    case, slo = pools[0], Slo(tpot, ttft)
    plans = plan_case(case, npus, slo, 100).plans
    by_sizes = {}
    for c in combinations(pools, npus, slo):
        by_sizes.setdefault((c.decode.ep, c.prefill.ep), []).append(c)
    assert len(plans) == len(by_sizes)
    for plan in plans:
        check_plan(case, plan, npus, slo)
        best = best_of(by_sizes.pop((plan.decode.ep, plan.prefill.ep)))
        assert plan.requests_per_s == pytest.approx(best.rate, rel=EQUAL)
        assert plan.relative == pytest.approx(best.rate / plans[0].requests_per_s, rel=1e-9)
    assert [plan.rank for plan in plans] == list(range(1, len(plans) + 1))
    rates = [plan.requests_per_s for plan in plans]
    assert rates == sorted(rates, reverse=True)


@SEARCH
@given(npus=st.integers(16, 48), tpot=st.floats(0.01, 0.1), ttft=st.floats(0.3, 6.0), data=st.data())
def test_more_npus_and_looser_limits_never_serve_less(pools, npus, tpot, ttft, data):
    def served(npus, tpot, ttft):
        plans = plan_case(pools[0], npus, Slo(tpot, ttft), 1).plans
        return plans[0].requests_per_s if plans else 0.0

    rate = served(npus, tpot, ttft) * (1 - EQUAL)
    assert served(npus + data.draw(st.integers(0, 16)), tpot, ttft) >= rate
    assert served(npus, tpot * data.draw(st.floats(1, 3)), ttft) >= rate
    assert served(npus, tpot, ttft * data.draw(st.floats(1, 3))) >= rate


def test_candidates_are_counted(pools):
    case = pools[0]
    result = plan_case(case, 48, Slo(0.05, 5.0), 1)
    sizes = NODES * (len(BATCHES) * (1 + len(SHARES)) * len(DRAFTS) + 2 * len(TOKENS))
    assert result.candidates == sizes
    fits = [c for c in pools[1] if c.limit <= 0.05] + [c for c in pools[2] if c.limit <= 5.0]
    assert result.feasible_candidates == len(fits)
    assert all(0 <= n <= sizes for n in result.rejected.values())


# --- no plan ------------------------------------------------------------------------------------------------


def followed(case, npus, slo, hint):
    """The plan with the limit that the hint names."""
    match = re.fullmatch(r"try --slo (tpot|ttft)=([\d.]+)ms", hint)
    assert match, hint
    return plan_case(case, npus, replace(slo, **{match[1]: float(match[2]) / 1e3}), 1)


def check_refusal(result):
    assert not result.feasible
    assert result.plans == ()
    assert result.infeasible is not None
    for text in (result.infeasible.constraint, result.infeasible.nearest, result.infeasible.hint):
        assert text.strip()
        assert "nan" not in text
        assert "inf " not in text
    assert result.reasons == (result.infeasible.constraint,)


@SEARCH
@given(npus=st.integers(8, 48), tpot=st.floats(1e-6, 0.02), ttft=st.floats(1e-6, 0.5))
def test_a_refusal_says_why(pools, npus, tpot, ttft):
    result = plan_case(pools[0], npus, Slo(tpot, ttft), 5)
    if not result.feasible:
        check_refusal(result)
        assert result.infeasible.constraint.split(":")[0] in {"tpot", "ttft", "tpot and ttft", "npus", "hbm"}


@pytest.mark.parametrize(
    ("slo", "constraint"), [(Slo(1e-3, 60.0), "tpot"), (Slo(1.0, 1e-3), "ttft"), (Slo(1.0, 0.15), "ttft")]
)
def test_the_hint_leads_to_a_plan_on_a_whole_supernode(slo, constraint):
    case = load_case("deepseek-r1-4k-256")
    result = plan_case(case, 384, slo, 1)
    check_refusal(result)
    assert result.infeasible.constraint.startswith(f"{constraint}:")
    assert followed(case, 384, slo, result.infeasible.hint).feasible


@pytest.mark.parametrize("npus", [16, 24, 32, 40, 48])
@pytest.mark.parametrize("slo", [Slo(1e-3, 60.0), Slo(1.0, 1e-3)])
def test_the_hint_leads_to_a_plan_on_few_nodes(npus, slo):
    case = CASES["4k-256"]()
    result = plan_case(case, npus, slo, 1)
    check_refusal(result)
    assert followed(case, npus, slo, result.infeasible.hint).feasible


def test_too_few_npus_for_two_instances():
    case = CASES["4k-256"]()
    result = plan_case(case, 8, Slo(1.0, 60.0), 1)
    check_refusal(result)
    assert result.infeasible.constraint.startswith("npus:")
    assert result.infeasible.hint == "try --npus 16"
    assert plan_case(case, 16, Slo(1.0, 60.0), 1).feasible


def test_too_little_memory():
    case = load_case("deepseek-r1-4k-256", settings=["hardware.die.hbm_capacity=8GB"])
    result = plan_case(case, 48, Slo(1.0, 60.0), 1)
    check_refusal(result)
    assert result.infeasible.constraint.startswith("hbm:")


def test_less_than_a_node():
    check_refusal(plan_case(CASES["4k-256"](), 4, Slo(1.0, 60.0), 1))


def test_a_prompt_longer_than_every_batch():
    case = roomy("deepseek-r1-4k-256", prompt_len=300_000.0)
    result = plan_case(case, 16, Slo(10.0, 600.0), 1)
    check_refusal(result)
    assert "prompt" in result.infeasible.constraint


# --- the frontier -------------------------------------------------------------------------------------------

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 6)), min_size=0, max_size=40)


@given(rows=ROWS)
def test_the_frontier_is_what_no_other_row_of_its_kind_beats(rows):
    kind, rate, cost = np.array(rows, dtype=float).reshape(-1, 3).T
    kept = frontier(kind, rate, cost)
    expected = set()
    for k, r, c in rows:
        beaten = False
        for k2, r2, c2 in rows:
            beaten |= k == k2 and r2 >= r and c2 <= c and (r2 > r or c2 < c)
        if not beaten:
            expected.add((k, r, c))
    assert {rows[i] for i in kept} == expected
    assert len(kept) == len(expected)  # of equal rows, one
