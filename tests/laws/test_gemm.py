"""The GEMM laws against loops, limits and steps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm384model.laws.gemm import gemm_bytes, gemm_compute_time, gemm_flop, gemm_memory_time
from cm384model.laws.roofline import roofline_time

CUBE = {
    "flop_rate": 752e12,
    "cores": 24,
    "row_quantum": 16,
    "tile_m": 128,
    "tile_n": 128,
    "fill_depth": 124,
    "efficiency": 0.915,
}
INT8 = {"activation_bytes": 1, "weight_bytes": 1, "output_bytes": 6}
TRAFFIC = INT8 | {"bandwidth": 1600e9, "efficiency": 1.0}

LAWS = [(gemm_flop, {}), (gemm_bytes, INT8), (gemm_compute_time, CUBE), (gemm_memory_time, TRAFFIC)]
SHAPE = st.tuples(st.floats(0.25, 9000), st.integers(1, 20000), st.integers(1, 20000), st.integers(1, 64))


@pytest.mark.parametrize(("law", "constants"), LAWS)
def test_an_array_is_a_loop_of_scalars(law, constants):
    m = np.array([0.5, 1, 16, 17, 128, 129, 4096.0])[:, None, None]
    n = np.array([100, 2048, 7168])[:, None]
    k = np.array([64, 7168])
    grid = law(m, n, k, 8, **constants)
    assert grid.shape == (7, 3, 2)
    for index in np.ndindex(grid.shape):
        a, b, c = float(m[index[0], 0, 0]), int(n[index[1], 0]), int(k[index[2]])
        assert law(a, b, c, 8, **constants) == pytest.approx(grid[index], rel=1e-12)


@pytest.mark.parametrize(("law", "constants"), LAWS)
@given(shape=SHAPE, axis=st.integers(0, 3), more=st.integers(1, 5000))
def test_more_work_never_costs_less(law, constants, shape, axis, more):
    larger = [size + more * (i == axis) for i, size in enumerate(shape)]
    assert law(*larger, **constants) >= law(*shape, **constants)


@pytest.mark.parametrize(("m", "n", "k", "groups"), [(1, 1, 1, 1), (2, 3, 5, 1), (4, 3, 2, 6)])
def test_flop_and_bytes_are_what_a_loop_counts(m, n, k, groups):
    flop, read, written = 0, set(), set()
    for g in range(groups):
        for i in range(m):
            for j in range(n):
                for depth in range(k):
                    read |= {("a", g, i, depth), ("w", g, j, depth)}
                    flop += 2
                written.add((g, i, j))
    size = {"a": 1, "w": 0.5}
    traffic = sum(size[kind] for kind, *_ in read) + 2 * len(written)
    assert gemm_flop(m, n, k, groups) == flop
    counted = gemm_bytes(m, n, k, groups, activation_bytes=1, weight_bytes=0.5, output_bytes=2)
    assert counted == traffic


def test_memory_time_is_the_traffic_at_the_sustained_bandwidth():
    traffic = gemm_bytes(96, 7168, 16384, 3, **INT8)
    time = gemm_memory_time(96, 7168, 16384, 3, **INT8, bandwidth=1600e9, efficiency=0.8)
    assert time == pytest.approx(traffic / 1280e9)


def test_a_large_product_reaches_the_asymptotic_rate():
    m, n, k = 128 * 240, 128 * 240, 10**6
    floor = gemm_flop(m, n, k, 1) / (CUBE["efficiency"] * CUBE["flop_rate"])
    assert gemm_compute_time(m, n, k, 1, **CUBE) == pytest.approx(floor, rel=2e-4)


@given(shape=SHAPE)
def test_padding_and_waves_only_add_time(shape):
    floor = gemm_flop(*shape) / (CUBE["efficiency"] * CUBE["flop_rate"])
    assert gemm_compute_time(*shape, **CUBE) >= floor * (1 - 1e-12)


def test_rows_below_the_quantum_cost_as_many_as_the_quantum():
    times = gemm_compute_time(np.array([0.1, 1, 15.5, 16, 17, 32]), 7168, 7168, 1, **CUBE)
    assert np.all(times[:4] == times[0])
    assert times[4] == times[5] == pytest.approx(2 * times[0])


def test_few_rows_do_not_pay_for_a_full_tile():
    few, full = gemm_compute_time(np.array([16, 128]), 3072, 7168, 1, **CUBE)
    assert full == pytest.approx(8 * few)


@pytest.mark.parametrize("mean", [400, 1000, 1185.5])
def test_rows_that_vary_cost_the_mean_over_a_tile_of_them(mean):
    """Rows one by one, spread evenly over one tile around their mean; one column of tiles on one core."""
    one_core = CUBE | {"cores": 1}
    rows = mean - 64 + (np.arange(128) + 0.5)
    each = gemm_compute_time(np.ceil(rows), 128, 4096, 1, **one_core)
    counted = 2 * 128 * 128 * (4096 + CUBE["fill_depth"]) / (CUBE["efficiency"] * CUBE["flop_rate"])
    varying = gemm_compute_time(mean, 128, 4096, 1, **one_core, rows_vary=1)
    assert varying == pytest.approx(np.mean(each) + counted / 2, rel=0.01)  # and half of the last wave


def test_rows_that_vary_step_nowhere():
    rows = np.linspace(0.5, 3000, 40_000)
    for groups in (1, 9):
        times = gemm_compute_time(rows, 4096, 7168, groups, **CUBE, rows_vary=1)
        steps = np.diff(times)
        assert steps.min() >= 0
        assert steps.max() < 0.002 * times[-1]
        whole = gemm_compute_time(rows, 4096, 7168, groups, **CUBE)
        assert np.diff(whole).max() > 0.03 * times[-1] / groups


@pytest.mark.parametrize(("tiles", "waves"), [(24, 1), (25, 2), (48, 2), (49, 3), (72, 3)])
def test_tiles_run_in_whole_waves(tiles, waves):
    one = gemm_compute_time(128, 128 * 24, 4096, 1, **CUBE)
    for m, n, groups in [(128 * tiles, 128, 1), (128, 128 * tiles, 1), (128, 128, tiles)]:
        assert gemm_compute_time(m, n, 4096, groups, **CUBE) == pytest.approx(waves * one)
        counted = sum(1 for _ in range(0, groups * math.ceil(m / 128) * math.ceil(n / 128), 24))
        assert counted == waves


@pytest.mark.parametrize("tiles", [1, 6, 12, 23])
def test_less_than_a_wave_is_shared_by_all_cores(tiles):
    one = gemm_compute_time(128, 128 * 24, 4096, 1, **CUBE)
    assert gemm_compute_time(128, 128 * tiles, 4096, 1, **CUBE) == pytest.approx(tiles / 24 * one)


def test_the_fill_is_paid_once_per_tile():
    shallow, deep = gemm_compute_time(128, 3072, np.array([124, 124 * 3]), 1, **CUBE)
    assert deep == pytest.approx(2 * shallow)


def test_half_the_cores_take_twice_as_long_when_the_waves_are_whole():
    half = CUBE | {"cores": 12, "flop_rate": 376e12}
    whole = gemm_compute_time(4096, 6144, 4096, 1, **CUBE)
    assert gemm_compute_time(4096, 6144, 4096, 1, **half) == pytest.approx(2 * whole)


@pytest.mark.parametrize(
    ("groups", "m", "n", "k", "microseconds"),
    [
        (4, 7168, 4096, 4096, 1611),
        (4, 2048, 7168, 4096, 826),
        (4, 7168, 4096, 8192, 3094),
        (4, 2048, 7168, 8192, 1577),
        (8, 7168, 4096, 4096, 3214),
        (8, 2048, 7168, 4096, 1642),
    ],
)
def test_grouped_int8_products_of_table_10_of_zuo2025(groups, m, n, k, microseconds):
    compute = gemm_compute_time(m, n, k, groups, **CUBE | {"tile_n": 152})
    memory = gemm_memory_time(m, n, k, groups, **TRAFFIC)
    time = roofline_time(compute, memory, overlap=0.716, launch_latency=13.8e-6)
    assert time == pytest.approx(microseconds * 1e-6, rel=0.02)
