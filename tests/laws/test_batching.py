"""Contexts of a running decode batch: by hand, by enumeration, and their limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm384model.laws.batching import (
    batch_context_percentile,
    context_variance,
    mean_context,
    mean_context_fixed,
    mean_square_context,
    slowest_die_context,
)

REQUESTS = st.lists(st.tuples(st.integers(1, 2000), st.integers(1, 300)), min_size=1, max_size=8)


def moments(requests):
    p, d = np.array(requests, dtype=float).T
    mean = {"d": d, "dd": d**2, "ddd": d**3, "pd": p * d, "ppd": p**2 * d, "pdd": p * d**2}
    return [float(term.mean()) for term in mean.values()]


@given(REQUESTS)
def test_moments_are_those_of_every_iteration_of_every_request(requests):
    contexts = np.concatenate([prompt + np.arange(output) for prompt, output in requests]).astype(float)
    d, dd, ddd, pd, ppd, pdd = moments(requests)
    theta = mean_context(d, dd, pd)
    square = mean_square_context(d, dd, ddd, pd, ppd, pdd)
    assert theta == pytest.approx(contexts.mean(), rel=1e-9)
    assert square == pytest.approx((contexts**2).mean(), rel=1e-9)
    assert context_variance(theta, square) == pytest.approx(contexts.var(), rel=1e-6, abs=1e-6 * square)


@given(prompt=st.integers(1, 200_000), output=st.integers(1, 50_000))
def test_equal_requests(prompt, output):
    assert mean_context(output, output**2, prompt * output) == pytest.approx(
        mean_context_fixed(prompt, output), rel=1e-9
    )


def test_geometric_outputs_hold_the_sum_of_the_means():
    """Without memory a request is always at the start of what is left: systems.md, 4.1, up to 1."""
    mean = 500.0
    square = 2 * mean**2 - mean
    assert mean_context(mean, square, 1000 * mean) == pytest.approx(1000 + mean - 1)


def test_the_verification_of_systems_md():
    """P uniform on 200..1800, D geometric with mean 500: theta 1499, nu about 465,000."""
    d = 500.0
    dd, ddd = 2 * d**2 - d, 6 * d**3 - 6 * d**2 + d
    p, pp = 1000.0, 1000.0**2 + (1601**2 - 1) / 12
    theta = mean_context(d, dd, p * d)
    nu = context_variance(theta, mean_square_context(d, dd, ddd, p * d, pp * d, p * dd))
    assert theta == pytest.approx(1499)
    assert nu == pytest.approx(465_447, rel=0.01)


@given(context=st.floats(1, 1e5), variance=st.floats(0, 1e8), batch=st.integers(1, 512))
def test_a_percentile_brackets_the_mean(context, variance, batch):
    low, high = (batch_context_percentile(context, variance, batch, normal_quantile=z) for z in (-1.6, 1.6))
    assert low <= context <= high
    assert high - context == pytest.approx(context - low, rel=1e-6, abs=1e-6 * context)


@pytest.mark.parametrize(
    ("dies", "deviation"), [(1, 0.0), (2, 0.56419), (3, 0.84628), (10, 1.53875), (100, 2.50759)]
)
def test_the_slowest_die_is_the_largest_of_normal_numbers(dies, deviation):
    """Expected maxima as tabulated by Harter (1961)."""
    assert slowest_die_context(0.0, 1.0, 1, dies) == pytest.approx(deviation, abs=2e-5)


def test_more_dies_wait_longer():
    contexts = slowest_die_context(1500.0, 465e3, 96, np.arange(1, 384))
    assert np.all(np.diff(contexts) > 0)
