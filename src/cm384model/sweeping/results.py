"""A written sweep, opened to be looked at: whole, in parts, or unfinished."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from cm384model.specs.diagnostics import SpecError, with_suggestion
from cm384model.sweeping.study import GAIN_AND_COST

BATCH = 1_000_000
"""Rows read at once when rows compete."""


@dataclass(frozen=True)
class Result:
    """A sweep in a file or in a folder of parts.

    Attributes
    ----------
    frame : LazyFrame
        Its rows; nothing is read before it is asked for.
    said : dict
        Its provenance; empty if there is none.
    finished : bool
        False for a folder of parts that is not complete.
    """

    path: Path
    frame: pl.LazyFrame
    said: dict[str, Any]
    finished: bool

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return self.frame.collect_schema().names()

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.frame.select(pl.len()).collect(engine="streaming").item())

    @property
    def has_gain(self) -> bool:
        """Whether there is a column by which rows are better or worse."""
        return any(gain in self.columns for gain, _ in GAIN_AND_COST.values())

    def gain_and_cost(self) -> tuple[str, str]:
        """What makes a row good here, and the time it is weighed against.

        Raises
        ------
        SpecError
            If the file has not both columns.
        """
        known, phase = set(self.columns), str(self.said.get("phase"))
        pairs = [GAIN_AND_COST[phase]] if phase in GAIN_AND_COST else list(GAIN_AND_COST.values())
        for gain, cost in pairs:
            if {gain, cost} <= known:
                return gain, cost
        message = f"'{self.path}' has no columns {' and '.join(pairs[0])}"
        raise SpecError.of(message, f"it has {', '.join(self.columns)}")

    def gain(self) -> str:
        """What makes a row good here."""
        known = (gain for gain, _ in GAIN_AND_COST.values() if gain in self.columns)
        return next(known)

    def head(self, count: int) -> pl.DataFrame:
        """The first rows."""
        return self._finite(self.frame.head(count).collect(engine="streaming"))

    def best(self, count: int, by: str, *, ascending: bool) -> pl.DataFrame:
        """The rows with the largest or the smallest values of a column, the best first."""
        if by not in self.columns:
            raise SpecError.of(
                with_suggestion(f"there is no column '{by}'", by, self.columns),
                f"columns: {', '.join(self.columns)}",
            )
        rows = self._feasible().filter(pl.col(by).is_not_null())
        chosen = rows.bottom_k(count, by=by) if ascending else rows.top_k(count, by=by)
        found = chosen.collect(engine="streaming").sort(by, descending=not ascending, maintain_order=True)
        return self._finite(found)

    def frontier(self) -> pl.DataFrame:
        """Rows that no row beats in both gain and cost, in bounded memory; the best gain first."""
        gain, cost = self.gain_and_cost()
        kept: pl.DataFrame | None = None
        rows = self._feasible().filter(pl.col(gain).is_not_null(), pl.col(cost).is_not_null())
        for batch in rows.collect_batches(chunk_size=BATCH, maintain_order=True):
            kept = _undominated(batch if kept is None else pl.concat([kept, batch]), gain, cost)
        return self.head(0) if kept is None else self._finite(kept)

    def _finite(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows, or an error for numbers that no sweep writes."""
        for column in rows.select(pl.col(pl.Float32, pl.Float64)):
            if not column.drop_nulls().is_finite().all():
                raise SpecError.of(f"'{self.path}': column '{column.name}' holds a number that is not finite")
        return rows

    def _feasible(self) -> pl.LazyFrame:
        return self.frame.filter(pl.col("feasible")) if "feasible" in self.columns else self.frame


def _undominated(frame: pl.DataFrame, gain: str, cost: str) -> pl.DataFrame:
    costs, gains = frame[cost].to_numpy(), frame[gain].to_numpy()
    order = np.lexsort((costs, -gains))
    if not len(order):
        return frame
    before = np.concatenate([[np.inf], np.minimum.accumulate(costs[order])[:-1]])
    return frame[order[costs[order] < before]]


def open_result(path: Path) -> Result:
    """The sweep under a name: a file, a folder of parts, or the ``.part`` of either.

    Raises
    ------
    SpecError
        If there is none, or it cannot be read.
    """
    if not path.exists():
        unfinished = path.with_name(f"{path.name}.part")
        near = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        hint = f"an unfinished one is in '{unfinished}'" if unfinished.exists() else None
        raise SpecError.of(with_suggestion(f"there is no '{path}'", path.name, near), hint)
    with reading(path):
        frame, finished = _scanned(path), not path.name.endswith(".part")
        frame.collect_schema()
        return Result(path, frame, _said(path), finished)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Rows are read when they are asked for: what is wrong with the file comes out then.

    Raises
    ------
    SpecError
        For a damaged file.
    """
    try:
        yield
    except (pl.exceptions.PolarsError, OSError) as error:
        raise SpecError.of(f"'{path}' cannot be read: {str(error).splitlines()[0]}") from None


def _scanned(path: Path) -> pl.LazyFrame:
    files = sorted(path.glob("part-*[!p]")) if path.is_dir() else [path]
    if not files:
        raise SpecError.of(f"'{path}' holds no part yet")
    match files[0].suffix:
        case ".csv":
            return pl.scan_csv(files, infer_schema_length=10_000)
        case ".parquet":
            return pl.scan_parquet(files)
        case ".jsonl":
            return pl.scan_ndjson(files, infer_schema_length=10_000)
    message = f"the suffix of '{files[0]}' names no format of a sweep"
    raise SpecError.of(message, "one of .csv, .parquet, .jsonl")


def _said(path: Path) -> dict[str, Any]:
    """Provenance: of the sidecar, of the folder, of the Parquet file itself."""
    for place in (path.with_name(f"{path.name}.meta.json"), path / "_study.json"):
        with suppress(OSError, ValueError):
            return dict(json.loads(place.read_text("utf-8")))
    with suppress(pl.exceptions.PolarsError, OSError, KeyError, ValueError):
        return dict(json.loads(pl.read_parquet_metadata(path)["cm384"]))
    return {}
