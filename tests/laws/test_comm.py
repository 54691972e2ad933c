"""The communication laws: limits, monotony, hand calculation, arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm384model.laws import comm, exchange

US, NS, GB = 1e-6, 1e-9, 1e9

EXCHANGE = {"floor": 42.6 * US, "per_message": 37 * NS, "per_peer": 70 * NS, "bandwidth": 135 * GB}
MESH = {"latency": 2 * US, "per_doubling": 1 * US, "link_bandwidth": 120 * GB, "bandwidth": 200 * GB}
SWITCH = {"staging_bandwidth": 50 * GB, "switch_bytes": 512 * 1024, "switch_latency": 80 * US}
STEPPED = [comm.all_gather_time, comm.reduce_scatter_time, comm.all_reduce_time]
COLLECTIVES = [(law, MESH | SWITCH) for law in STEPPED] + [(comm.all_to_all_time, MESH)]
COLLECTIVE_BYTES = [
    comm.all_gather_bytes,
    comm.reduce_scatter_bytes,
    comm.all_reduce_bytes,
    comm.all_to_all_bytes,
]

RANKS = np.array([1, 2, 3, 4, 8, 16, 32, 160, 320, 768])
SIZES = np.geomspace(1e3, 512e6, 40)


def increasing(values) -> bool:
    return bool(np.all(np.diff(values) > 0))


def test_distinct_destinations_by_hand():
    assert exchange.distinct_destinations(1, 8) == 1
    assert exchange.distinct_destinations(2, 2) == pytest.approx(1.5)
    assert exchange.distinct_destinations(8, 8) == pytest.approx(8 * (1 - (7 / 8) ** 8))


@given(ep=st.integers(1, 768), destinations=st.integers(1, 16))
def test_distinct_destinations_never_exceeds_group_or_picks(ep, destinations):
    distinct = exchange.distinct_destinations(ep, destinations)
    assert 1 - 1e-9 <= distinct <= min(ep, destinations) * (1 + 1e-9)


def test_exchange_time_by_hand():
    by_hand = 42.6e-6 + 7 * 70e-9 + 128 * (8 * 37e-9 + 5.251127 * 7680 / 135e9)
    assert exchange.exchange_time(128, 8, 8, 7680, **EXCHANGE) == pytest.approx(by_hand, rel=1e-6)


def test_group_of_one_exchanges_nothing():
    assert exchange.exchange_bytes(128, 8, 7680, 1) == 0
    local = EXCHANGE["floor"] + 128 * 8 * EXCHANGE["per_message"]
    assert exchange.exchange_time(128, 1, 8, 7680, **EXCHANGE) == pytest.approx(local)
    slow = EXCHANGE | {"bandwidth": 1.0, "per_peer": 1.0}
    assert exchange.exchange_time(128, 1, 8, 7680, **slow) == pytest.approx(local)


def test_empty_exchange_costs_floor_and_peers():
    assert exchange.exchange_time(0, 32, 8, 7680, **EXCHANGE) == pytest.approx(42.6e-6 + 31 * 70e-9)


def test_exchange_is_monotone():
    assert increasing(exchange.exchange_time(np.arange(1, 500), 32, 8, 7680, **EXCHANGE))
    assert increasing(exchange.exchange_time(128, RANKS, 8, 7680, **EXCHANGE))
    assert increasing(exchange.exchange_time(128, 32, np.arange(1, 17), 7680, **EXCHANGE))
    assert increasing(exchange.exchange_time(128, 32, 8, np.arange(1e3, 2e4, 1e3), **EXCHANGE))
    assert increasing(exchange.exchange_bytes(128, 8, 7680, RANKS))


def test_exchange_reaches_a_plateau_when_peers_are_free():
    times = exchange.exchange_time(128, 2 ** np.arange(1, 16), 8, 7680, **EXCHANGE | {"per_peer": 0})
    assert increasing(times)
    assert np.all(np.diff(times)[3:] < np.diff(times)[2:-1])
    plateau = EXCHANGE["floor"] + 128 * 8 * (EXCHANGE["per_message"] + 7680 / EXCHANGE["bandwidth"])
    assert times[-1] == pytest.approx(plateau, rel=1e-3)
    assert np.all(times < plateau)


def test_mixed_bandwidth_lies_between_its_two_fabrics():
    fabrics = {"near_ranks": 8, "near_bandwidth": 160e9, "far_bandwidth": 50e9}
    bandwidths = exchange.mixed_bandwidth(np.array([1, 4, 8, 16, 64, 100_000]), **fabrics)
    assert bandwidths[:3] == pytest.approx([160e9] * 3)
    assert increasing(-bandwidths[2:])
    assert bandwidths[-1] == pytest.approx(50e9, rel=1e-3)


@pytest.mark.parametrize("sent", COLLECTIVE_BYTES)
def test_collective_bytes(sent):
    assert sent(4e6, 1) == 0
    assert increasing(sent(4e6, RANKS))
    assert increasing(sent(SIZES, 8))


def test_all_reduce_sends_a_reduce_scatter_and_an_all_gather():
    shard = 4e6 / 8
    both = comm.reduce_scatter_bytes(shard, 8) + comm.all_gather_bytes(shard, 8)
    assert comm.all_reduce_bytes(4e6, 8) == pytest.approx(both)


@pytest.mark.parametrize(("law", "constants"), COLLECTIVES)
def test_collective_time_is_zero_in_a_group_of_one(law, constants):
    assert law(4e6, 1, **constants) == 0


@pytest.mark.parametrize(("law", "constants"), COLLECTIVES)
def test_collective_time_grows_with_bytes(law, constants):
    assert increasing(law(SIZES, 2, **constants))
    assert increasing(law(SIZES, 16, **constants))


@pytest.mark.parametrize("law", [comm.all_gather_time, comm.reduce_scatter_time])
def test_gather_and_scatter_grow_with_ranks(law):
    assert increasing(law(4e6, RANKS, **MESH | SWITCH))


def test_collective_times_by_hand():
    assert comm.all_gather_time(4e6, 2, **MESH, **SWITCH) == pytest.approx(83e-6 + 4e6 / 120e9)
    assert comm.all_gather_time(4e5, 16, **MESH, **SWITCH) == pytest.approx(
        6e-6 + 4e5 / 50e9 + 15 * 4e5 / 200e9
    )
    assert comm.reduce_scatter_time(4e6, 16, **MESH, **SWITCH) == pytest.approx(86e-6 + 15 * 4e6 / 200e9)
    assert comm.all_reduce_time(4e6, 16, **MESH, **SWITCH) == pytest.approx(86e-6 + 2 * 15 / 16 * 4e6 / 200e9)
    assert comm.all_to_all_time(4e6, 16, **MESH) == pytest.approx(6e-6 + 15 / 16 * 4e6 / 200e9)


@pytest.mark.parametrize("law", STEPPED)
def test_protocol_changes_just_above_the_switch(law):
    at, above = law(np.array([512 * 1024, 512 * 1024 + 1]), 8, **MESH, **SWITCH)
    step = SWITCH["switch_latency"] - SWITCH["switch_bytes"] / SWITCH["staging_bandwidth"]
    assert above - at == pytest.approx(step, rel=1e-3)


def test_large_messages_never_beat_the_bandwidth():
    for (law, constants), sent in zip(COLLECTIVES[:3], COLLECTIVE_BYTES[:3], strict=True):
        assert np.all(law(SIZES, 8, **constants) > sent(SIZES, 8) / constants["bandwidth"])


def test_point_to_point_by_hand():
    assert comm.point_to_point_time(1e9, latency=2e-6, bandwidth=50e9) == pytest.approx(0.020002)
    assert comm.point_to_point_time(0, latency=2e-6, bandwidth=50e9) == 2e-6


@pytest.mark.parametrize(("law", "constants"), COLLECTIVES)
def test_collective_grid_equals_scalars(law, constants):
    grid = law(SIZES[:, None], RANKS[None, :], **constants)
    assert grid.shape == (len(SIZES), len(RANKS))
    scalars = [[law(float(size), int(n), **constants) for n in RANKS] for size in SIZES]
    assert all(isinstance(value, float) for row in scalars for value in row)
    np.testing.assert_allclose(grid, scalars, rtol=1e-12)


def test_exchange_grid_equals_scalars():
    tokens = np.array([1, 3, 48, 128])
    for law in (
        lambda n, ep: exchange.exchange_time(n, ep, 8, 7680, **EXCHANGE),
        lambda n, ep: exchange.exchange_bytes(n, 8, 7680, ep),
    ):
        scalars = [[law(int(n), int(ep)) for ep in RANKS] for n in tokens]
        assert all(isinstance(value, float) for row in scalars for value in row)
        np.testing.assert_allclose(law(tokens[:, None], RANKS[None, :]), scalars, rtol=1e-12)
