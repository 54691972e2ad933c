"""Fetches from the memory pool: by hand, and their limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm384model.laws.caching import (
    block_transfer_time,
    cache_capacity_tokens,
    cache_traffic,
    cache_working_set,
    cold_start_time,
    mean_switch_time,
)

POOL = {"block_tokens": 128, "block_latency": 100e-6, "bandwidth": 147e9}
TIME = st.floats(0, 1e4)


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (128, 1), (129, 2), (4096, 32)])
def test_every_block_of_every_layer_is_fetched_on_its_own(tokens, blocks):
    by_hand = 0.0
    for _layer in range(3):
        for _block in range(blocks):
            by_hand += 100e-6
        by_hand += tokens * 1152 / 147e9
    assert block_transfer_time(tokens, 3, 1152, **POOL) == pytest.approx(by_hand, rel=1e-12)


def test_a_fetch_grows_with_tokens_and_never_beats_the_bandwidth():
    tokens = np.arange(0.0, 5000.0)
    times = block_transfer_time(tokens, 61, 1152, **POOL)
    assert np.all(np.diff(times) > 0)
    assert np.all(times >= tokens * 61 * 1152 / 147e9)


def test_a_cold_start_of_the_paper():
    """Zuo 2025, Table 2: 8 instances of 671 GB from a bucket of 2.5 GB/s; ~2,560 s (binary units)."""
    assert cold_start_time(8, 671e9, bandwidth=2.5e9) == pytest.approx(2560, rel=0.2)
    assert cold_start_time(1, 671e9, bandwidth=2.5e9) * 8 == cold_start_time(8, 671e9, bandwidth=2.5e9)


@given(hit=st.floats(0, 1), warm=TIME, cold=TIME)
def test_a_mean_lies_between_its_ends(hit, warm, cold):
    mean = mean_switch_time(hit, warm, cold)
    assert min(warm, cold) * (1 - 1e-12) <= mean <= max(warm, cold) * (1 + 1e-12)
    assert mean_switch_time(1, warm, cold) == warm
    assert mean_switch_time(0, warm, cold) == cold


def test_a_pool_counted_by_hand():
    """DeepSeek-R1 keeps 61 layers x 576 numbers of 2 bytes for a token."""
    token = 61 * 576 * 2
    assert cache_capacity_tokens(48, 1.5e12, 0.5, bytes_per_token=token) == pytest.approx(36e12 / token)
    assert cache_traffic(100, 4096, 0.25, bytes_per_token=token) == pytest.approx(100 * 1024 * token)


@given(hit=st.floats(0, 0.9))
def test_the_working_set_is_what_a_stream_leaves_behind(hit):
    """Ten requests per second, one second after the other, each token kept for three seconds."""
    kept = [10 * 1000 * (1 - hit) for _second in range(3)]
    assert cache_working_set(10, 1000, hit, 3) == pytest.approx(sum(kept))
