"""Did a number change? The golden file against the numbers of today, and what changed beneath them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cm384model.evidence.golden.cases import (
    WORD,
    Evaluated,
    Planner,
    Value,
    chosen,
    evaluate_cases,
    read_cases,
)
from cm384model.evidence.golden.record import Golden, golden_text, read_golden
from cm384model.prediction.results import SCHEMA

TOLERANCE = 1e-9
"""Relative difference up to which a number is the same, everywhere; nothing absolute beside it. [-]

Closed formulas in double precision differ by some 1e-15 between machines; anything larger is a
change that wants a reader.
"""

Status = Literal["same", "moved", "new", "missing"]
_ORDER: dict[str, int] = {"moved": 0, "new": 1, "missing": 2, "same": 3}


@dataclass(frozen=True)
class Change:
    """One number: what is pinned and what it is now. ``delta`` is relative, None where it has no meaning."""

    case: str
    quantity: str
    golden: Value | None
    now: Value | None
    unit: str
    delta: float | None
    status: Status


@dataclass(frozen=True)
class CaseChanges:
    """One case: how many of its numbers are the same, and what changed since they were pinned.

    ``cause`` is ``data`` where a data file says something else, ``case`` where the case itself
    does, ``code`` where neither does; empty where all numbers are the same. ``changed`` names the
    files.
    """

    case: str
    same: int
    moved: int
    new: int
    missing: int
    cause: str
    changed: tuple[str, ...]


@dataclass(frozen=True)
class CheckResult:
    """What a check found. ``changes`` holds every number, the largest change first."""

    cases_file: str
    golden_file: str
    same: int
    moved: int
    new: int
    missing: int
    cases: tuple[CaseChanges, ...]
    changes: tuple[Change, ...]
    versions: tuple[str, ...]
    elapsed_s: float
    schema: int = SCHEMA

    @property
    def ok(self) -> bool:
        """Whether every number is pinned and none has moved."""
        return self.moved == self.new == self.missing == 0


@dataclass(frozen=True)
class Update:
    """A new golden file, not written yet: its text, and how many numbers it adds, moves and removes."""

    text: str
    added: int
    moved: int
    removed: int


@dataclass(frozen=True)
class Check:
    """A check that has computed everything: its golden file, the numbers of today, the result."""

    golden: Golden
    now: Mapping[str, Evaluated]
    result: CheckResult


def check(cases_file: Path, golden_file: Path, planner: Planner, patterns: Sequence[str] = ()) -> Check:
    """Evaluate the cases and compare them with the golden file; some of them only with ``patterns``.

    Raises
    ------
    SpecError
        For faulty files, a pattern without a case, and cases that cannot be evaluated.
    """
    started = time.perf_counter()
    cases = read_cases(cases_file)
    golden = read_golden(golden_file)
    names = chosen(sorted({*cases, *golden.cases}), patterns)
    now = evaluate_cases({name: cases[name] for name in names if name in cases}, cases_file.parent, planner)
    changes = [change for name in names for change in _changes(name, golden.cases.get(name), now.get(name))]
    per_case = tuple(_case(name, changes, golden.cases.get(name), now.get(name)) for name in names)
    counts = {status: sum(change.status == status for change in changes) for status in _ORDER}
    pinned = {golden.cases[name].provenance.version for name in names if name in golden.cases}
    result = CheckResult(
        cases_file=str(cases_file),
        golden_file=str(golden_file),
        **counts,
        cases=per_case,
        changes=tuple(sorted(changes, key=_size)),
        versions=tuple(sorted(pinned - {""})),
        elapsed_s=time.perf_counter() - started,
    )
    return Check(golden, now, result)


def update(done: Check, patterns: Sequence[str]) -> Update:
    """The golden file with what is missing added, and with every number of the cases named moved.

    Without ``patterns`` nothing that stands in the file moves or goes. A case that is named and
    exists no more is removed.

    Raises
    ------
    SpecError
        If the new file would not read back as what was computed.
    """
    kept = dict(done.golden.cases)
    named = [summary.case for summary in done.result.cases] if patterns else []
    for name, today in done.now.items():
        old = kept.get(name)
        if old is None or name in named or _holds(old, today):
            kept[name] = today
        else:
            kept[name] = Evaluated({**today.values, **old.values}, old.provenance)
    for name in named:
        if name not in done.now:
            kept.pop(name, None)
    before, after = _flat(done.golden.cases), _flat(kept)
    moved = sum(not same(before[key][0], after[key][0]) for key in before.keys() & after.keys())
    return Update(
        golden_text(kept), len(after.keys() - before.keys()), moved, len(before.keys() - after.keys())
    )


def same(golden: Value, now: Value) -> bool:
    """Whether a value is the pinned one, within `TOLERANCE`."""
    if isinstance(golden, str) or isinstance(now, str):
        return golden == now
    return abs(now - golden) <= TOLERANCE * abs(golden)


def _holds(old: Evaluated, today: Evaluated) -> bool:
    return all(
        quantity in today.values and same(value, today.values[quantity][0])
        for quantity, (value, _) in old.values.items()
    )


def _flat(cases: Mapping[str, Evaluated]) -> dict[tuple[str, str], tuple[Value, str]]:
    return {
        (name, quantity): value for name, case in cases.items() for quantity, value in case.values.items()
    }


def _changes(name: str, golden: Evaluated | None, now: Evaluated | None) -> list[Change]:
    old = golden.values if golden else {}
    today = now.values if now else {}
    return [
        _change(name, quantity, old.get(quantity), today.get(quantity)) for quantity in sorted({*old, *today})
    ]


def _change(
    name: str, quantity: str, old: tuple[Value, str] | None, today: tuple[Value, str] | None
) -> Change:
    if old is None or today is None:
        value, unit = old or today or ("", WORD)
        if old is None:
            return Change(name, quantity, None, value, unit, None, "new")
        return Change(name, quantity, value, None, unit, None, "missing")
    golden, now = old[0], today[0]
    if same(golden, now) and old[1] == today[1]:
        return Change(name, quantity, golden, now, today[1], 0.0, "same")
    numbers = isinstance(golden, float) and isinstance(now, float) and golden != 0 and old[1] == today[1]
    delta = (now - golden) / abs(golden) if numbers else None  # type: ignore[operator, arg-type]
    return Change(name, quantity, golden, now, today[1], delta, "moved")


def _size(change: Change) -> tuple[int, float, str, str]:
    """Sorts moved numbers by the size of the move; words and zeros, which have none, first."""
    delta = float("inf") if change.delta is None else abs(change.delta)
    return _ORDER[change.status], -delta, change.case, change.quantity


def _case(
    name: str, changes: Sequence[Change], golden: Evaluated | None, now: Evaluated | None
) -> CaseChanges:
    own = [change.status for change in changes if change.case == name]
    counts = {status: own.count(status) for status in _ORDER}  # type: ignore[arg-type]
    if counts["same"] == len(own) or golden is None:
        return CaseChanges(name, **counts, cause="" if golden else "case", changed=())
    if now is None:
        return CaseChanges(name, **counts, cause="case", changed=())
    pinned, today = golden.provenance, now.provenance
    files = {*pinned.data, *today.data}
    changed = tuple(sorted(f for f in files if pinned.data.get(f) != today.data.get(f)))
    causes = [*(["case"] if pinned.case != today.case else []), *(["data"] if changed else [])]
    if not pinned.case:
        return CaseChanges(name, **counts, cause="unknown", changed=())
    return CaseChanges(name, **counts, cause=" and ".join(causes) or "code", changed=changed)
