"""The chain of draft tokens, against every way it can go."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm384model.laws.mtp import expected_tokens, time_per_output_token

SHARE = st.floats(0, 1)


def chain(draft_tokens, acceptance):
    """Mean tokens of an iteration: each draft is right or wrong, the first wrong one ends the chain."""
    mean = 0.0
    for outcome in itertools.product([True, False], repeat=draft_tokens):
        chance = np.prod([acceptance if right else 1 - acceptance for right in outcome])
        accepted = sum(1 for _ in itertools.takewhile(bool, outcome))
        mean += chance * (1 + accepted)
    return mean


@given(draft_tokens=st.integers(0, 4), acceptance=SHARE)
def test_is_the_mean_over_every_outcome_of_the_chain(draft_tokens, acceptance):
    assert expected_tokens(draft_tokens, acceptance) == pytest.approx(
        chain(draft_tokens, acceptance), rel=1e-12
    )


@pytest.mark.parametrize("acceptance", [0.3, 0.7, 0.95])
@pytest.mark.parametrize("draft_tokens", [0, 1, 2, 3, 4])
def test_is_what_a_simulated_chain_yields(draft_tokens, acceptance):
    random = np.random.default_rng(1)
    right = random.random((200_000, draft_tokens)) < acceptance
    accepted = np.cumprod(right, axis=1).sum(axis=1)
    assert expected_tokens(draft_tokens, acceptance) == pytest.approx(1 + accepted.mean(), rel=0.01)


@given(draft_tokens=st.integers(0, 4), acceptance=st.floats(0, 0.999))
def test_is_the_geometric_sum(draft_tokens, acceptance):
    closed = (1 - acceptance ** (draft_tokens + 1)) / (1 - acceptance)
    assert expected_tokens(draft_tokens, acceptance) == pytest.approx(closed, rel=1e-9)


@given(draft_tokens=st.integers(0, 3), acceptance=SHARE, more=SHARE)
def test_more_drafts_and_better_drafts_never_yield_less(draft_tokens, acceptance, more):
    tokens = expected_tokens(draft_tokens, acceptance)
    assert 1 <= tokens <= 1 + draft_tokens
    assert expected_tokens(draft_tokens + 1, acceptance) >= tokens
    assert expected_tokens(draft_tokens, max(acceptance, more)) >= tokens


def test_the_ends():
    assert expected_tokens(0, 0.7) == expected_tokens(3, 0.0) == 1
    assert [expected_tokens(k, 1.0) for k in range(5)] == [1, 2, 3, 4, 5]
    assert expected_tokens(1, 0.7) == pytest.approx(1.7)


@given(step=st.floats(1e-6, 10), draft_tokens=st.integers(0, 3), acceptance=SHARE)
def test_tpot_shares_a_step_among_its_tokens(step, draft_tokens, acceptance):
    tokens = expected_tokens(draft_tokens, acceptance)
    tpot = time_per_output_token(step, tokens)
    assert tpot * tokens == pytest.approx(step, rel=1e-12)
    assert tpot <= step
