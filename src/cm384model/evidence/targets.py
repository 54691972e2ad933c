"""What the model is to show, and what it shows."""

from __future__ import annotations

import functools
import itertools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.resources import files
from typing import Any

import numpy as np

from cm384model.evidence.published import Row, case_of
from cm384model.prediction.evaluate import decode_deployment, decode_outputs
from cm384model.recording import Reading, recording

BATCHES = (8, 16, 32, 64, 96, 128)
"""Requests per NPU over which the gain of a draft token is looked at. [-]"""


@dataclass(frozen=True)
class Target:
    """A bar and what was measured against it; met if both ends lie between the ends of the bar.

    ``measure`` says what the numbers are: an error (mean, median, p90, worst, unseen), points of a
    ratio (points, rise), a ratio less 1 (predicted), a share (coverage) or a count (constants).
    ``reason`` says why a target is known to be missed.
    """

    name: str
    title: str
    measure: str
    measured_low: float
    measured_high: float
    bar_low: float | None
    bar_high: float
    met: bool
    reason: str


@dataclass(frozen=True)
class Answers:
    """What the targets are measured on: the rows and what was found about them, by id."""

    rows: Mapping[str, Row]
    predicted: Mapping[str, float]
    errors: Mapping[str, float]
    unseen_error: Mapping[str, float]
    coverage: float | None

    def error(self, name: str) -> float:
        """Relative error of a row."""
        return self.errors[name]


@functools.cache
def _definitions() -> dict[str, dict[str, Any]]:
    text = files("cm384model.evidence").joinpath("targets.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def targets_of(answers: Answers) -> tuple[Target, ...]:
    """Every target that the rows at hand answer in full."""
    targets = []
    for name, given in _definitions().items():
        ids = _chosen(answers, given)
        ends = _MEASURES[given["measure"]](answers, ids) if ids or given["measure"] == "coverage" else None
        if ends is not None:
            low, high = given.get("between", (None, given.get("most")))
            met = (low is None or low <= ends[0]) and ends[1] <= high
            targets.append(
                Target(
                    name,
                    given["title"],
                    given["measure"],
                    *ends,
                    low,
                    float(high),
                    met,
                    given.get("reason", ""),
                )
            )
    return tuple(targets)


def _chosen(answers: Answers, given: Mapping[str, Any]) -> list[str]:
    """Ids of the rows of a target; none where a row it names is not at hand."""
    patterns = given.get("rows")
    if patterns is None:
        groups, subjects = given.get("groups", "*"), given.get("subjects", "*")
        hardware, engine = given.get("hardware", "*"), given.get("engine", "*")
        fitted = given.get("used_for_fit")
        return [
            name
            for name, row in answers.rows.items()
            if name in answers.predicted
            and fnmatch(row.group, groups)
            and fnmatch(row.subject, subjects)
            and fnmatch(row.hardware, hardware)
            and fnmatch(row.engine, engine)
            and fitted in (None, row.used_for_fit)
        ]
    found = [[name for name in answers.predicted if fnmatch(name, pattern)] for pattern in patterns]
    return [name for names in found for name in names] if all(found) else []


Ends = tuple[float, float]


def _error(summary: Callable[[Sequence[float]], Any]) -> Callable[[Answers, list[str]], Ends | None]:
    def measured(answers: Answers, ids: list[str]) -> Ends | None:
        value = float(summary([abs(answers.error(name)) for name in ids]))
        return value, value

    return measured


def _unseen(answers: Answers, ids: list[str]) -> Ends | None:
    if not set(ids) <= set(answers.unseen_error):
        return None
    value = float(np.mean([abs(answers.unseen_error[name]) for name in ids]))
    return value, value


def _points(answers: Answers, ids: list[str]) -> Ends | None:
    value = max(abs(answers.predicted[name] - answers.rows[name].published) for name in ids)
    return value, value


def _predicted(answers: Answers, ids: list[str]) -> Ends | None:
    gains = [answers.predicted[name] - 1 for name in ids]
    return min(gains), max(gains)


def _coverage(answers: Answers, ids: list[str]) -> Ends | None:
    return None if answers.coverage is None else (answers.coverage, answers.coverage)


def _constants(answers: Answers, ids: list[str]) -> Ends | None:
    """Constants fitted to the serving rows that the decode step of a row reads."""
    row = answers.rows[ids[0]]
    case = case_of(row)
    with recording() as entries:
        decode_outputs(case, decode_deployment(case, row.at))
    read = {entry.path: entry.quantity for entry in entries if isinstance(entry, Reading)}
    count = float(sum(q.source.startswith("fit: stage serving,") for q in read.values()))
    return count, count


def _rise(answers: Answers, ids: list[str]) -> Ends | None:
    """Largest rise of the gain of a draft token from one batch to the next; negative if it only falls."""
    case = case_of(answers.rows[ids[0]])

    def tpot(batch: int, drafts: int) -> float:
        at = {"ep": 320, "batch_per_npu": batch, "draft_tokens": drafts, "acceptance": 0.7, "kv_len": 4096}
        schedules = [decode_deployment(case, at | {"microbatches": n}) for n in (1, 2)]
        return min(float(decode_outputs(case, deployment)[1]["tpot_s"]) for deployment in schedules)

    gains = [tpot(batch, 0) / tpot(batch, 1) for batch in BATCHES]
    rise = max(after - before for before, after in itertools.pairwise(gains))
    return rise, rise


_MEASURES: dict[str, Callable[[Answers, list[str]], Ends | None]] = {
    "mean": _error(np.mean),
    "median": _error(np.median),
    "p90": _error(lambda errors: np.quantile(errors, 0.9)),
    "worst": _error(max),
    "unseen": _unseen,
    "points": _points,
    "predicted": _predicted,
    "coverage": _coverage,
    "constants": _constants,
    "rise": _rise,
}
