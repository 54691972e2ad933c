"""Contexts in continuous batching: the closed forms against an independent simulation."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

from cm384model.laws.batching import (
    batch_context_percentile,
    context_variance,
    mean_context,
    mean_context_fixed,
    mean_square_context,
    slowest_die_context,
)

SLOTS = 96


def alike(random):
    """As good as equal; equal ones would keep their phases for ever."""
    return 400, random.integers(45, 56)


def uniform_geometric(random):
    """Lengths of the own verification in `facts/systems.md`, shortened tenfold."""
    return random.integers(20, 181), random.geometric(1 / 50)


def lognormal(random):
    return np.ceil(random.lognormal(5, 0.8)), np.ceil(random.lognormal(3.5, 0.7))


def correlated(random):
    """Long prompts bring long outputs."""
    prompt = random.integers(10, 500)
    return prompt, 1 + random.poisson(prompt / 5)


def moments(draw, count=150_000):
    """Mean, variance by the laws, from the moments of a large sample of requests."""
    random = np.random.default_rng(1)
    p, d = np.array([draw(random) for _ in range(count)], dtype=float).T
    theta = mean_context(d.mean(), (d**2).mean(), (p * d).mean())
    square = mean_square_context(
        d.mean(), (d**2).mean(), (d**3).mean(), (p * d).mean(), (p**2 * d).mean(), (p * d**2).mean()
    )
    return theta, context_variance(theta, square)


@pytest.mark.parametrize("draw", [alike, uniform_geometric, lognormal, correlated])
def test_moments_and_percentiles_of_running_batches(simulation, draw):
    contexts = simulation.decode_contexts(draw, SLOTS, 60_000, every=20, seed=384)
    theta, variance = moments(draw)
    batches = contexts.mean(axis=1)
    print(
        f"{draw.__name__}: "
        f"mean {contexts.mean():.1f} formula {theta:.1f} {theta / contexts.mean() - 1:+.2%}, "
        f"variance {contexts.var():.0f} formula {variance:.0f} {variance / contexts.var() - 1:+.2%}"
    )
    assert theta == pytest.approx(contexts.mean(), rel=0.02)
    assert np.sqrt(variance) == pytest.approx(contexts.std(), rel=0.02)
    for share in (0.05, 0.5, 0.95):
        percentile = batch_context_percentile(
            theta, variance, SLOTS, normal_quantile=NormalDist().inv_cdf(share)
        )
        assert percentile == pytest.approx(np.quantile(batches, share), rel=0.02)
    dies = batches[: len(batches) // 16 * 16].reshape(16, -1)  # far apart in time: independent
    assert slowest_die_context(theta, variance, SLOTS, 16) == pytest.approx(dies.max(axis=0).mean(), rel=0.02)


def test_the_naive_context_is_wrong(simulation):
    """Prompt plus half the mean output, which `issue 4` forbids, is far off for spread outputs."""
    contexts = simulation.decode_contexts(lognormal, SLOTS, 20_000, every=20, seed=5)
    random = np.random.default_rng(1)
    p, d = np.array([lognormal(random) for _ in range(50_000)], dtype=float).T
    assert mean_context_fixed(p.mean(), d.mean()) < 0.98 * contexts.mean()
