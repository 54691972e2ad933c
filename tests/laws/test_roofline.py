"""The roofline of one operator: its two classical ends and everything between."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm384model.laws.roofline import busy_share, roofline_time

TIME = st.floats(0, 1e3)
SHARE = st.floats(0, 1)


@given(compute=TIME, memory=TIME)
def test_full_overlap_is_the_textbook_roofline(compute, memory):
    assert roofline_time(compute, memory, overlap=1, launch_latency=0) == max(compute, memory)


@given(compute=TIME, memory=TIME)
def test_no_overlap_is_the_sum(compute, memory):
    serial = roofline_time(compute, memory, overlap=0, launch_latency=0)
    assert serial == pytest.approx(compute + memory, rel=1e-15)


@given(compute=TIME, memory=TIME, overlap=SHARE, launch=TIME)
def test_lies_between_its_ends_and_does_not_care_about_order(compute, memory, overlap, launch):
    time = roofline_time(compute, memory, overlap=overlap, launch_latency=launch)
    assert launch + max(compute, memory) <= time * (1 + 1e-15)
    assert time <= (launch + compute + memory) * (1 + 1e-15)
    assert time == roofline_time(memory, compute, overlap=overlap, launch_latency=launch)


@given(compute=TIME, memory=TIME, overlap=SHARE, launch=TIME, more=TIME)
def test_more_of_anything_takes_longer_and_more_overlap_does_not(compute, memory, overlap, launch, more):
    time = roofline_time(compute, memory, overlap=overlap, launch_latency=launch)
    slack = time * (1 - 1e-15)
    assert roofline_time(compute + more, memory, overlap=overlap, launch_latency=launch) >= slack
    assert roofline_time(compute, memory + more, overlap=overlap, launch_latency=launch) >= slack
    assert roofline_time(compute, memory, overlap=overlap, launch_latency=launch + more) >= slack
    assert slack <= roofline_time(compute, memory, overlap=overlap / 2, launch_latency=launch)


def test_an_empty_operator_costs_its_launch():
    assert roofline_time(0, 0, overlap=0.5, launch_latency=4e-6) == 4e-6


@given(tasks=st.integers(1, 500), cores=st.integers(1, 48))
def test_whole_waves_of_tasks(tasks, cores):
    """A loop that hands out tasks, one to a core, wave after wave."""
    waves, left = 0, tasks
    while left > 0:
        waves, left = waves + 1, left - cores
    assert busy_share(tasks, cores) == pytest.approx(tasks / (waves * cores))
    assert busy_share(tasks * cores, cores) == 1
