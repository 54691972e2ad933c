"""Experts on dies: the published placements, every EP degree, and counts by enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm384model.laws.moe import expert_rows, expert_slots_per_die, experts_touched, shared_expert_dies

R1 = {"top_k": 8, "shared_experts": 1, "dies_per_node": 16}
EVERY_EP = np.arange(1, 769)


def place(ep, routed=256, redundant=32):
    shared = shared_expert_dies(ep, routed, **R1)
    return shared, ep - shared, expert_slots_per_die(ep, routed, redundant, shared_dies=shared)


def test_ep32_holds_ten_experts_per_die():
    shared, pool, slots = place(32)
    replicated = 1 * (shared == 0)
    routed = 256 / pool
    redundant = slots - routed
    assert (replicated, routed, redundant) == (1, 8, 1)
    assert replicated + slots == 10


@pytest.mark.parametrize(
    ("ep", "shared_copies", "pool", "slots"),
    [
        (320, 32, 288, 1),  # 256 routed + 32 redundant + 32 shared copies
        (288, 32, 256, 1),
        (144, 0, 144, 2),
        (32, 0, 32, 9),
        (256, 0, 256, 1),
        (1, 0, 1, 288),
        (768, 80, 688, 1),
    ],
)
def test_placements(ep, shared_copies, pool, slots):
    assert place(ep) == (shared_copies, pool, slots)


@pytest.mark.parametrize("redundant", [0, 32, 256])
def test_every_routed_expert_has_a_slot_at_every_ep(redundant):
    shared, pool, slots = place(EVERY_EP, redundant=redundant)
    assert np.all(pool >= 1)
    assert np.all(pool * slots >= 256)
    assert np.all(slots >= 1)
    assert np.all(slots == np.round(slots))
    assert np.all(shared % R1["dies_per_node"] == 0)


def test_redundancy_holds_until_there_is_one_expert_per_die():
    _, pool, slots = place(EVERY_EP)
    several = slots > 1
    assert np.all((pool * slots)[several] >= 288)
    assert np.all((pool * (slots - 1))[several] < 288)
    assert np.array_equal(several, pool < 256)


def test_shared_copies_are_a_fair_share_of_the_dies():
    shared, _, _ = place(EVERY_EP)
    fair = EVERY_EP / 9
    assert np.all(shared[EVERY_EP <= 256] == 0)
    assert np.all((shared <= fair) & (fair < shared + 16) | (EVERY_EP <= 256))


def test_rows_are_conserved_over_the_pool():
    _, pool, _ = place(EVERY_EP)
    rows = expert_rows(96, EVERY_EP, top_k=8, pool_dies=pool, imbalance=1)
    np.testing.assert_allclose(rows * pool, EVERY_EP * 96 * 8, rtol=1e-12)


def test_rows_are_those_that_a_loop_over_tokens_sends():
    ep, tokens, top_k, pool = 6, 5, 2, 4
    rows = [0] * pool
    picks = itertools.cycle(range(pool))
    for _ in range(ep * tokens * top_k):
        rows[next(picks)] += 1
    assert max(rows) == expert_rows(tokens, ep, top_k=top_k, pool_dies=pool, imbalance=1)
    rows[0], rows[1] = rows[0] + rows[1], 0
    mean = sum(rows) / pool
    assert max(rows) == expert_rows(tokens, ep, top_k=top_k, pool_dies=pool, imbalance=max(rows) / mean)


@given(tokens=st.floats(0, 1e5), ep=st.integers(1, 768), imbalance=st.floats(1, 4), more=st.floats(0, 1e5))
def test_rows_grow_with_tokens_and_imbalance(tokens, ep, imbalance, more):
    _, pool, _ = place(ep)
    rows = expert_rows(tokens, ep, top_k=8, pool_dies=pool, imbalance=imbalance)
    assert expert_rows(tokens + more, ep, top_k=8, pool_dies=pool, imbalance=imbalance) >= rows
    assert rows >= expert_rows(tokens, ep, top_k=8, pool_dies=pool, imbalance=1)


@pytest.mark.parametrize(
    ("slots", "choices", "draws"), [(1, 2, 3), (2, 4, 1), (2, 6, 4), (3, 3, 5), (4, 4, 0)]
)
def test_experts_touched_is_the_mean_over_all_outcomes(slots, choices, draws):
    outcomes = list(itertools.product(range(choices), repeat=draws))
    touched = [len({pick for pick in outcome if pick < slots}) for outcome in outcomes]
    by_hand = sum(touched) / len(outcomes)
    assert experts_touched(slots, draws, choices=choices) == pytest.approx(by_hand, rel=1e-12)


@given(slots=st.integers(1, 288), others=st.integers(0, 500), draws=st.integers(1, 10**6))
def test_experts_touched_is_bounded(slots, others, draws):
    choices = slots + others
    if choices == 1:
        choices = 2
    touched = experts_touched(slots, draws, choices=choices)
    assert 0 < touched <= slots
    assert touched <= draws * slots / choices * (1 + 1e-9)
    assert experts_touched(slots, 2 * draws, choices=choices) >= touched


def test_experts_touched_at_the_ends():
    assert experts_touched(9, 0, choices=288) == 0
    assert experts_touched(9, 1, choices=288) == pytest.approx(9 / 288)
    assert experts_touched(9, 1e6, choices=288) == 9
    assert experts_touched(1, 1, choices=1) == 1


def test_distinct_picks_of_a_router_change_the_count_by_less_than_two_percent():
    """What the docstring claims of its independence, by the exact count for top-8 of 256."""
    for tokens in range(1, 65):
        distinct = 9 * (1 - math.comb(255, 8) ** tokens / math.comb(256, 8) ** tokens)
        assert experts_touched(9, 8 * tokens, choices=256) == pytest.approx(distinct, rel=0.02)
