import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm384model.laws.vector import shared_bandwidth, stream_time

DIE = {
    "bandwidth": 1600e9,
    "efficiency": 0.88,
    "launch_latency": 3.3e-6,
    "core_latency": 0.23e-6,
    "cores": 48,
}
COUNT = st.integers(1, 10**5)


def test_an_array_is_a_loop_of_scalars():
    rows, width = np.array([1.0, 48.0, 49.0, 4096.0])[:, None], np.array([1024.0, 49152.0])
    whole = stream_time(rows, width, 3, **DIE)
    for where in np.ndindex(whole.shape):
        one = stream_time(float(rows[where[0], 0]), float(width[where[1]]), 3, **DIE)
        assert whole[where] == pytest.approx(one, rel=1e-12)
    shares = np.array([0.25, 0.5, 1.0])
    loop = [shared_bandwidth(1600e9, float(share), exponent=0.43) for share in shares]
    assert shared_bandwidth(1600e9, shares, exponent=0.43) == pytest.approx(loop, rel=1e-12)


@given(rows=COUNT, width=COUNT, kernels=COUNT, more=COUNT)
def test_more_work_never_takes_less(rows, width, kernels, more):
    time = stream_time(rows, width, kernels, **DIE)
    assert stream_time(rows + more, width, kernels, **DIE) >= time
    assert stream_time(rows, width + more, kernels, **DIE) >= time
    assert stream_time(rows, width, kernels + more, **DIE) > time


def test_kernels_one_after_the_other_add_up():
    together = stream_time(256, 1000 + 3000, 2, **DIE)
    apart = stream_time(256, 1000, 1, **DIE) + stream_time(256, 3000, 1, **DIE)
    assert together == pytest.approx(apart, rel=1e-12)


def test_one_row_is_a_launch_and_many_rows_are_a_stream():
    assert stream_time(1, 0, 1, **DIE) == pytest.approx(3.53e-6)
    rows, width = 1e12, 12288
    assert rows * width / stream_time(rows, width, 1, **DIE) == pytest.approx(0.88 * 1600e9, rel=1e-6)


def test_rows_beyond_the_cores_start_no_further_core():
    free = DIE | {"bandwidth": np.inf}
    assert stream_time(4096, 1024, 1, **free) == stream_time(48, 1024, 1, **free)


@pytest.mark.parametrize(
    ("rows", "width", "measured"),
    [(3, 49152, 3.84e-6), (256, 49152, 22.44e-6), (1365, 24576, 40.69e-6), (256, 110592, 32.17e-6)],
)
def test_norms_and_permutation_on_a_die_within_a_fifth(rows, width, measured):
    assert stream_time(rows, width, 1, **DIE) == pytest.approx(measured, rel=0.2)


@given(share=st.floats(0.01, 1), exponent=st.floats(0, 1))
def test_a_share_of_the_cores_draws_at_least_its_share_of_the_bandwidth(share, exponent):
    drawn = shared_bandwidth(1.0, share, exponent=exponent)
    assert share * (1 - 1e-12) <= drawn <= 1


def test_all_cores_draw_the_whole_bandwidth():
    assert shared_bandwidth(1600e9, 1.0, exponent=0.43) == 1600e9


@pytest.mark.parametrize(("half", "whole"), [(118, 91.8), (18, 14.2), (18.7, 14.6), (20.1, 16.3)])
def test_memory_bound_operators_on_half_the_cores(half, whole):
    slower = 1 / shared_bandwidth(1.0, 0.5, exponent=0.43)
    assert 3 + (whole - 3) * slower == pytest.approx(half, rel=0.05)
