"""A sweep in parts: each is a pure function of its number, so any part can be made anywhere, any time.

Rows are in the order of the axes, the last axis fastest. A part is a run of boxes, a box is what
broadcasts in one evaluation: one value of the first axes, a slice of one, all of the others.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from cm384model.sweeping.columns import STATUS
from cm384model.sweeping.evaluate import MEMORY_COLUMNS, Outcome, evaluate
from cm384model.sweeping.plans import plan_row, plan_types
from cm384model.sweeping.study import FILES, GAIN_AND_COST, Axis, Study

BOX = 131_072
"""Candidates evaluated at once: their arrays stay in the processor's cache."""
PART_VALUES = 4_194_304
"""Candidates times columns of one part: what is in memory, and what a crash loses."""
PLANS_PER_PART = 8


@dataclass(frozen=True)
class Layout:
    """How a sweep is cut.

    Attributes
    ----------
    outer, leading : tuple of int
        Lengths of the outer axes, and of the inner ones that are taken one value at a time.
    cut : int
        Length of the axis that is taken in slices.
    step : int
        Length of a slice.
    trailing : tuple of int
        Lengths of the axes that are taken whole.
    boxes_per_part : int
    """

    outer: tuple[int, ...]
    leading: tuple[int, ...]
    cut: int
    step: int
    trailing: tuple[int, ...]
    boxes_per_part: int

    @property
    def boxes(self) -> int:
        """Boxes of the whole sweep."""
        return math.prod(self.outer) * math.prod(self.leading) * math.ceil(self.cut / self.step)

    @property
    def parts(self) -> int:
        """Parts of the whole sweep."""
        return math.ceil(self.boxes / self.boxes_per_part)

    def box(self, number: int) -> tuple[tuple[int, ...], list[slice]]:
        """Positions of the outer axes, and slices of the inner ones."""
        slices = math.ceil(self.cut / self.step)
        rest, piece = divmod(number, slices)
        index = (
            [int(i) for i in np.unravel_index(rest, (*self.outer, *self.leading))]
            if rest or self.outer or self.leading
            else []
        )
        outer, leading = tuple(index[: len(self.outer)]), index[len(self.outer) :]
        start = piece * self.step
        return outer, [
            *(slice(i, i + 1) for i in leading),
            slice(start, min(start + self.step, self.cut)),
            *(slice(0, n) for n in self.trailing),
        ]

    def part(self, number: int) -> range:
        """Boxes of a part."""
        first = number * self.boxes_per_part
        return range(first, min(first + self.boxes_per_part, self.boxes))


def layout(study: Study) -> Layout:
    """The cut of a sweep; it depends on the study alone."""
    outer = tuple(len(axis) for axis in study.outer)
    if study.phase == "plan":
        return Layout(outer, (), 1, 1, (), PLANS_PER_PART)
    inner = [len(axis) for axis in study.inner] or [1]
    place, whole = len(inner), 1
    while place > 1 and whole * inner[place - 1] <= BOX:
        place -= 1
        whole *= inner[place]
    cut = inner[place - 1]
    step = min(cut, max(1, BOX // whole))
    rows = max(BOX, PART_VALUES // len(study.columns))
    return Layout(
        outer, tuple(inner[: place - 1]), cut, step, tuple(inner[place:]), max(1, rows // (step * whole))
    )


def part_frame(study: Study, number: int) -> tuple[pl.DataFrame, int]:
    """The rows of a part that are kept, and the number of its candidates."""
    cut = layout(study)
    if study.phase == "plan":
        indices = [cut.box(box)[0] for box in cut.part(number)]
        return _plan_frame(study, [plan_row(study, index) for index in indices]), len(indices)
    frames, candidates = [], 0
    for box in cut.part(number):
        outer, inner = cut.box(box)
        outcome = evaluate(study, outer, inner[: len(study.inner)])
        candidates += math.prod(outcome.shape)
        frames.append(_box_frame(study, outcome))
    return reduced(study, pl.concat(frames, rechunk=False)), candidates


def reduced(study: Study, frame: pl.DataFrame) -> pl.DataFrame:
    """The rows that stay when rows compete; all of them, in their order, where they do not."""
    if not study.keep.reduces:
        return frame
    gain, cost = GAIN_AND_COST[study.phase]
    kept = _winners(study, frame[gain].to_numpy(), frame[cost].to_numpy())
    return frame[kept]


def _winners(study: Study, gain: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Positions of the best rows, or of those that no row beats in gain and cost; the best first."""
    order = np.lexsort((cost, -gain))
    if study.keep.mode == "top":
        return order[: study.keep.count]
    costs = cost[order]
    before = np.concatenate([[np.inf], np.minimum.accumulate(costs)[:-1]]) if len(costs) else costs
    return order[costs < before]


def encode(frame: pl.DataFrame, form: str, metadata: Mapping[str, str] | None = None) -> memoryview:
    """The bytes of a file in one of the formats ``csv``, ``jsonl`` and ``parquet``."""
    buffer = io.BytesIO()
    if form == "csv":
        frame.write_csv(buffer)
    elif form == "jsonl":
        frame.write_ndjson(buffer)
    else:
        frame.write_parquet(buffer, metadata=dict(metadata or {}))
    return buffer.getbuffer()


def _box_frame(study: Study, outcome: Outcome) -> pl.DataFrame:
    keep, shape = study.keep, outcome.shape
    forbidden = outcome.forbidden({**outcome.impossible, **outcome.unfit, **outcome.late})
    if keep.mode == "all":
        chosen = None
    else:
        chosen = ~forbidden.reshape(-1)
        if chosen.all():
            chosen = None
    if keep.reduces:
        rows = np.arange(forbidden.size) if chosen is None else np.flatnonzero(chosen)
        gain, cost = (_flat(outcome.columns[name](), shape)[rows] for name in GAIN_AND_COST[study.phase])
        chosen = rows[_winners(study, gain, cost)]
    unknown, untimed = None, None
    if keep.mode == "all":
        unknown = outcome.forbidden(outcome.impossible).reshape(-1)
        untimed = outcome.forbidden({**outcome.impossible, **outcome.unfit}).reshape(-1)
    series = []
    for name in study.columns:
        if name == "feasible":
            series.append(pl.Series(name, _taken(~forbidden.reshape(-1), chosen)))
        elif name == "reasons":
            series.append(_reasons(outcome, chosen))
        else:
            value = outcome.columns[name]()
            axis = study.axis(name)
            given = axis is not None or name in (*FILES, *outcome.deployment, *FOLLOWS)
            hidden = None if given else unknown if name in MEMORY_COLUMNS else untimed
            series.append(_series(study, name, axis, value, shape, chosen, hidden))
    return pl.DataFrame(series)


FOLLOWS = ("batch_per_npu", "tokens_per_step")
"""Columns that follow from the deployment alone; like it they are known of every row."""


def _series(
    study: Study,
    name: str,
    axis: Axis | None,
    value: Any,
    shape: tuple[int, ...],
    chosen: np.ndarray | None,
    hidden: np.ndarray | None,
) -> pl.Series:
    if isinstance(value, str):
        length = math.prod(shape) if chosen is None else len(_taken(np.empty(math.prod(shape), bool), chosen))
        return pl.repeat(value, length, dtype=word_type(study, name), eager=True).alias(name)
    flat = _taken(_flat(value, shape), chosen)
    if axis is not None and axis.whole:
        return pl.Series(name, flat.astype(np.int64))
    if hidden is None:
        return pl.Series(name, flat.astype(float, copy=False))
    return pl.Series(name, np.where(_taken(hidden, chosen), np.nan, flat), nan_to_null=True)


def word_type(study: Study, name: str) -> pl.DataType:
    """The type of a column of words: all of them are known beforehand."""
    axis = study.axis(name)
    if axis is not None:
        words = list(axis.values)
    elif name in FILES:
        words = sorted({getattr(case, name).name for case in study.cases.values()})
    else:
        return pl.String()
    return pl.Enum(words)


def _flat(value: Any, shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(np.asarray(value), shape).reshape(-1)


def _taken(flat: np.ndarray, chosen: np.ndarray | None) -> np.ndarray:
    return flat if chosen is None else flat[chosen]


def _reasons(outcome: Outcome, chosen: np.ndarray | None) -> pl.Series:
    """The reasons of every row, one word each, with a semicolon between two; none where it is feasible."""
    masks = outcome.reasons
    names = list(masks)
    code = np.zeros(math.prod(outcome.shape), dtype=np.int64)
    for bit, mask in enumerate(masks.values()):
        code |= _flat(mask, outcome.shape).astype(np.int64) << bit
    code = _taken(code, chosen)
    words = {
        c: ";".join(n for bit, n in enumerate(names) if c >> bit & 1) or None
        for c in np.unique(code).tolist()
    }
    return pl.Series("reasons", code).replace_strict(words, return_dtype=pl.String)


def _plan_frame(study: Study, rows: list[dict[str, Any]]) -> pl.DataFrame:
    kinds: dict[type, Any] = {int: pl.Int64(), float: pl.Float64(), str: pl.String()}
    schema: dict[str, Any] = {name: kinds[kind] for name, kind in plan_types().items()}
    schema |= {name: pl.String() for name in (*FILES, "reasons")} | {"feasible": pl.Boolean()}
    for axis in study.axes:
        words = isinstance(axis.values, tuple)
        schema[axis.column] = (
            pl.Enum(list(axis.values)) if words else pl.Int64() if axis.whole else pl.Float64()
        )
        for row in rows:
            row[axis.column] = row[axis.column] if words else (int if axis.whole else float)(row[axis.column])
    if study.keep.mode != "all":
        rows = [row for row in rows if row["feasible"]]
    for row in rows:
        row["reasons"] = row["reasons"] or None
    frame = pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema)
    return frame.select(list(study.columns))


def frames(study: Study) -> Iterator[tuple[pl.DataFrame, int]]:
    """All parts, one after the other."""
    for number in range(layout(study).parts):
        yield part_frame(study, number)


__all__ = ["STATUS", "Layout", "encode", "frames", "layout", "part_frame", "reduced", "word_type"]
