"""Guards against another order of magnitude; the bars themselves are measured in ``benchmarks/``."""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import fields

import numpy as np
import pytest

from cm384model.planning import walk
from cm384model.planning.request import Request, Slo
from cm384model.planning.search import plan_case
from cm384model.prediction.evaluate import predict_decode


def test_a_plan_is_a_thousand_times_quicker_than_a_loop(case):
    at = {"ep": 320, "batch_per_die": 48}
    started = time.process_time()
    for _ in range(20):
        predict_decode(case, at)
    one = (time.process_time() - started) / 20
    started = time.process_time()
    result = plan_case(case, Request(384, Slo(0.05, 2.0)))
    whole = time.process_time() - started
    assert result.candidates >= 2_000_000
    assert whole < result.candidates * one / 1000
    assert result.feasible
    assert len(result.plans) == 5


def peak_of_walk(sizes):
    """Most memory that a walk over a space of cheap candidates holds at once. [B]"""

    def evaluate(a, b, c):
        cost = a * b / (1 + c)
        columns = dict.fromkeys((column.name for column in fields(walk.Options)[1:]), cost)
        return walk.Slice(columns | {"rate": 1 / cost}, {"hbm": cost < 0, "tpot": cost < 0})

    axes = {name: np.arange(1.0, size + 1) for name, size in zip("abc", sizes, strict=True)}
    tracemalloc.start()
    found = walk.explore(axes, "b", ("c",), evaluate)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.evaluated == found.size == np.prod(sizes)
    return peak


@pytest.mark.parametrize("wider", [(1600, 64, 50), (200, 512, 50)])
def test_memory_does_not_grow_with_the_space(wider):
    small = peak_of_walk((200, 64, 50))
    assert peak_of_walk(wider) < 1.5 * small
