"""The best combinations over every hit rate of the context cache, each with the smallest pool."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cm384model.planning.caching import CacheLevels
from cm384model.planning.pairs import SAME_RATE, best_pools
from cm384model.planning.problem import Pools, Problem

SAME_POOL = 1e-9
"""A smaller pool may cost this part of the request rate. [-]"""


def best_with_cache(problem: Problem, levels: CacheLevels, sure: float = 0.0) -> tuple[Problem, Pools]:
    """`best_pools` over every hit rate, each combination then with the smallest pool that carries it.

    ``sure`` is a rate that every shown plan is known to reach. [1/s]

    Returns
    -------
    Problem, Pools
        The problem with the prefill options that matter, and the pools in its rows.
    """
    if levels.node is None:
        return problem, best_pools(problem)
    problem = within_reach(problem, sure)
    return problem, smallest_pools(problem, levels, best_pools(problem))


def within_reach(problem: Problem, sure: float = 0.0) -> Problem:
    """The problem without the prefill options that no shown plan can use.

    The best plans of one hit rate are also plans of the whole problem, so that nothing below the
    last of them is shown: an option has to serve that rate, or the one asked for, on what the
    leanest decode pool for it leaves, within the largest time left for prefill.
    """
    p, d = problem.prefill, problem.decode
    if not len(p) or not len(d):
        return problem
    if problem.request.objective == "throughput":
        floor = (sure or _sure_rate(problem)) * (1 - SAME_RATE)
    else:
        floor = float(problem.request.rate or 0.0)
    floor *= 1 - 1e-12
    left = problem.npus - (np.maximum(np.ceil(floor / d.rate * (1 - 1e-12)), 1) * d.npus).min()
    instances = left // p.npus
    able = np.flatnonzero(instances > 0)
    most = float(problem.budget(np.arange(len(d))).max())
    rows = able[problem.prefill_delay(floor, able, instances[able]) <= most]
    return replace(problem, prefill=p.take(rows))


def _sure_rate(problem: Problem) -> float:
    """A rate that every shown plan reaches: that of the last shown of the best single hit rate. [1/s]

    Up to a hit rate the rate rises with it, above it the pool limits the rate.
    """
    p, found = problem.prefill, 0.0
    reuse = np.unique(p.axes["reuse"])
    low, high = 0, len(reuse)
    while low < high:
        middle = high - 1 if high == len(reuse) else (low + high) // 2
        rows = np.flatnonzero(p.axes["reuse"] == reuse[middle])
        best = best_pools(replace(problem, prefill=p.take(rows)))
        if len(best) >= problem.request.top:
            found = max(found, float(best.rate.min()))
        limited = not len(best) or best.rate.max() >= p.most[rows[0]] * (1 - SAME_RATE)
        low, high = (low, middle) if limited else (middle + 1, high)
    return found


def smallest_pools(problem: Problem, levels: CacheLevels, pools: Pools) -> Pools:
    """Every combination with the prefill option that takes the fewest nodes of DRAM, then the quickest.

    Decode instances, NPUs and limits stay, and so does the rate but for `SAME_POOL`.
    """
    found = [_smallest(problem, levels, pools.take(np.array([row]))) for row in range(len(pools))]
    return Pools.joined(found)


def _smallest(problem: Problem, levels: CacheLevels, one: Pools) -> Pools:
    p, decode, own = problem.prefill, one.decode.astype(int), one.prefill.astype(int)
    lower = SAME_POOL if problem.request.objective == "throughput" else 0.0
    rate = float(one.rate[0]) * (1 - lower)
    nodes = levels.nodes(np.searchsorted(levels.reuse, p.axes["reuse"]), rate)
    left = float(one.npus[0] - one.decode_instances[0] * problem.decode.npus[decode[0]])
    rows = np.flatnonzero((p.npus <= left) & (nodes < nodes[own[0]]))
    instances = left // p.npus[rows]
    delay = problem.prefill_delay(rate, rows, instances)
    kept = delay <= float(problem.budget(decode)[0])
    if not kept.any():
        return one
    rows, instances, delay = rows[kept], instances[kept], delay[kept]
    best = np.lexsort((delay, nodes[rows]))[:1]
    ttft = delay[best] + problem.decode.transfer[decode] + problem.decode.delay[decode]
    total = one.npus - left + instances[best] * p.npus[rows[best]]
    return replace(
        one,
        prefill=rows[best],
        prefill_instances=instances[best],
        rate=np.array([rate]),
        npus=total,
        ttft=ttft,
    )
