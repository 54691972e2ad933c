"""Is it true? Every published row, what the model says about it, and how far off it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cm384model.evidence.calibrate import left_out_predictions
from cm384model.evidence.intervals import residual, run_residual
from cm384model.evidence.published import GROUPS, Row, case_of, model_of, predicted_value, shipped_rows
from cm384model.evidence.targets import Answers, Target, targets_of
from cm384model.prediction.case import Case
from cm384model.prediction.results import SCHEMA
from cm384model.prediction.uncertainty import propagate
from cm384model.specs.diagnostics import SpecError

RUNS = ("colocated", "disaggregated")
"""Kinds of rows whose time is that of many steps and batches, with the waits between them."""

COVERAGE = (0.70, 0.95)
"""Between these shares of never-fitted rows, an 80 % interval says what it promises. [-]"""


@dataclass(frozen=True)
class CheckedRow:
    """A row with its prediction and the 80 % interval of that; None where a reason forbids one.

    ``published`` is in the unit of ``unit``, a SI unit, and None where nothing was printed. Where
    the source leaves the acceptance of a draft open, ``open_low`` and ``open_high`` are the predictions
    at the ends of what is plausible, ``predicted`` lies between them, and ``error`` is the distance of
    the published value from the nearer end, 0 between them.
    """

    id: str
    group: str
    subject: str
    at: str
    against: str
    quantity: str
    unit: str
    published: float | None
    predicted: float | None
    predicted_low: float | None
    predicted_high: float | None
    open_low: float | None
    open_high: float | None
    error: float | None
    band: float | None
    within_band: bool | None
    within_interval: bool | None
    used_for_fit: bool
    tier: str
    workload: str
    model: str
    hardware: str
    engine: str
    acceptance: str
    source: str
    reason: str

    @property
    def kind(self) -> str:
        """The first word of the subject."""
        return self.subject.partition(" ")[0]

    @property
    def is_evidence(self) -> bool:
        """Whether no constant was fitted to the row and it is no input of the model."""
        return self.predicted is not None and not self.used_for_fit and self.kind != "fact"


@dataclass(frozen=True)
class ErrorSummary:
    """Errors of the fitted or of the never-fitted rows of a group, a model or an engine."""

    group: str
    used_for_fit: bool
    rows: int
    bias_error: float
    median_error: float
    mean_error: float
    worst_error: float
    worst_id: str
    outside_band: int


@dataclass(frozen=True)
class Coverage:
    """How many never-fitted rows lie within their 80 % interval, but for runs to the end, which set it."""

    rows: int
    within_interval: int
    share: float


@dataclass(frozen=True)
class LeftOut:
    """A row predicted by a fit that never saw it."""

    id: str
    published: float
    predicted: float
    error: float
    unit: str


@dataclass(frozen=True)
class ValidationSummary:
    """What all rows say together; ``outside_band`` are the ids that leave their band.

    ``models`` and ``engines`` sum up steps, batches and runs, no operators.
    """

    rows: int
    predicted_rows: int
    fitted_rows: int
    groups: tuple[ErrorSummary, ...]
    totals: tuple[ErrorSummary, ...]
    operators: tuple[ErrorSummary, ...]
    models: tuple[ErrorSummary, ...]
    engines: tuple[ErrorSummary, ...]
    coverage: Coverage | None
    outside_band: tuple[str, ...]


@dataclass(frozen=True)
class Validation:
    """The ledger and its summary; targets are those that the rows at hand can answer."""

    rows: tuple[CheckedRow, ...]
    summary: ValidationSummary
    targets: tuple[Target, ...]
    leave_one_out: tuple[LeftOut, ...]
    schema: int = SCHEMA


def validate(rows: Sequence[Row], *, leave_one_out: bool = False) -> Validation:
    """Predict every row that has no reason against it, and sum up.

    Parameters
    ----------
    rows : sequence of Row
        The ledger, or a part of it.
    leave_one_out : bool
        Whether to predict each of the decode rows by a fit that never saw it; takes some seconds.

    Raises
    ------
    SpecError
        When a row that should be predictable is not: a gap must not pass for a reason.
    """
    checked = tuple(check(row) for row in rows)
    unseen = _left_out(rows) if leave_one_out else ()
    summary = summarise(checked)
    answers = Answers(
        rows={row.id: row for row in rows},
        predicted={row.id: row.predicted for row in checked if row.predicted is not None},
        errors={row.id: row.error for row in checked if row.error is not None},
        unseen_error={row.id: row.error for row in unseen},
        coverage=summary.coverage.share if summary.coverage else None,
    )
    return Validation(checked, summary, targets_of(answers), unseen)


def row_interval(case: Case, row: Row, predicted: float) -> tuple[float, float]:
    """80 % interval of the prediction of a published row.

    That of a run to the end is the model's error on runs alone, which hides what the inputs do.
    """
    if row.kind in RUNS:
        width = float(np.exp(run_residual(row.engine)))
        return predicted / width, predicted * width
    found = propagate(case, lambda varied: {"value": predicted_value(varied, row)})
    return found.interval("value", residual(case, row.subject, row.at))


def check(row: Row) -> CheckedRow:
    """A row with its prediction.

    Raises
    ------
    SpecError
        When the row has no reason and cannot be predicted.
    """
    predicted = low = high = open_low = open_high = error = None
    if not row.reason:
        try:
            case = case_of(row)
            predicted, open_low, open_high = _values(case, row)
            low, high = (predicted, predicted) if row.kind == "fact" else row_interval(case, row, predicted)
        except SpecError as fault:
            raise row.located(fault) from None
        nearest = predicted
        if open_low is not None and open_high is not None:
            low, high = low * open_low / predicted, high * open_high / predicted
            nearest = min(max(row.published, open_low), open_high)
        error = nearest / row.published - 1
    return CheckedRow(
        id=row.id,
        group=row.group,
        subject=row.subject,
        at=row.at,
        against=row.against,
        quantity=row.quantity,
        unit=row.unit,
        published=None if np.isnan(row.published) else row.published,
        predicted=predicted,
        predicted_low=low,
        predicted_high=high,
        open_low=open_low,
        open_high=open_high,
        error=error,
        band=None if np.isnan(row.band) else row.band,
        within_band=None if error is None else abs(error) <= row.band,
        within_interval=None if low is None or high is None else low <= row.published <= high,
        used_for_fit=row.used_for_fit,
        tier=row.tier,
        workload=row.workload,
        model=row.model or model_of(row.workload),
        hardware=row.hardware,
        engine=row.engine,
        acceptance="..".join(f"{end:g}" for end in row.acceptance or ()),
        source=row.source,
        reason=row.reason,
    )


def _values(case: Case, row: Row) -> tuple[float, float | None, float | None]:
    """What is predicted in the middle of what the row leaves open, and at its ends."""
    if row.acceptance is None:
        return float(predicted_value(case, row)), None, None
    low, high = row.acceptance
    first, middle, last = predicted_value(case, row, np.array([low, (low + high) / 2, high]))
    return float(middle), float(min(first, last)), float(max(first, last))


def summarise(rows: Sequence[CheckedRow]) -> ValidationSummary:
    """Errors per group and in total, fitted and never-fitted rows apart, and the coverage."""
    predicted = [row for row in rows if row.predicted is not None]
    groups = dict.fromkeys(row.group for row in rows)
    ordered = sorted(groups, key=lambda group: GROUPS.index(group) if group in GROUPS else len(GROUPS))
    evidence = [row for row in predicted if row.is_evidence and row.kind not in RUNS]
    inside = sum(bool(row.within_interval) for row in evidence)
    served = [row for row in predicted if row.kind not in ("op", "fact", "loading")]
    operators = [row for row in predicted if row.kind == "op" and row.group.startswith("operators.")]
    return ValidationSummary(
        rows=len(rows),
        predicted_rows=len(predicted),
        fitted_rows=sum(row.used_for_fit for row in predicted),
        groups=tuple(s for g in ordered for s in _both(g, [row for row in predicted if row.group == g])),
        totals=_both("all", [row for row in predicted if row.kind != "fact"]),
        operators=_both("operators", operators),
        models=_by(served, lambda row: row.model),
        engines=_by(served, lambda row: row.engine),
        coverage=Coverage(len(evidence), inside, inside / len(evidence)) if evidence else None,
        outside_band=tuple(row.id for row in predicted if not row.within_band),
    )


def _by(rows: Sequence[CheckedRow], name: Callable[[CheckedRow], str]) -> tuple[ErrorSummary, ...]:
    names = sorted({name(row) for row in rows})
    return tuple(s for known in names for s in _both(known, [row for row in rows if name(row) == known]))


def _both(group: str, rows: Iterable[CheckedRow]) -> tuple[ErrorSummary, ...]:
    parts = [(fitted, [row for row in rows if row.used_for_fit is fitted]) for fitted in (True, False)]
    return tuple(_summary(group, fitted, part) for fitted, part in parts if part)


def _summary(group: str, fitted: bool, rows: list[CheckedRow]) -> ErrorSummary:
    errors = np.array([row.error for row in rows], dtype=float)
    worst = int(np.argmax(np.abs(errors)))
    return ErrorSummary(
        group=group,
        used_for_fit=fitted,
        rows=len(rows),
        bias_error=float(np.mean(errors)),
        median_error=float(np.median(np.abs(errors))),
        mean_error=float(np.mean(np.abs(errors))),
        worst_error=float(errors[worst]),
        worst_id=rows[worst].id,
        outside_band=sum(not row.within_band for row in rows),
    )


def _left_out(rows: Sequence[Row]) -> tuple[LeftOut, ...]:
    """The decode rows of the serving stage; the fits see all other rows of the stage that ship."""
    chosen = [row for row in rows if row.group == "decode" and row.used_for_fit]
    unseen = left_out_predictions(shipped_rows(), "serving", [row.id for row in chosen])
    return tuple(
        LeftOut(row.id, row.published, unseen[row.id], unseen[row.id] / row.published - 1, row.unit)
        for row in chosen
    )
