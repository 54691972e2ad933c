from __future__ import annotations

import heapq

import pytest

from cm384model.laws.colocated import colocated_decode_time, request_rate, wave_ttft, waves_time


def simulated(slots, steps, prefill, step, prompts):
    """A closed loop, iteration by iteration: prefill goes first, then every running request takes a step.

    Returns the end of the run and, of every request, the times to the first and the last token.
    """
    clock, waiting, running, times = 0.0, [(0.0, i) for i in range(min(slots, prompts))], {}, {}
    started = len(waiting)
    heapq.heapify(waiting)
    while waiting or running:
        while waiting:
            arrived, i = heapq.heappop(waiting)
            clock += prefill
            running[i], times[i] = steps, [clock - arrived, 0.0]
        clock += step
        for i in list(running):
            running[i] -= 1
            if not running[i]:
                del running[i]
                times[i][1] = clock
                if started < prompts:
                    heapq.heappush(waiting, (clock, started))
                    started += 1
    return clock, list(times.values())


def test_by_hand():
    """64 other prompts at 0.1 s each beside 255 steps of 40 ms: 10.2 s of decode, 6.4 s of prefill."""
    time = colocated_decode_time(64, 255, prefill_time=0.1, step_time=0.04, overlap=0.0)
    assert time == pytest.approx(255 * 0.04 + 6.4)
    assert colocated_decode_time(64, 255, prefill_time=0.1, step_time=0.04, overlap=1.0) == pytest.approx(
        10.2
    )
    assert colocated_decode_time(64, 255, prefill_time=0.1, step_time=0.04, overlap=0.5) == pytest.approx(
        13.4
    )
    assert colocated_decode_time(64, 255, prefill_time=0.0, step_time=0.04, overlap=0.0) == pytest.approx(
        10.2
    )


def test_the_step_is_inflated_by_the_share_of_prefill():
    time = colocated_decode_time(8, 100, prefill_time=0.5, step_time=0.02, overlap=0.0)
    share = 8 * 0.5 / time
    assert time / 100 == pytest.approx(0.02 / (1 - share))


@pytest.mark.parametrize(("slots", "prompts"), [(4, 12), (4, 13), (5, 3), (1, 7), (8, 30)])
def test_waves_are_what_a_simulation_finds(slots, prompts):
    """Equal requests that start together: the end of the run, and the mean TTFT of the first wave."""
    steps, prefill, step = 50, 0.3, 0.02
    end, times = simulated(slots, steps, prefill, step, prompts)
    together = min(slots, prompts)

    def wave(requests):
        others = requests - 1
        return prefill + colocated_decode_time(
            others, steps, prefill_time=prefill, step_time=step, overlap=0.0
        )

    left = prompts % together
    run = waves_time(prompts, together, full_time=wave(together), last_time=wave(left))
    assert end == pytest.approx(run)
    first = [ttft for ttft, _ in times[:together]]
    assert sum(first) / together == pytest.approx(wave_ttft(together, prefill))


def test_a_steady_state_obeys_littles_law():
    """A long simulation in which slots start apart: requests per second are slots over their time."""
    slots, steps, prefill, step = 6, 60, 0.05, 0.02
    clock, left, done, seconds = 0.0, {i: 10 * (i + 1) for i in range(slots)}, 0, 0.0
    while done < 6000:
        ended = [i for i in left if left[i] == 0]
        for i in ended:
            clock += prefill
            left[i] = steps
            done += 1
        if ended:
            continue
        clock += step
        for i in left:
            left[i] -= 1
        seconds = clock
    time = colocated_decode_time(slots - 1, steps, prefill_time=prefill, step_time=step, overlap=0.0)
    assert request_rate(slots, prefill + time) == pytest.approx(done / seconds, rel=1e-3)
