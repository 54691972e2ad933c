"""A walk through every candidate of a space, as sparse axes, that keeps those worth combining.

Axes are arrays of shape ``(n, 1, 1, ...)``; a term that does not use an axis is never
evaluated along it, so broadcasting is the memoisation. The space is walked in slices that fit
the processor's cache, and of each slice only the options that can still win are kept, so memory
does not grow with the space.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from cm384model.numeric import Numeric

CHUNK = 100_000
"""Candidates evaluated at once: their arrays stay in the processor's cache. [-]"""


RISING_BLOCK = 16
"""Values of the rising axis evaluated at once. [-]"""


FEW = 5_000
"""Candidates whose evaluation takes about as long as the call for it: a small space takes few calls. [-]"""


@dataclass(frozen=True)
class Options:
    """Deployments of one phase that no other of their kind beats, as columns of one length.

    Attributes
    ----------
    axes : dict of str to array
        The value of every decision.
    npus : array
        NPUs of one instance. [-]
    rate : array
        Requests per second that one instance can serve. [1/s]
    tpot : array
        Time per output token; zero for prefill. [s]
    delay : array
        What a request waits in the phase: one decode step, or the prefill of a full batch. [s]
    free : array
        Memory left on a die. [B]
    alone : array
        Prefill of one prompt alone; zero for decode. [s]
    prompts : array
        Prompts of a full prefill batch; zero for decode. [-]
    spared : array
        What a prompt's own batch stores after its first token, at least; zero for decode. [s]
    transfer : array
        Hand-over of the KV cache to decode; zero for prefill. [s]
    most : array
        Requests per second that the context cache carries for all instances; infinite for decode. [1/s]
    """

    axes: dict[str, np.ndarray]
    npus: np.ndarray
    rate: np.ndarray
    tpot: np.ndarray
    delay: np.ndarray
    free: np.ndarray
    alone: np.ndarray
    prompts: np.ndarray
    spared: np.ndarray
    transfer: np.ndarray
    most: np.ndarray

    def __len__(self) -> int:
        return len(self.npus)

    def at(self, row: int) -> dict[str, Any]:
        """Every decision of one row."""
        return {name: column[row] for name, column in self.axes.items()}

    def take(self, rows: np.ndarray) -> Options:
        """Some of the rows."""
        columns = {n: c[rows] for n, c in vars(self).items() if n != "axes"}
        return Options({name: column[rows] for name, column in self.axes.items()}, **columns)

    @staticmethod
    def joined(parts: list[Options]) -> Options:
        """One set of options from several."""
        names = parts[0].axes
        columns = {n: np.concatenate([vars(p)[n] for p in parts]) for n in vars(parts[0]) if n != "axes"}
        return Options({n: np.concatenate([p.axes[n] for p in parts]) for n in names}, **columns)


@dataclass(frozen=True)
class Explored:
    """What became of a space: its size, what was evaluated, what each reason forbade, the options."""

    size: int
    evaluated: int
    feasible: int
    rejected: dict[str, int]
    options: Options
    nearest: dict[str, float]


Progress = Callable[[float], None]
"""Told the share of a walk that is done."""


@dataclass(frozen=True)
class Slice:
    """One evaluated part of a space: columns of an `Options` row per candidate, and masks."""

    columns: dict[str, Numeric]
    reasons: dict[str, Numeric]


def crossed(axes: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Axes as arrays of shape ``(n, 1, 1, ...)``, each along its own dimension."""
    return dict(zip(axes, np.meshgrid(*axes.values(), indexing="ij", sparse=True), strict=True))


def explore(
    axes: dict[str, np.ndarray],
    rising: str,
    kind: tuple[str, ...],
    evaluate: Callable[..., Slice],
    progress: Progress | None = None,
) -> Explored:
    """Evaluate the product of ``axes`` and keep the options that no other of their kind beats.

    ``evaluate`` takes the axes by name; ``kind`` names those whose every value may be worth having.
    Of candidates that differ in neither these nor the ``rising`` axis, the one with the smallest
    delay must have the highest rate. Every constraint that ``evaluate`` names must forbid more,
    never less, as the ``rising`` axis grows: memory, step time and batch time do, because every law
    is nondecreasing in the tokens. So a value of another axis that has no candidate left at the
    largest value of a block has none at any larger one: it is dropped from the rest of the slice.
    """
    names, shape = list(axes), tuple(len(axis) for axis in axes.values())
    first, along = names[0], names.index(rising)
    free = tuple(n for n, name in enumerate(names) if name != rising and name not in kind)
    others = int(np.prod(shape)) // (shape[0] * shape[along])
    block = min(max(RISING_BLOCK, FEW // (shape[0] * others)), shape[along])
    step = max(1, CHUNK // (others * block))
    rejected: Counter[str] = Counter()
    nearest: dict[str, float] = {}
    kept: list[Options] = []
    evaluated = feasible = 0
    for start in range(0, shape[0], step):
        part = axes | {first: axes[first][start : start + step]}
        for low in range(0, shape[along], block):
            part[rising] = axes[rising][low : low + block]
            at = crossed(part)
            here = tuple(len(axis) for axis in part.values())
            result = evaluate(**at)
            allowed = np.ones(here, dtype=bool)
            for reason, mask in result.reasons.items():
                mask = np.broadcast_to(mask, here)
                rejected[reason] += int(np.count_nonzero(mask))
                allowed &= ~mask
            evaluated += allowed.size
            feasible += int(np.count_nonzero(allowed))
            _note_nearest(nearest, result, here)
            rows = _quickest(allowed, np.broadcast_to(result.columns["delay"], here), free)
            if len(rows):
                kept.append(undominated(_options(at, here, rows, result), kind))
            left = allowed.take([-1], axis=along)
            if not left.any():
                break
            for n, name in enumerate(names):
                if name != rising:
                    part[name] = part[name][left.any(axis=tuple(m for m in range(left.ndim) if m != n))]
        if progress is not None:
            progress(min(start + step, shape[0]) / shape[0])
    size = int(np.prod(shape))
    rejected["pruned"] = size - evaluated
    options = undominated(Options.joined(kept), kind) if kept else _no_options(names)
    return Explored(size, evaluated, feasible, dict(rejected), options, nearest)


def _note_nearest(nearest: dict[str, float], result: Slice, shape: tuple[int, ...]) -> None:
    """The best memory of all candidates, and the best times of those that fit."""
    free = np.broadcast_to(result.columns["free"], shape)
    nearest["free"] = max(nearest.get("free", -np.inf), float(free.max()))
    fits = ~np.broadcast_to(result.reasons["hbm"], shape)
    if fits.any():
        for name in ("tpot", "delay"):
            best = float(np.broadcast_to(result.columns[name], shape)[fits].min())
            nearest[name] = min(nearest.get(name, np.inf), best)


def _quickest(allowed: np.ndarray, delay: np.ndarray, free: tuple[int, ...]) -> np.ndarray:
    """Positions of the allowed candidates with the smallest delay over the ``free`` axes."""
    if not free:
        return np.flatnonzero(allowed)
    order = [*(axis for axis in range(allowed.ndim) if axis not in free), *free]
    others = int(np.prod([allowed.shape[axis] for axis in free]))

    def by_group(values: np.ndarray) -> np.ndarray:
        return values.transpose(order).reshape(-1, others)

    delays = by_group(np.where(allowed, delay, np.inf))
    best = delays.argmin(axis=1)[:, np.newaxis]
    rows = np.take_along_axis(by_group(np.arange(allowed.size).reshape(allowed.shape)), best, axis=1)
    found: np.ndarray = rows[np.isfinite(np.take_along_axis(delays, best, axis=1))]
    return found


def _options(at: dict[str, np.ndarray], shape: tuple[int, ...], rows: np.ndarray, result: Slice) -> Options:
    places = np.unravel_index(rows, shape)

    def flat(values: Numeric) -> np.ndarray:
        taken: np.ndarray = np.broadcast_to(values, shape)[places]
        return taken

    axes = {name: flat(axis) for name, axis in at.items()}
    return Options(axes, **{name: flat(values) for name, values in result.columns.items()})


def _no_options(names: list[str]) -> Options:
    empty = np.zeros(0)
    columns = [column.name for column in fields(Options) if column.name != "axes"]
    return Options(dict.fromkeys(names, empty), **dict.fromkeys(columns, empty))


def undominated(options: Options, kind: tuple[str, ...]) -> Options:
    """The options that no other of the same kind beats in both rate and delay."""
    if set(kind) == set(options.axes):  # each of a kind of its own
        return options
    return options.take(frontier(kinds([options.axes[name] for name in kind]), options.rate, options.delay))


def kinds(columns: list[np.ndarray]) -> np.ndarray:
    """A number for every row, the same where all columns are the same. [-]"""
    keys = np.zeros(len(columns[0]))
    for column in columns:
        values, codes = np.unique(column, return_inverse=True)
        keys = keys * len(values) + codes
    return keys


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
