"""Reports of ``cm384 check --against``: how two versions differ on a random sample of deployments."""

from __future__ import annotations

import dataclasses

from cm384model.evidence.golden.against import AgainstResult, NumberChange, QuantityChange
from cm384model.report.blocks import Block, Command, Table
from cm384model.report.check import delta_text
from cm384model.report.ci import CiReport, Outcome
from cm384model.report.values import percent

SHOWN = 20
"""Changed numbers of data files that a table shows; JSON has all."""


def against_report(result: AgainstResult, *, only_changed: bool = False) -> CiReport:
    """Both versions, what differs in their data files, and how far every quantity moves."""
    quantities = [q for q in result.quantities if q.unchanged < 1 or not only_changed]
    rate = result.deployments / result.elapsed_s
    blocks: list[Block] = [
        f"{result.old_version} against {result.new_version}: {result.deployments:,} random deployments "
        f"in {result.elapsed_s:.2f} s ({rate:,.0f}/s), {result.compared:,} fit the memory and are compared",
    ]
    if result.ok:
        blocks.append("nothing changed")
    if result.data_changes:
        blocks.append(_numbers_table(result.data_changes[:SHOWN]))
    if len(result.data_changes) > SHOWN:
        blocks.append(
            f"{len(result.data_changes) - SHOWN:,} more numbers differ: --format json has all of them"
        )
    blocks += ["\n".join(lines)] if (lines := _lines(result)) else []
    if quantities and not (result.ok and only_changed):
        blocks.append(_quantities_table(quantities))
    worst = quantities[0] if quantities else None
    if worst is not None and worst.worst:
        blocks += [f"the largest change, {worst.quantity}, is that of", Command(worst.worst)]
    return CiReport(
        blocks,
        [dataclasses.asdict(quantity) for quantity in quantities],
        dataclasses.replace(result, quantities=tuple(quantities)),
        suite="cm384 check --against",
        outcomes=[*map(_outcome, result.quantities), *_other_outcomes(result)],
    )


def _lines(result: AgainstResult) -> list[str]:
    counts = {
        "that fitted the memory do not any more": result.fits_no_more,
        "that did not fit the memory do now": result.fits_now,
        "cannot be predicted any more": result.lost,
        "can be predicted now": result.gained,
    }
    lines = [f"{count:,} deployments {words}" for words, count in counts.items() if count]
    for words, files in (("gone", result.only_old), ("new", result.only_new)):
        lines += [f"{words}: {', '.join(files)}"] if files else []
    return lines


def _numbers_table(numbers: tuple[NumberChange, ...]) -> Table:
    rows = [(n.file, n.path, n.old_value or "none", n.new_value or "none") for n in numbers]
    return Table(("data file", "number", "old", "new"), rows, "llll")


def _quantities_table(quantities: list[QuantityChange]) -> Table:
    rows = [
        (
            q.quantity,
            f"{q.deployments:,}",
            percent(q.unchanged),
            *(
                (delta_text(q.median), _size(q.p95), _size(q.largest, sign="+"))
                if q.unchanged < 1
                else ("",) * 3
            ),
        )
        for q in quantities
    ]
    header = ("quantity", "deployments", "unchanged", "median", "95 % below", "largest")
    return Table(header, rows, "lrrrrr")


def _spread(quantity: QuantityChange) -> tuple[str, str, str]:
    if quantity.unchanged == 1:
        return "", "", ""
    return delta_text(quantity.median), _size(quantity.p95), _size(quantity.largest, sign="+")


def _size(change: float | None, sign: str = "") -> str:
    return "from 0" if change is None else f"{100 * change:{sign}.3g} %"


def _outcome(quantity: QuantityChange) -> Outcome:
    if quantity.unchanged == 1:
        return Outcome(quantity.quantity, "unchanged")
    summary = (
        f"{percent(1 - quantity.unchanged)} of {quantity.deployments:,} deployments changed, "
        f"the most by {_size(quantity.largest, sign='+')}"
    )
    return Outcome(quantity.quantity, summary, [quantity.worst], failed=True)


def _other_outcomes(result: AgainstResult) -> list[Outcome]:
    lines = _lines(result)
    return [Outcome("deployments and files", "; ".join(lines), failed=True)] if lines else []
