"""A sweep that is looked at and not kept: the first rows, or all of them as text, part by part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from cm384model.sweeping.parts import encode, frames, reduced
from cm384model.sweeping.study import Study


def first_rows(study: Study, count: int) -> tuple[list[dict[str, Any]], int]:
    """Up to ``count`` rows, and the number of all rows that are kept."""
    kept, rows = pl.DataFrame(), 0
    for frame in _kept(study):
        if len(kept) < count:
            kept = (pl.concat([kept, frame]) if rows else frame).head(count)
        rows += len(frame)
    return kept.to_dicts(), rows


def texts(study: Study, form: str) -> Iterator[tuple[str, int]]:
    """All rows as ``csv`` or ``jsonl``, a part at a time, with the number of rows of the part."""
    for number, frame in enumerate(_kept(study)):
        text = bytes(encode(frame, form)).decode()
        yield (text.partition("\n")[2] if form == "csv" and number else text), len(frame)


def _kept(study: Study) -> Iterator[pl.DataFrame]:
    """Frames of rows; a single one where rows compete."""
    if not study.keep.reduces:
        yield from (frame for frame, _ in frames(study))
        return
    best: pl.DataFrame | None = None
    for frame, _ in frames(study):
        best = reduced(study, frame if best is None else pl.concat([best, frame]))
    if best is not None:
        yield best
