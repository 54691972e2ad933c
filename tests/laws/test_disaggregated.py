"""A run on two pools against an event loop."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm384model.laws.disaggregated import two_pool_run_time


def simulated(prompts, concurrency, *, interval, decode_time):
    """Prefill one by one, decode beside each other; a request that ends lets the next one in."""
    free_at, ends, clock, started = 0.0, [], 0.0, 0
    while started < prompts or ends:
        while started < prompts and len(ends) < concurrency:
            free_at = max(free_at, clock) + interval
            heapq.heappush(ends, free_at + decode_time)
            started += 1
        clock = heapq.heappop(ends)
    return clock


def law(prompts, concurrency, *, interval, decode_time, arrivals=0.0):
    return two_pool_run_time(
        prompts,
        concurrency,
        prefill_interval=interval,
        prefill_latency=interval,
        decode_time=decode_time,
        arrival_interval=arrivals,
    )


@given(
    concurrency=st.integers(2, 60),
    rounds=st.integers(1, 8),
    interval=st.floats(0.01, 2),
    decode_time=st.floats(0.5, 50),
)
def test_the_event_loop_takes_as_long(concurrency, rounds, interval, decode_time):
    prompts = concurrency * rounds
    there = simulated(prompts, concurrency, interval=interval, decode_time=decode_time)
    ours = law(prompts, concurrency, interval=interval, decode_time=decode_time)
    assert there <= ours * (1 + 1e-9)
    assert ours <= there + (rounds + 1) * interval + concurrency * interval


def test_a_busy_prefill_pool_and_slow_arrivals_set_the_pace():
    assert law(100, 50, interval=1.0, decode_time=10.0) == pytest.approx(110)
    assert law(100, 50, interval=0.1, decode_time=1.0, arrivals=2.0) == pytest.approx(200 + 0.1 + 1.0)
