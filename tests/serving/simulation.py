"""Discrete-event simulations of serving, written with simpy and without a look at the closed forms.

Prefill: instances serve batches from a queue they share, or each from a queue of its own to which
a router assigns prompts on arrival. Decode: a fixed number of slots, each refilled at once.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import simpy


class Queue:
    """Prompts that wait, and the instances that wait for prompts."""

    def __init__(self, env, needed):
        self.env, self.needed = env, needed
        self.waiting, self.idle = deque(), deque()

    def put(self):
        self.waiting.append(self.env.now)
        if self.idle and len(self.waiting) >= self.needed:
            self.idle.popleft().succeed()


def instance(env, queue, limit, batch_time, waits, times):
    """Serve for ever: take what waits up to the limit, or sleep until there is something."""
    while True:
        while len(queue.waiting) < queue.needed:
            wake = env.event()
            queue.idle.append(wake)
            yield wake
        size = min(limit, len(queue.waiting))
        begin, duration = env.now, batch_time(size)
        for _ in range(size):
            waits.append(begin - queue.waiting.popleft())
            times.append(waits[-1] + duration)
        yield env.timeout(duration)


def prefill(arrivals, instances, limit, batch_time, *, own_queues=False, full_batches=False, seed=0):
    """Waits, and times to the end of the batch, of prompts in the order in which they were served.

    The first twentieth is left out: the system starts empty.
    """
    env = simpy.Environment()
    queues = [Queue(env, limit if full_batches else 1) for _ in range(instances if own_queues else 1)]
    waits, times = [], []
    for number in range(instances):
        env.process(instance(env, queues[number % len(queues)], limit, batch_time, waits, times))
    chosen = np.random.default_rng(seed).integers(0, len(queues), len(arrivals)).tolist()

    def router():
        for gap, queue in zip(np.diff(arrivals, prepend=0.0).tolist(), chosen, strict=True):
            yield env.timeout(gap)
            queues[queue].put()

    env.process(router())
    env.run()  # ends when every prompt is served and every instance sleeps
    start = len(times) // 20
    return np.array(waits[start:]), np.array(times[start:])


def poisson_arrivals(rate, count, seed):
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count))


def decode_contexts(draw, slots, iterations, *, every, seed):
    """Contexts of all slots at every so many iterations, one row each; ``draw`` gives P and D.

    An iteration takes one unit of time. A request that starts at 0 has P tokens of context in its
    first iteration and P + D - 1 in its last.
    """
    env = simpy.Environment()
    random = np.random.default_rng(seed)
    prompt, begun, rows = np.zeros(slots), np.zeros(slots), []

    def slot(number):
        while True:
            length, outputs = draw(random)
            prompt[number], begun[number] = length, env.now
            yield env.timeout(outputs)

    def watch():
        yield env.timeout(0.5)
        while True:
            rows.append(prompt + np.floor(env.now - begun))
            yield env.timeout(every)

    for number in range(slots):
        env.process(slot(number))
    env.process(watch())
    env.run(until=iterations)
    return np.array(rows[len(rows) // 10 :])
