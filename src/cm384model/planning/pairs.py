"""How many instances of which options: the exact optimum over every combination."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cm384model.numeric import Numeric
from cm384model.planning.problem import Pools, Problem

BISECTIONS = 44
"""Halvings of the interval of rates: the answer is exact to 1 part in 10^13. [-]"""

BOUND_STEPS = 12
"""Halvings for a bound. [-]"""

BUDGETS = 16
"""Budgets at which the rates of all prefill options are bounded, where budgets differ much. [-]"""

ROUND = 4
"""Halvings between two looks at which combinations can still win. [-]"""

BRANCHES = (16, 256)
"""Decode pools that are computed at once: few until the first rates are sure, then more. [-]"""


SAME_RATE = 1e-3
"""Rates that differ by less are the same to a planner: far below the model's own error. [-]"""


def best_pools(problem: Problem) -> Pools:
    """The best combinations first, at most ``top`` of them, each with another decode size.

    For a given rate: fewest NPUs or lowest TPOT first, then TPOT, NPUs and TTFT. For the highest
    rate: of all combinations within `SAME_RATE` of it the one with the lowest TPOT, then the
    fewest NPUs, then the highest rate, then the lowest TTFT. No feasible combination beats the
    first in rate, TPOT, NPUs and TTFT together: one that did would be in the same set and come
    before it.
    """
    if not len(problem.decode) or not len(problem.prefill):
        return Pools.joined([])
    if problem.request.objective == "throughput":
        return _most_rate(problem)
    return _at_rate(problem, float(problem.request.rate or 0.0))


# --- a given rate -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Staircase:
    """At one rate: the quickest prefill pool of each size, in the order of NPUs.

    A pool is left out when a smaller one is as quick.
    """

    npus: np.ndarray
    delay: np.ndarray
    option: np.ndarray
    instances: np.ndarray

    def smallest_within(self, budget: np.ndarray) -> np.ndarray:
        """Row of the smallest pool whose delay keeps each budget; past the end where none does.

        A rate that was halved to the budget itself keeps it whatever the last digit of a delay.
        """
        kept = self.delay[::-1] * (1 - 1e-12)
        return len(self.npus) - np.searchsorted(kept, budget, side="right")


def staircase(problem: Problem, rate: float, npus: float) -> Staircase:
    """The prefill pools worth having at ``rate`` within ``npus``."""
    p = problem.prefill
    option, instances = _counts(p.npus, npus)
    able = instances * p.rate[option] > rate
    option, instances = option[able], instances[able]
    delay = problem.prefill_delay(rate, option, instances)
    total = instances * p.npus[option]
    order = np.lexsort((delay, total))
    best = np.minimum.accumulate(delay[order])
    keep = np.isfinite(best) & (delay[order] < np.concatenate([[np.inf], best[:-1]]))
    rows = order[keep]
    return Staircase(total[rows], delay[rows], option[rows], instances[rows])


def _counts(each: np.ndarray, npus: float) -> tuple[np.ndarray, np.ndarray]:
    """Every option with every number of instances that fits ``npus``."""
    most = (npus // each).astype(int)
    option = np.repeat(np.arange(len(each)), most)
    first = np.repeat(np.cumsum(most) - most, most)
    return option, (np.arange(len(option)) - first + 1).astype(float)


def _at_rate(problem: Problem, rate: float) -> Pools:
    """Combinations that serve ``rate``: fewest NPUs, or lowest TPOT within the NPUs given."""
    decode = np.arange(len(problem.decode))
    decode = decode[problem.most_rate(decode) >= rate]
    instances = np.maximum(np.ceil(rate / problem.decode.rate[decode] * (1 - 1e-12)), 1.0)
    pools = _completed(problem, decode, instances, np.full(len(decode), rate))
    keys = (pools.ttft, pools.npus, pools.tpot)
    if problem.request.objective == "npus":
        keys = (pools.ttft, pools.tpot, pools.npus)
    return _distinct(problem, pools.take(np.lexsort(keys)), problem.request.top)


def _completed(problem: Problem, decode: np.ndarray, instances: np.ndarray, rate: np.ndarray) -> Pools:
    """The smallest, then quickest prefill pool for decode pools that serve given rates."""
    parts: list[Pools] = []
    used = instances * problem.decode.npus[decode]
    for value in np.unique(rate):
        rows = np.flatnonzero(rate == value)
        stairs = staircase(problem, float(value), problem.npus)
        step = stairs.smallest_within(problem.budget(decode[rows]))
        rows, step = rows[step < len(stairs.npus)], step[step < len(stairs.npus)]
        total = used[rows] + stairs.npus[step]
        fits = total <= problem.npus
        rows, step, total = rows[fits], step[fits], total[fits]
        option = decode[rows]
        ttft = stairs.delay[step] + problem.decode.transfer[option] + problem.decode.delay[option]
        parts.append(
            Pools(
                option,
                instances[rows],
                stairs.option[step],
                stairs.instances[step],
                rate[rows],
                problem.decode.tpot[option],
                total,
                ttft,
            )
        )
    return Pools.joined(parts)


# --- the highest rate -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rated:
    """Decode pools, as columns, and the highest rate that each reaches beside any prefill pool.

    ``offered`` is what the decode pool itself could serve; ``most`` bounds what an instance of
    each prefill option sustains beside any of them.
    """

    decode: np.ndarray
    instances: np.ndarray
    offered: np.ndarray
    rate: np.ndarray
    most: np.ndarray


def highest_rate(problem: Problem) -> float:
    """Requests per second of the best combination; zero where there is none. [1/s]"""
    if not len(problem.decode) or not len(problem.prefill):
        return 0.0
    return float(_rated(problem).rate.max(initial=0.0))


def _rated(problem: Problem) -> Rated:
    """The highest rates, by branch and bound.

    What is left of TTFT for prefill differs from one decode option to another. A prefill pool
    sustains no more than under a larger budget and no less than under a smaller one, so with the
    rates at a few budgets the rate of every combination is known within two bounds at once. Those
    with the highest upper bounds are computed exactly first; one whose upper bound is below what
    its decode size, or the ``top``-th best decode size, already reaches cannot be shown and is
    never computed.
    """
    decode, instances = _counts(problem.decode.npus, problem.npus - problem.prefill.npus.min())
    quickest = problem.prefill_delay(0.0, np.arange(len(problem.prefill)), 1.0).min()
    kept = problem.budget(decode) > quickest
    decode, instances = decode[kept], instances[kept]
    offered = np.minimum(instances * problem.decode.rate[decode], problem.most_rate(decode))
    if not len(decode):
        return Rated(decode, instances, offered, offered, np.zeros((1, len(problem.prefill))))
    left = problem.npus - instances * problem.decode.npus[decode]
    budgets, options = problem.budget(decode), np.arange(len(problem.prefill))
    levels = 1 if budgets.min() > 0.9 * budgets.max() else BUDGETS
    edges = np.sort(budgets)[np.linspace(0, len(budgets) - 1, levels + 1).astype(int)]
    found = [
        _halved(problem, options, np.full(len(options), edge), 0.0, problem.prefill.rate, BOUND_STEPS)
        for edge in edges
    ]
    least, most = (np.stack(rates) for rates in zip(*found, strict=True))
    level = np.clip(np.searchsorted(edges, budgets) - 1, 0, levels - 1)
    sizes, size = np.unique(left, return_inverse=True)
    rate, bound = (
        np.minimum(offered, _best_within(problem, sizes, side)[at, size])
        for side, at in ((least, level), (most, level + 1))
    )
    open_rows = np.flatnonzero(rate < bound)
    open_rows = open_rows[np.argsort(-bound[open_rows], kind="stable")]
    count, most_at_once = BRANCHES
    while True:
        floor = _floor(problem, decode, rate)
        open_rows = open_rows[bound[open_rows] >= floor[open_rows]]
        if not len(open_rows):
            return Rated(decode, instances, offered, rate, most[-1:])
        rows, open_rows, count = open_rows[:count], open_rows[count:], min(2 * count, most_at_once)
        exact = _sustained(
            problem, decode[rows], offered[rows], left[rows], floor[rows], most[level[rows] + 1]
        )
        rate[rows] = np.maximum(rate[rows], exact)


def _best_within(problem: Problem, npus: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Highest rate of a prefill pool within each number of NPUs, for each set of instance rates. [1/s]"""
    prefill = problem.prefill
    best = np.empty((len(rates), len(npus)))
    for i, size in enumerate(npus):  # one by one: thousands of NPUs at once do not fit the memory
        best[:, i] = np.max(np.minimum(np.floor(size / prefill.npus) * rates, prefill.most), axis=1)
    return best


def _floor(problem: Problem, decode: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """What each combination must reach to be shown, given the rates that are sure so far. [1/s]"""
    sizes, size = np.unique(problem.decode.npus[decode], return_inverse=True)
    best = np.zeros(len(sizes))
    np.maximum.at(best, size, rate)
    top = problem.request.top
    last = np.sort(best)[-top] if len(best) >= top else 0.0
    floor: np.ndarray = np.maximum(best[size], last) * (1 - SAME_RATE)
    return floor


def _most_rate(problem: Problem) -> Pools:
    """The best combination of all, then the best of the other decode sizes, and so on."""
    found = _rated(problem)
    decode, rate = found.decode, found.rate
    size, tpot = problem.decode.npus[decode], problem.decode.tpot[decode]
    ranked: list[Pools] = []
    left = np.flatnonzero(rate > 0)
    while len(left) and len(ranked) < problem.request.top:
        floor = (1 - SAME_RATE) * float(rate[left].max())
        same = left[rate[left] >= floor]
        same = same[tpot[same] == tpot[same].min()]
        best = _leanest(problem, decode[same], found.instances[same], found.offered[same], floor, found.most)
        ranked.append(best)
        left = left[size[left] != problem.decode.npus[int(best.decode[0])]]
    return Pools.joined(ranked)


def _leanest(
    problem: Problem,
    decode: np.ndarray,
    instances: np.ndarray,
    offered: np.ndarray,
    floor: float,
    most: np.ndarray,
) -> Pools:
    """Of decode pools of one TPOT: the fewest NPUs that serve ``floor``, and the most that they serve."""
    fewest = _completed(problem, decode, instances, np.full(len(decode), floor)).npus.min()
    room = fewest - instances * problem.decode.npus[decode]
    rate = _sustained(problem, decode, offered, room, np.full(len(decode), floor), most)
    rows = np.flatnonzero(rate >= floor * (1 - 1e-12))
    pools = _completed(problem, decode[rows], instances[rows], rate[rows])
    return pools.take(np.lexsort((pools.ttft, -pools.rate, pools.npus))[:1])


def _sustained(
    problem: Problem,
    decode: np.ndarray,
    offered: np.ndarray,
    left: np.ndarray,
    floor: np.ndarray,
    most: np.ndarray,
) -> np.ndarray:
    """Highest rate up to ``offered`` at which some prefill pool within ``left`` keeps the TTFT. [1/s]

    Zero where none reaches ``floor``; ``most`` bounds what an instance of each option sustains,
    beside each decode pool or beside any.
    """
    floor, npus, rate = floor * (1 - 1e-12), problem.prefill.npus, np.zeros(len(decode))
    carried, roomiest = problem.prefill.most, np.floor(left.max() / npus)
    highest = np.minimum(roomiest * most.max(axis=0), carried)
    worth = np.flatnonzero((roomiest > 0) & (highest >= floor.min()))
    instances = np.floor(left[:, np.newaxis] / npus[worth])
    highest = np.minimum(instances * most[:, worth], carried[worth])
    row, column = np.nonzero((highest >= floor[:, np.newaxis]) & (instances > 0))
    number, option, budget = instances[row, column], worth[column], problem.budget(decode[row])
    low, high = np.zeros(len(row)), problem.prefill.rate[option]
    limit = np.minimum(offered[row], carried[option])
    for _ in range(BISECTIONS // ROUND):
        low, high = _halved(problem, option, budget, low, high, ROUND)
        np.maximum.at(rate, row, np.minimum(limit, number * low))
        hopeful = np.minimum(limit, number * high) > np.maximum(rate, floor)[row]
        row, number, option, budget, limit, low, high = (
            column[hopeful] for column in (row, number, option, budget, limit, low, high)
        )
    return rate


def sustained_rate(problem: Problem, option: np.ndarray, budget: np.ndarray) -> np.ndarray:
    """Highest rate of one prefill instance whose delay keeps a budget. [1/s]

    Instances do not share a queue, so a pool sustains this times its instances. The delay rises
    with the rate: the rates that keep the budget are an interval from zero, and its end is found
    by bisection.
    """
    return _halved(problem, option, budget, 0.0, problem.prefill.rate[option], BISECTIONS)[0]


def _halved(
    problem: Problem, option: np.ndarray, budget: np.ndarray, low: Numeric, high: Numeric, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """A rate that keeps the budget and one that does not, after some halvings of such an interval. [1/s]"""
    for _ in range(steps):
        middle = (low + high) / 2
        kept = problem.prefill_delay(middle, option, np.ones(len(option))) <= budget
        low, high = np.where(kept, middle, low), np.where(kept, high, middle)
    return low, high


def _distinct(problem: Problem, pools: Pools, count: int) -> Pools:
    """The first combination of every decode size, at most ``count``."""
    _, first = np.unique(problem.decode.npus[pools.decode.astype(int)], return_index=True)
    return pools.take(np.sort(first)[:count])
