"""Is it true? Every published row, what the model says about it, and how far off it is."""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from cm384model.numeric import Numeric
from cm384model.prediction.case import DEFAULT_WORKLOAD, Case, load_case
from cm384model.prediction.evaluate import (
    decode_deployment,
    decode_outputs,
    operator_term,
    prefill_deployment,
    prefill_outputs,
)
from cm384model.specs.diagnostics import Problem, SpecError, with_suggestion
from cm384model.specs.spec import node_at

COLUMNS = (
    "id",
    "group",
    "subject",
    "at",
    "against",
    "quantity",
    "published",
    "unit",
    "band",
    "used_for_fit",
    "tier",
    "workload",
    "hardware",
    "engine",
    "settings",
    "source",
    "reason",
)

GROUPS = (
    "operators.gemm",
    "operators.grouped_gemm",
    "operators.attention",
    "operators.vector",
    "operators.exchange",
    "operators.collective",
    "operators.ub",
    "decode",
    "prefill",
    "ablations",
    "caching",
    "loading",
    "other_machine",
    "other_systems",
)


@dataclass(frozen=True)
class Row:
    """One published measurement, and the deployment or operator that it measures.

    ``against`` makes it a ratio: quantity at ``against`` over quantity at ``at``. A row with a
    ``reason`` is listed and not predicted.
    """

    id: str
    group: str
    subject: str
    at: str
    against: str
    quantity: str
    published: float
    unit: str
    band: float
    used_for_fit: bool
    tier: str
    workload: str
    hardware: str
    engine: str
    settings: tuple[str, ...]
    source: str
    reason: str


@dataclass(frozen=True)
class Checked:
    """A row with its prediction. ``predicted`` and ``error`` are None where a reason forbids one."""

    row: Row
    predicted: float | None
    error: float | None

    @property
    def within(self) -> bool:
        """Whether the prediction stays in the row's band; rows without one do."""
        return self.error is None or abs(self.error) <= self.row.band


def shipped_rows() -> list[Row]:
    """The published rows that come with the project."""
    return read_rows(Path(str(files("cm384model.evidence") / "published.csv")))


def read_rows(path: Path) -> list[Row]:
    """Rows of a CSV file in the ledger's columns.

    Raises
    ------
    SpecError
        With every faulty line: unknown column, missing value, a number that is not positive and
        finite, a duplicate id.
    """
    with path.open(newline="", encoding="utf-8") as stream:
        lines = list(csv.DictReader(stream))
    problems: list[Problem] = []
    rows: list[Row] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=2):
        try:
            row = _row(line)
        except ValueError as error:
            problems.append(Problem(str(error), file=str(path), line=number))
            continue
        if row.id in seen:
            problems.append(
                Problem(f"id '{row.id}' stands in line {seen[row.id]} too", file=str(path), line=number)
            )
        seen[row.id] = number
        rows.append(row)
    if problems:
        raise SpecError(problems)
    return rows


def _row(line: dict[str, Any]) -> Row:
    unknown = [name for name in line if name not in COLUMNS]
    if unknown:
        raise ValueError(with_suggestion(f"unknown column '{unknown[0]}'", str(unknown[0]), COLUMNS))
    if line.get("group") not in GROUPS:
        raise ValueError(
            with_suggestion(f"unknown group '{line.get('group')}'", str(line.get("group")), GROUPS)
        )
    predicted = not line["reason"]
    published = _positive(line, "published") if predicted or line["published"] else math.nan
    return Row(
        **{
            name: line[name]
            for name in COLUMNS
            if name not in {"published", "band", "used_for_fit", "settings"}
        },
        published=published,
        band=_positive(line, "band") if predicted else math.nan,
        used_for_fit=line["used_for_fit"] == "yes",
        settings=tuple(part for part in line["settings"].split(";") if part),
    )


def _positive(line: dict[str, Any], name: str) -> float:
    try:
        value = float(line[name])
    except ValueError:
        raise ValueError(f"{name} = '{line[name]}' is no number") from None
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} = {line[name]} must be finite and positive")
    return value


@functools.cache
def _case(workload: str, hardware: str, engine: str, settings: tuple[str, ...]) -> Case:
    return load_case(
        workload or DEFAULT_WORKLOAD, hardware=hardware or None, engine=engine or None, settings=settings
    )


def case_of(row: Row) -> Case:
    """The case a row was measured under."""
    return _case(row.workload, row.hardware, row.engine, row.settings)


def predicted_value(case: Case, row: Row) -> Numeric:
    """What the model says about a row under a case, whose numbers may be arrays."""
    value = _quantity(case, row.subject, row.at, row.quantity)
    return _quantity(case, row.subject, row.against, row.quantity) / value if row.against else value


def _quantity(case: Case, subject: str, at: str, quantity: str) -> Numeric:
    kind, _, name = subject.partition(" ")
    if kind == "fact":
        return node_at(case.hardware, at.removeprefix("path=")).si
    if kind in ("op", "loading"):
        term, _ = operator_term(case, name or "model_load", at)
        work = {"bytes_per_s": "bytes", "flop_per_s": "flop"}
        return term.part(work[quantity]) / term.time if quantity in work else term.time
    if kind == "decode":
        return decode_outputs(case, decode_deployment(case, at))[1][quantity]
    layout = "ep=32," if kind == "caching" else ""
    outputs = prefill_outputs(case, prefill_deployment(case, layout + at))[1]
    return outputs["batch_time_s" if quantity == "ttft_s" else quantity]


def check_rows(rows: Iterable[Row], case: Callable[[Row], Case] = case_of) -> list[Checked]:
    """Predict every row that has no reason against it.

    Raises
    ------
    SpecError
        When a row that should be predictable is not: a gap must not pass for a reason.
    """
    checked = []
    for row in rows:
        if row.reason:
            checked.append(Checked(row, None, None))
            continue
        predicted = float(predicted_value(case(row), row))
        checked.append(Checked(row, predicted, predicted / row.published - 1))
    return checked


@dataclass(frozen=True)
class Summary:
    """Errors of a set of rows: bias, median and mean of the absolute error, worst row."""

    group: str
    used_for_fit: bool
    rows: int
    bias: float
    median: float
    mean: float
    worst: float
    worst_id: str
    outside: int


def summarise(checked: Iterable[Checked]) -> list[Summary]:
    """A summary per group, fitted and never-fitted rows apart."""
    summaries = []
    predicted = [c for c in checked if c.error is not None]
    for group in GROUPS:
        for fitted in (True, False):
            rows = [c for c in predicted if c.row.group == group and c.row.used_for_fit is fitted]
            if rows:
                summaries.append(_summary(group, fitted, rows))
    return summaries


def _summary(group: str, fitted: bool, rows: list[Checked]) -> Summary:
    errors = np.array([c.error for c in rows], dtype=float)
    worst = int(np.argmax(np.abs(errors)))
    return Summary(
        group=group,
        used_for_fit=fitted,
        rows=len(rows),
        bias=float(np.mean(errors)),
        median=float(np.median(np.abs(errors))),
        mean=float(np.mean(np.abs(errors))),
        worst=float(errors[worst]),
        worst_id=rows[worst].row.id,
        outside=sum(not c.within for c in rows),
    )
