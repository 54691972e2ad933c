"""What makes the pruning exact: slices change nothing, costs rise with the batch, frontiers are complete."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm384model.planning import layouts, space, walk
from cm384model.planning.request import Request, Slo
from cm384model.prediction.case import load_case
from cm384model.prediction.decode import DecodeDeployment, decode_step
from cm384model.prediction.prefill import PrefillDeployment, prefill_batch

CASE = load_case("deepseek-r1-4k-256")


# --- sizes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("npus", "sizes"), [(4, []), (8, [16]), (15, [16]), (16, [16, 32]), (384, list(range(16, 769, 16)))]
)
def test_instances_fill_whole_nodes(case, npus, sizes):
    assert list(space.instance_sizes(case, npus)) == sizes


def test_instances_do_not_exceed_the_supernode(case):
    assert space.instance_sizes(case, 10_000).max() == 768


# --- slices -------------------------------------------------------------------------------------------------


def random_walk(seed):
    """Axes and costs that rise along ``b``, with ties, and limits that some candidates break; of one ``a``
    and ``b`` the cheapest has the highest rate."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 7, 3)
    sizes[1] = rng.integers(1, 40)
    weights, limits = rng.integers(0, 5, 4), rng.integers(1, 60, 2)

    def evaluate(a, b, c):
        cost = np.floor(weights[0] * a + weights[1] * b / (1 + c) + weights[2] * c)
        heavy = a * c + b * weights[3]
        columns = {
            "npus": a,
            "rate": np.floor(9 * b * (1 + a) / (1 + cost)),
            "tpot": cost,
            "delay": cost,
            "free": limits[0] - heavy,
            "alone": 0.0,
            "prompts": 0.0,
            "spared": 0.0,
            "transfer": 0.0,
            "most": np.inf,
        }
        return walk.Slice(columns, {"hbm": heavy > limits[0], "tpot": cost > limits[1]})

    names = ("a", "b", "c")
    return {n: np.arange(1.0, size + 1) for n, size in zip(names, sizes, strict=True)}, evaluate


def rows_of(options):
    """Options as a set of kind, rate and delay."""
    return set(zip(options.axes["a"], options.rate, options.delay, strict=True))


@given(seed=st.integers(0, 2**62))
def test_slices_and_pruning_change_nothing(seed):
    axes, evaluate = random_walk(seed)
    grid = np.meshgrid(*axes.values(), indexing="ij")
    whole = evaluate(*grid)
    allowed = ~(whole.reasons["hbm"] | whole.reasons["tpot"])
    everything = [
        (a, r, d)
        for a, r, d in zip(
            grid[0][allowed], whole.columns["rate"][allowed], whole.columns["delay"][allowed], strict=True
        )
    ]
    expected = unbeaten(everything)
    seen = []
    for block, chunk in ((1, 1), (1, 10**6), (16, 7), (16, 10**6), (10**6, 10**6)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(walk, "RISING_BLOCK", block)
            patch.setattr(walk, "CHUNK", chunk)
            patch.setattr(walk, "FEW", 0)
            found = walk.explore(axes, "b", ("a",), evaluate)
        assert found.size == allowed.size
        assert found.evaluated + found.rejected["pruned"] == found.size
        assert found.feasible == int(allowed.sum())
        assert rows_of(found.options) == expected
        assert len(found.options) == len(expected)
        seen.append(found.evaluated)
    assert seen[-1] == allowed.size  # one block: nothing can be pruned


@settings(max_examples=12)
@given(
    npus=st.sampled_from([32, 48, 64]),
    tpot=st.floats(0.015, 0.08),
    ttft=st.floats(0.3, 4.0),
    reuse=st.sampled_from([0.0, 0.5]),
)
def test_slices_change_nothing_in_the_planners_own_spaces(npus, tpot, ttft, reuse):
    request = Request(npus, Slo(tpot, ttft), reuse=reuse)
    found = []
    for block, chunk in ((1, 300), (16, 100_000), (10**6, 10**6)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(walk, "RISING_BLOCK", block)
            patch.setattr(walk, "CHUNK", chunk)
            patch.setattr(walk, "FEW", 0)
            patch.setattr(space, "MAX_BATCH_PER_DIE", 96)
            patch.setattr(space, "MAX_DRAFT_TOKENS", 1)
            patch.setattr(layouts, "ATTENTION_TP", (1.0, 2.0))
            patch.setattr(space, "TOKENS_STEP", 2048)
            patch.setattr(space, "core_shares", lambda case: np.array([1 / 3, 5 / 8]))
            found.append((space.decode_space(CASE, request, npus), space.prefill_space(CASE, request, npus)))
    for phases in zip(*found, strict=True):
        first = phases[0]
        for other in phases[1:]:
            assert other.size == first.size
            assert other.feasible == first.feasible
            assert len(other.options) == len(first.options)
            order, others = (
                np.lexsort((o.options.delay, o.options.rate, o.options.npus)) for o in (first, other)
            )
            for name in (
                "npus",
                "rate",
                "tpot",
                "delay",
                "free",
                "alone",
                "prompts",
                "spared",
                "transfer",
                "most",
            ):
                assert np.allclose(
                    vars(first.options)[name][order], vars(other.options)[name][others], rtol=1e-12, atol=0
                ), name


def test_counts_add_up(case):
    request = Request(64, Slo(0.05, 2.0))
    for found in (space.decode_space(case, request, 64), space.prefill_space(case, request, 64)):
        assert 0 < len(found.options) <= found.feasible <= found.evaluated <= found.size
        assert found.evaluated + found.rejected["pruned"] == found.size
        forbidden = sum(n for name, n in found.rejected.items() if name != "pruned")
        assert found.evaluated - found.feasible <= forbidden


def test_without_a_choice_its_axis_has_one_value(case):
    full = Request(64, Slo(0.05, 2.0), reuse=0.5)
    decode, prefill = space.decode_space(case, full, 64).size, space.prefill_space(case, full, 64).size
    expected = {
        "microbatch": (decode // 24, prefill // 2),
        "mtp": (decode // 4, prefill),
        "attention-tp": (decode // 3, prefill),
        "redundancy": (decode // 2, prefill // 2),
        "caching": (decode, prefill),
    }
    for word, size in expected.items():
        request = replace(full, without=frozenset({word}))
        decoded, prefilled = space.decode_space(case, request, 64), space.prefill_space(case, request, 64)
        assert (decoded.size, prefilled.size) == size, word


def test_no_option_splits_a_single_request_in_two_microbatches(case):
    options = space.decode_space(case, Request(384, Slo(0.05, 2.0)), 384).options
    single = options.axes["batch_per_die"] == 1
    assert (options.axes["attention_aic_share"][single] == 1).all()


# --- every cost rises ---------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(
    ep=st.integers(1, 48).map(lambda n: 16.0 * n),
    low=st.integers(1, 480),
    share=st.sampled_from([1.0, *(n / 24 for n in range(1, 24))]),
    drafts=st.integers(0, 3).map(float),
    tp=st.sampled_from([1.0, 2.0, 4.0]),
    redundant=st.sampled_from([0.0, 32.0]),
    kv_len=st.floats(64, 131072),
)
def test_decode_never_gets_cheaper_with_the_batch(ep, low, share, drafts, tp, redundant, kv_len):
    batch = np.arange(low, low + 33, dtype=float)
    step = decode_step(
        CASE.system,
        DecodeDeployment(
            ep=ep,
            batch_per_die=batch,
            kv_len=kv_len,
            microbatches=1.0 if share == 1 else 2.0,
            attention_aic_share=share,
            draft_tokens=drafts,
            acceptance=0.7,
            imbalance=CASE.imbalance("eplb", redundant),
            redundant_experts=redundant,
            attention_tp=tp,
        ),
    )
    for name, values in (("step", step.step_time), ("tpot", step.tpot), ("held", -step.memory.free)):
        assert (np.diff(values) >= -1e-12 * np.abs(values[1:])).all(), name


@settings(max_examples=150)
@given(
    ep=st.integers(1, 48).map(lambda n: 16.0 * n),
    low=st.integers(1, 60),
    microbatches=st.sampled_from([1.0, 2.0]),
    redundant=st.sampled_from([0.0, 32.0]),
    prompt_len=st.floats(64, 131072),
    reuse=st.sampled_from([0.0, 0.3, 0.9]),
)
def test_prefill_never_gets_cheaper_with_the_tokens(ep, low, microbatches, redundant, prompt_len, reuse):
    batch = prefill_batch(
        CASE.system,
        PrefillDeployment(
            ep=ep,
            tokens_per_npu=1024.0 * np.arange(low, low + 9),
            prompt_len=prompt_len,
            microbatches=microbatches,
            imbalance=CASE.imbalance("eplb", redundant),
            redundant_experts=redundant,
            reuse=reuse,
        ),
    )
    for name, values in (("time", batch.batch_time), ("held", -batch.memory.free)):
        assert (np.diff(values) >= -1e-12 * np.abs(values[1:])).all(), name


# --- frontiers ----------------------------------------------------------------------------------------------


def unbeaten(rows):
    """Rows (kind, rate, cost) that no row of their kind beats, by comparing every two."""
    rows = set(rows)
    return {
        (k, r, c)
        for k, r, c in rows
        if not any(k == k2 and r2 >= r and c2 <= c and (r2 > r or c2 < c) for k2, r2, c2 in rows)
    }


ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 6)), max_size=40)


@given(rows=ROWS)
def test_the_frontier_is_what_no_other_row_of_its_kind_beats(rows):
    kind, rate, cost = np.array(rows, dtype=float).reshape(-1, 3).T
    kept = walk.frontier(kind, rate, cost)
    assert {rows[i] for i in kept} == unbeaten(rows)
    assert len(kept) == len(unbeaten(rows))  # of equal rows, one


@given(rows=ROWS)
def test_undominated_options_take_every_column_along(rows):
    kind, rate, cost = np.array(rows, dtype=float).reshape(-1, 3).T
    marks = np.arange(len(rows), dtype=float)
    names = ("npus", "tpot", "free", "alone", "prompts", "spared", "transfer", "most")
    options = walk.Options(
        {"kind": kind, "mark": marks}, rate=rate, delay=cost, **dict.fromkeys(names, marks)
    )
    kept = walk.undominated(options, ("kind",))
    assert {(kept.axes["kind"][i], kept.rate[i], kept.delay[i]) for i in range(len(kept))} == unbeaten(rows)
    for i, mark in enumerate(kept.axes["mark"].astype(int)):
        assert rows[mark] == (kept.axes["kind"][i], kept.rate[i], kept.delay[i])
        assert kept.npus[i] == kept.tpot[i] == kept.free[i] == mark
