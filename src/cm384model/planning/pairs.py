"""Options of each phase that are worth combining, and their combinations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cm384model.planning.space import Candidates
from cm384model.prediction.case import Case


@dataclass(frozen=True)
class Slo:
    """Limits that every plan keeps. [s]"""

    tpot: float
    ttft: float


@dataclass(frozen=True)
class Options:
    """The candidates of one phase that no other candidate of the same size beats.

    Arrays of one length: ``size`` index of the instance size, ``npus`` of one instance,
    ``rate`` requests per second of one instance, ``tpot`` (for prefill: the batch time) and
    ``delay`` (decode step or batch time, in s), ``index`` flat index of the candidate.
    """

    size: np.ndarray
    npus: np.ndarray
    rate: np.ndarray
    tpot: np.ndarray
    delay: np.ndarray
    index: np.ndarray


def decode_options(case: Case, candidates: Candidates, ignoring: str = "") -> Options:
    """Decode candidates that win in rate or TPOT among those of their size and draft tokens.

    With the draft tokens given, step time and TPOT fall together, so a candidate that loses in
    rate and TPOT loses in step time too.
    """
    sizes, batches, _, drafts = np.meshgrid(*candidates.axes.values(), indexing="ij", sparse=True)
    output_len = float(case.workload.traffic.output_len.si)
    tpot, step_time = candidates.values["tpot"], candidates.values["step_time"]
    rate = batches * sizes / (output_len * tpot)
    kind = sizes * (1 + drafts.max()) + drafts
    return _undominated(case, candidates.allowed(ignoring), candidates, kind, rate, tpot, step_time)


def prefill_options(case: Case, candidates: Candidates, ignoring: str = "") -> Options:
    """Prefill candidates that win in rate or batch time among those of their size."""
    sizes, tokens, _ = np.meshgrid(*candidates.axes.values(), indexing="ij", sparse=True)
    prompt_len = float(case.workload.traffic.prompt_len.si)
    batch_time = candidates.values["batch_time"]
    rate = tokens * sizes / case.hardware.dies_per_npu / (prompt_len * batch_time)
    return _undominated(case, candidates.allowed(ignoring), candidates, sizes, rate, batch_time, batch_time)


def _undominated(
    case: Case,
    allowed: np.ndarray,
    candidates: Candidates,
    kind: np.ndarray,
    rate: np.ndarray,
    tpot: np.ndarray,
    delay: np.ndarray,
) -> Options:
    feasible = np.flatnonzero(allowed)
    columns = [
        np.broadcast_to(array, candidates.shape).ravel()[feasible] for array in (kind, rate, tpot, delay)
    ]
    kept = frontier(*columns[:3])
    size = np.unravel_index(feasible[kept], candidates.shape)[0]
    npus = candidates.axes["ep"][size] / case.hardware.dies_per_npu
    rate, tpot, delay = (column[kept] for column in columns[1:])
    return Options(size, npus, rate, tpot, delay, feasible[kept])


def frontier(kind: np.ndarray, rate: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Positions that no other position of the same kind beats in both rate and cost.

    In the order of falling rate (then cost), a row is on the frontier when its cost is below
    that of every row before it.
    """
    order = np.lexsort((cost, -rate, kind))
    keep = np.zeros(len(order), dtype=bool)
    starts = np.flatnonzero(np.diff(kind[order], prepend=np.nan))
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=False):
        costs = cost[order[start:stop]]
        keep[start] = True
        keep[start + 1 : stop] = costs[1:] < np.minimum.accumulate(costs)[:-1]
    return order[keep]


@dataclass(frozen=True)
class Pairs:
    """Combinations of a decode option, a prefill option and instance counts, as columns."""

    decode: np.ndarray
    prefill: np.ndarray
    decode_instances: np.ndarray
    prefill_instances: np.ndarray
    rate: np.ndarray
    tpot: np.ndarray
    npus: np.ndarray
    ttft: np.ndarray

    def best_first(self) -> np.ndarray:
        """Positions by requests per second, TPOT, NPUs and TTFT."""
        return np.lexsort((self.ttft, self.npus, self.tpot, -self.rate))


def pairs(npus: int, slo: Slo, transfer: float, decode: Options, prefill: Options) -> Pairs:
    """Every decode option x its instance counts x prefill size, with the best prefill option.

    For given NPUs left to prefill the most instances give the highest rate; when decode limits
    the rate, the fewest instances and then the quickest batch that still carry it are taken.
    """
    instances = [np.arange(1, int(npus // n) + 1) for n in decode.npus]
    option = np.repeat(np.arange(len(decode.npus)), [len(i) for i in instances])
    count = np.concatenate(instances) if instances else np.zeros(0, dtype=int)
    left = npus - count * decode.npus[option]
    offered = count * decode.rate[option]
    budget = slo.ttft - transfer - decode.delay[option]
    columns: list[tuple[np.ndarray, ...]] = []
    for size in np.unique(prefill.size):
        rows = np.flatnonzero(prefill.size == size)
        rows = rows[np.argsort(prefill.delay[rows])]
        delay, rate, each = prefill.delay[rows], prefill.rate[rows], prefill.npus[rows[0]]
        most = (left // each).astype(int)
        within = np.searchsorted(delay, budget, side="right")
        use = np.flatnonzero((most > 0) & (within > 0))
        best = np.maximum.accumulate(rate)[within[use] - 1]
        served = np.minimum(offered[use], most[use] * best)
        few = np.minimum(np.ceil(served / best * (1 - 1e-12)).astype(int), most[use])
        few = np.maximum(few, 1)
        quickest = np.searchsorted(np.maximum.accumulate(rate), served / few * (1 - 1e-12))
        chosen = rows[quickest]
        total = count[use] * decode.npus[option[use]] + few * each
        ttft = prefill.delay[chosen] + transfer + decode.delay[option[use]]
        columns.append((option[use], chosen, count[use], few, served, decode.tpot[option[use]], total, ttft))
    stacked = [np.concatenate(c) for c in zip(*columns, strict=True)] or [np.zeros(0)] * 8
    return Pairs(*stacked)
