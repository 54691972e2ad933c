"""Two pieces of work, hidden behind each other in part."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm384model.laws.overlap import overlapped_time
from cm384model.laws.roofline import roofline_time

TIME = st.floats(0, 1e3)
SHARE = st.floats(0, 1)


@given(first=TIME, second=TIME)
def test_the_ends(first, second):
    assert overlapped_time(first, second, overlap=0) == first + second
    assert overlapped_time(first, second, overlap=1) == pytest.approx(max(first, second), rel=1e-12)


@given(first=TIME, second=TIME, overlap=SHARE)
def test_hides_no_more_than_the_shorter_piece(first, second, overlap):
    time = overlapped_time(first, second, overlap=overlap)
    assert max(first, second) * (1 - 1e-12) <= time <= first + second
    assert first + second - time <= min(first, second) + 1e-12 * time


@given(first=TIME, second=TIME, overlap=SHARE)
def test_does_not_care_which_piece_comes_first(first, second, overlap):
    assert overlapped_time(first, second, overlap=overlap) == overlapped_time(second, first, overlap=overlap)


@given(first=TIME, second=TIME, overlap=SHARE, more=TIME)
def test_monotone(first, second, overlap, more):
    time = overlapped_time(first, second, overlap=overlap)
    assert overlapped_time(first + more, second, overlap=overlap) >= time * (1 - 1e-12)
    assert overlapped_time(first, second, overlap=overlap / 2) >= time


@given(first=TIME, overlap=SHARE)
def test_nothing_hides_behind_nothing(first, overlap):
    assert overlapped_time(first, 0.0, overlap=overlap) == first


@given(first=TIME, second=TIME, overlap=SHARE)
def test_is_the_roofline_of_two_streams(first, second, overlap):
    same = roofline_time(first, second, overlap=overlap, launch_latency=0)
    assert overlapped_time(first, second, overlap=overlap) == pytest.approx(same, rel=1e-12)
