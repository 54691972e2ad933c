"""How many instances of which options: the exact optimum over every combination."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cm384model.numeric import Numeric
from cm384model.planning.request import Request
from cm384model.planning.space import Options
from cm384model.prediction.serving import prefill_delay

BISECTIONS = 44
"""Halvings of the interval of rates: the answer is exact to 1 part in 10^13. [-]"""

FIRST_BLOCK, LARGEST_BLOCK = 16, 1024
"""Combinations whose rate is computed at once: few while the bound is loose, then more. [-]"""

SAME_RATE = 1e-3
"""Rates that differ by less are the same to a planner: far below the model's own error. [-]"""


@dataclass(frozen=True)
class Pools:
    """Combinations of a decode option, a prefill option and instance counts, as columns.

    ``decode`` and ``prefill`` are rows of the options; ``rate`` is served requests per second.
    """

    decode: np.ndarray
    decode_instances: np.ndarray
    prefill: np.ndarray
    prefill_instances: np.ndarray
    rate: np.ndarray
    tpot: np.ndarray
    npus: np.ndarray
    ttft: np.ndarray

    def __len__(self) -> int:
        return len(self.rate)

    def take(self, rows: np.ndarray) -> Pools:
        """Some of the combinations."""
        return Pools(*(column[rows] for column in vars(self).values()))


@dataclass(frozen=True)
class Problem:
    """The options of both phases and what a combination must keep."""

    request: Request
    npus: int
    transfer: float
    output_len: float
    decode: Options
    prefill: Options

    def budget(self, rows: np.ndarray) -> np.ndarray:
        """What is left of TTFT for queueing and prefill beside each decode option. [s]"""
        slo, decode = self.request.slo, self.decode
        after = self.transfer + decode.delay[rows]
        limit = np.minimum(slo.ttft, slo.e2e - self.output_len * decode.tpot[rows])
        left: np.ndarray = limit - after
        return left

    def most_rate(self, rows: np.ndarray) -> np.ndarray:
        """Requests per second that the limit on concurrency allows, by Little's law. [1/s]"""
        most: np.ndarray = self.request.max_concurrency / (self.output_len * self.decode.tpot[rows])
        return most

    def prefill_delay(self, rate: Numeric, option: np.ndarray, instances: Numeric) -> np.ndarray:
        """Mean queueing and prefill time of a pool at a rate. [s]"""
        p = self.prefill
        delay: np.ndarray = prefill_delay(
            rate,
            instances=instances,
            prompts=p.prompts[option],
            full_time=p.delay[option],
            alone_time=p.alone[option],
        )
        return delay


def best_pools(problem: Problem) -> Pools:
    """The best combinations first, at most ``top`` of them, each with another decode size.

    For a given rate: fewest NPUs or lowest TPOT first, then TPOT, NPUs and TTFT. For the highest
    rate: of all combinations within `SAME_RATE` of it the one with the lowest TPOT, then the
    fewest NPUs, then the lowest TTFT. No feasible combination beats the first in rate, TPOT, NPUs
    and TTFT together: one that did would be in the same set and come before it.
    """
    if not len(problem.decode) or not len(problem.prefill):
        return _nothing()
    if problem.request.objective == "throughput":
        return _most_rate(problem)
    return _at_rate(problem, float(problem.request.rate or 0.0))


def _nothing() -> Pools:
    return Pools(*(np.zeros(0) for _ in range(8)))


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
        """Row of the smallest pool whose delay keeps each budget; past the end where none does."""
        return len(self.npus) - np.searchsorted(self.delay[::-1], budget, side="right")


def staircase(problem: Problem, rate: float, npus: float) -> Staircase:
    """The prefill pools worth having at ``rate`` within ``npus``."""
    p = problem.prefill
    option, instances = _counts(p.npus, npus)
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
        ttft = stairs.delay[step] + problem.transfer + problem.decode.delay[option]
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
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return Pools(*(np.concatenate(column) for column in columns)) if parts else _nothing()


# --- the highest rate -------------------------------------------------------------------------------------


def _most_rate(problem: Problem) -> Pools:
    """Combinations with the highest rates, by branch and bound.

    A combination serves no more than its decode pool can, and no more than the best prefill
    pool that fits beside it could without any queue. Combinations are taken in the order of
    that bound; once the bound is below the ``top``-th best rate found, nothing better is left.
    """
    decode, instances = _counts(problem.decode.npus, problem.npus - problem.prefill.npus.min())
    offered = np.minimum(instances * problem.decode.rate[decode], problem.most_rate(decode))
    left = problem.npus - instances * problem.decode.npus[decode]
    bound = np.minimum(offered, _unqueued_rate(problem, left))
    order = np.argsort(-bound, kind="stable")
    order = order[bound[order] > 0]
    rate = np.zeros(len(decode))
    best: dict[float, float] = {}
    for block in _blocks(order):
        enough = sorted(best.values(), reverse=True)[: problem.request.top]
        floor = enough[-1] * (1 - SAME_RATE) if len(enough) == problem.request.top else 0.0
        if bound[block[0]] < floor:
            break
        rate[block] = _sustained(problem, decode[block], offered[block], left[block], floor)
        for size, value in zip(problem.decode.npus[decode[block]], rate[block], strict=True):
            best[float(size)] = max(best.get(float(size), 0.0), float(value))
    rows = _leaders(problem, decode, rate)
    pools = _completed(problem, decode[rows], instances[rows], rate[rows])
    pools = pools.take(np.lexsort((-pools.rate, pools.ttft, pools.npus, pools.tpot)))
    firsts = _distinct(problem, pools, len(pools))
    return firsts.take(_ranked_by_rate(firsts)[: problem.request.top])


def _blocks(order: np.ndarray) -> Iterator[np.ndarray]:
    start, size = 0, FIRST_BLOCK
    while start < len(order):
        yield order[start : start + size]
        start, size = start + size, min(2 * size, LARGEST_BLOCK)


def _leaders(problem: Problem, decode: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """Of every decode size, among the combinations with its highest rate, those of the lowest TPOT."""
    size, tpot = problem.decode.npus[decode], problem.decode.tpot[decode]
    leaders: list[np.ndarray] = []
    for value in np.unique(size[rate > 0]):
        rows = np.flatnonzero((size == value) & (rate > 0))
        rows = rows[rate[rows] >= (1 - SAME_RATE) * rate[rows].max()]
        leaders.append(rows[tpot[rows] == tpot[rows].min()])
    return np.concatenate(leaders) if leaders else np.zeros(0, dtype=int)


def _ranked_by_rate(pools: Pools) -> np.ndarray:
    """Order of combinations: the best of all first, then the best of the rest, and so on."""
    left, order = list(range(len(pools))), []
    while left:
        highest = max(pools.rate[row] for row in left)
        same = [row for row in left if pools.rate[row] >= (1 - SAME_RATE) * highest]
        first = min(same, key=lambda r: (pools.tpot[r], pools.npus[r], pools.ttft[r], -pools.rate[r]))
        order.append(first)
        left.remove(first)
    return np.array(order, dtype=int)


def _unqueued_rate(problem: Problem, left: np.ndarray) -> np.ndarray:
    """Rate of the best prefill pool within each number of NPUs, if no request ever queued. [1/s]"""
    p = problem.prefill
    table = {value: float(np.max(value // p.npus * p.rate, initial=0.0)) for value in np.unique(left)}
    return np.array([table[value] for value in left])


def _sustained(
    problem: Problem, decode: np.ndarray, offered: np.ndarray, left: np.ndarray, floor: float
) -> np.ndarray:
    """Highest rate up to ``offered`` at which some prefill pool within ``left`` keeps the TTFT. [1/s]

    Zero where it would be below ``floor``: pools that cannot reach it are not looked at. The
    delay of a pool rises with the rate, so the rates that keep a budget are an interval from zero,
    and its end is found by bisection.
    """
    p = problem.prefill
    budget = problem.budget(decode)
    rate = np.zeros(len(decode))
    for value in np.unique(left):
        rows = np.flatnonzero(left == value)
        option = np.flatnonzero((value // p.npus * p.rate >= floor) & (p.npus <= value))
        if not len(option):
            continue
        instances = value // p.npus[option]
        ceiling = np.minimum(offered[rows, np.newaxis], instances * p.rate[option])
        inside = budget[rows, np.newaxis]
        whole = problem.prefill_delay(ceiling * (1 - 1e-12), option, instances) <= inside
        low = np.where(whole, ceiling, 0.0)
        rate[rows] = low.max(axis=1)
        open_ = ~whole & (ceiling > rate[rows, np.newaxis])
        row, column = np.nonzero(open_)
        low, high = np.zeros(len(row)), ceiling[row, column]
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            kept = problem.prefill_delay(middle, option[column], instances[column]) <= inside[row, 0]
            low, high = np.where(kept, middle, low), np.where(kept, high, middle)
        np.maximum.at(rate, rows[row], low)
    return rate


def _distinct(problem: Problem, pools: Pools, count: int) -> Pools:
    """The first combination of every decode size, at most ``count``."""
    _, first = np.unique(problem.decode.npus[pools.decode.astype(int)], return_index=True)
    return pools.take(np.sort(first)[:count])
