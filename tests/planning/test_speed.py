"""Guards against another order of magnitude; the bars themselves are measured in ``benchmarks/``."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest

from cm384model.planning import space
from cm384model.planning.request import Request, Slo
from cm384model.planning.search import plan_case


def test_the_default_plan_takes_seconds(case):
    started = time.process_time()
    result = plan_case(case, Request(384, Slo(0.05, 2.0)))
    assert time.process_time() - started < 5.0
    assert result.candidates >= 2_000_000
    assert result.feasible
    assert len(result.plans) == 5


def peak_of_walk(sizes):
    """Most memory that a walk over a space of cheap candidates holds at once. [B]"""

    def evaluate(a, b, c):
        cost = a * b / (1 + c)
        columns = dict.fromkeys(("npus", "tpot", "delay", "free", "alone", "prompts"), cost)
        return space.Slice(columns | {"rate": 1 / cost}, {"hbm": cost < 0, "tpot": cost < 0})

    axes = {name: np.arange(1.0, size + 1) for name, size in zip("abc", sizes, strict=True)}
    tracemalloc.start()
    found = space.explore(axes, "b", ("c",), evaluate)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.evaluated == found.size == np.prod(sizes)
    return peak


@pytest.mark.parametrize("wider", [(1600, 64, 50), (200, 512, 50)])
def test_memory_does_not_grow_with_the_space(wider):
    small = peak_of_walk((200, 64, 50))
    assert peak_of_walk(wider) < 1.5 * small
