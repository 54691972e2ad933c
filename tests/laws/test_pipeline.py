from __future__ import annotations

import pytest

from cm384model.laws.pipeline import pipeline_time


def scheduled(times, stages):
    """End of a pipeline: a chunk starts when it has left the stage before and its own is free."""
    free = [0.0] * stages
    for time in times:
        ready = 0.0
        for stage in range(stages):
            free[stage] = ready = max(ready, free[stage]) + time
    return free[-1]


@pytest.mark.parametrize("stages", [1, 2, 4, 7])
@pytest.mark.parametrize("times", [[1.0], [0.5] * 8, [0.1, 0.2, 0.3, 0.4], [1.0, 1.0, 2.5]])
def test_it_is_what_a_schedule_finds(times, stages):
    """Equal chunks, and chunks that grow."""
    mean = sum(times) / len(times)
    found = pipeline_time(len(times), stages, chunk_time=mean, last_time=times[-1])
    assert found == pytest.approx(scheduled(times, stages))


def test_the_bubble():
    time = pipeline_time(8, 3, chunk_time=0.25, last_time=0.25)
    assert 1 - 8 * 0.25 / time == pytest.approx(2 / 10)
