"""Reports of ``cm384 check``: which numbers moved, and what moved beneath them."""

from __future__ import annotations

import dataclasses

from cm384model import __version__
from cm384model.evidence.golden.cases import WORD, Value
from cm384model.evidence.golden.check import CaseChanges, Change, Check
from cm384model.report.blocks import Block, Table
from cm384model.report.ci import CiReport, Outcome
from cm384model.report.values import with_unit

SHOWN = 40
"""Changes that a table shows; csv and JSON have all."""
_DETAILS = 12


def check_report(done: Check, *, only_changed: bool = False) -> CiReport:
    """The changes, largest first; every number that is the same too where a machine reads."""
    result = done.result
    changes = [change for change in result.changes if change.status != "same"]
    cases = [case for case in result.cases if not (only_changed and _unchanged(case))]
    total = result.same + len(changes)
    rate = total / result.elapsed_s
    blocks: list[Block] = [
        f"{total:,} numbers of {_cases(len(result.cases))} in {result.elapsed_s:.2f} s ({rate:,.0f}/s): "
        f"{result.same:,} same, {result.moved:,} moved, {result.new:,} new, {result.missing:,} missing"
    ]
    if changes:
        blocks.append(_changes_table(changes[:SHOWN]))
    if len(changes) > SHOWN:
        blocks.append(f"{len(changes) - SHOWN:,} smaller changes are not shown: --format csv has all of them")
    if cases:
        blocks.append(_cases_table(cases))
    blocks += causes(done)
    kept = tuple(changes) if only_changed else result.changes
    return CiReport(
        blocks,
        [dataclasses.asdict(change) for change in kept],
        dataclasses.replace(result, changes=kept, cases=tuple(cases)),
        outcomes=[_outcome(case, done, changes) for case in result.cases],
    )


def causes(done: Check) -> list[Block]:
    """What changed since the numbers were pinned: which data files, which cases, or else the code."""
    result = done.result
    by_file: dict[str, int] = {}
    for case in result.cases:
        for file in case.changed:
            by_file[file] = by_file.get(file, 0) + 1
    lines = [f"data: {file} says something else since the pin ({_cases(n)})" for file, n in by_file.items()]
    own = sum("case" in case.cause for case in result.cases)
    if own:
        lines.append(f"case: the case itself is another, new or gone ({_cases(own)})")
    code = sum(case.cause == "code" for case in result.cases)
    if code:
        versions = ", ".join(version for version in result.versions if version != __version__)
        release = f", pinned with {versions} and checked with {__version__}" if versions else ""
        lines.append(f"code: the data files say the same, so cm384 itself changed ({_cases(code)}{release})")
    unknown = sum(case.cause == "unknown" for case in result.cases)
    if unknown:
        lines.append(f"unknown: the golden file does not say what it was computed from ({_cases(unknown)})")
    return ["\n".join(lines)] if lines else []


def _cases(count: int) -> str:
    return f"{count} case" if count == 1 else f"{count} cases"


def delta_text(delta: float | None) -> str:
    """A relative change in per cent, with its sign.

    >>> delta_text(-0.0319), delta_text(1e-6), delta_text(None)
    ('-3.19 %', '+0.0001 %', '')
    """
    if delta == 0:
        return "0 %"
    return "" if delta is None else f"{100 * delta:+.3g} %"


def value_text(value: Value | None, unit: str) -> str:
    """A value of a change as people read it."""
    if value is None:
        return ""
    return value if isinstance(value, str) else with_unit(value, unit, 5)


def _pair(change: Change) -> tuple[str, str]:
    """Both values, with as many digits as it takes to tell them apart."""
    old, new = value_text(change.golden, change.unit), value_text(change.now, change.unit)
    if old == new and isinstance(change.golden, float) and isinstance(change.now, float):
        unit = "" if change.unit == "-" else f" {change.unit}"
        return f"{change.golden:.12g}{unit}", f"{change.now:.12g}{unit}"
    return old, new


def _changes_table(changes: list[Change]) -> Table:
    rows = [(c.case, c.quantity, *_pair(c), delta_text(c.delta), c.status) for c in changes]
    words = any(change.unit == WORD for change in changes)
    side = "l" if words else "r"
    return Table(("case", "quantity", "golden", "now", "delta", "status"), rows, f"ll{side}{side}rl")


def _cases_table(cases: list[CaseChanges]) -> Table:
    rows = [
        (c.case, *(str(n) if n else "" for n in (c.same, c.moved, c.new, c.missing)), c.cause) for c in cases
    ]
    return Table(("case", "same", "moved", "new", "missing", "changed"), rows, "lrrrrl")


def _unchanged(case: CaseChanges) -> bool:
    return case.moved == case.new == case.missing == 0


def _outcome(case: CaseChanges, done: Check, changes: list[Change]) -> Outcome:
    if _unchanged(case):
        return Outcome(case.case, f"{case.same} same")
    own = [change for change in changes if change.case == case.case]
    details = [_line(change) for change in own[:_DETAILS]]
    if len(own) > _DETAILS:
        details.append(f"and {len(own) - _DETAILS} more")
    changed = f" ({', '.join(case.changed)})" if case.changed else ""
    summary = (
        f"{case.same} same, {case.moved} moved, {case.new} new, {case.missing} missing; "
        f"changed: {case.cause}{changed}"
    )
    line = min((done.golden.lines.get((case.case, change.quantity), 1) for change in own[:1]), default=1)
    return Outcome(case.case, summary, details, failed=True, file=done.result.golden_file, line=line)


def _line(change: Change) -> str:
    old, new = _pair(change)
    if change.status == "moved":
        delta = f" ({delta_text(change.delta)})" if change.delta is not None else ""
        return f"{change.quantity}: {old} -> {new}{delta}"
    return f"{change.quantity}: {change.status}, {old or new}"
