"""Reports of the ledger: published against predicted rows, and what they say together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from cm384model.evidence.targets import Target
from cm384model.evidence.validate import COVERAGE, CheckedRow, ErrorSummary, LeftOut, Validation
from cm384model.report.blocks import Block, Table
from cm384model.report.report import Report, flat
from cm384model.report.values import percent, signed, significant, with_unit

REASONS = 8
"""Most reasons in a short report."""

ENOUGH = 30
"""Rows that it takes to judge the intervals by the share they hold. [-]"""

_SERVING = ("decode", "prefill", "ablations", "caching", "loading", "other_machine")

BY = ("group", "model", "engine")
"""What a summary can be by."""

_PAPER = (("arXiv 2506.12708 v2 ", "zuo2025 "), ("hicann/cann-recipes-infer ", "cann-recipes "))


def validate_report(found: Validation, *, every: bool, chosen: bool, by: str | None = None) -> Report:
    """The ledger and its summary.

    Parameters
    ----------
    found : Validation
    every : bool
        Whether to show every row and the reason of each one that is not predicted.
    chosen : bool
        Whether the user chose groups, whose rows are then shown; else operators are summarised.
    by : str, optional
        One of `BY`: the summary by that alone, in every format.
    """
    if by is not None:
        summaries = {"group": found.summary.groups, "model": found.summary.models}
        chosen_summaries = summaries.get(by, found.summary.engines)
        table = summary_table(chosen_summaries, by)
        return Report([heading(found), table], [flat(summary) for summary in chosen_summaries], found)
    predicted = [row for row in found.rows if row.predicted is not None]
    shown = predicted if every or chosen else serving_rows(predicted)
    outside = [row for row in predicted if row.within_band is False and row not in shown]
    blocks: list[Block] = [heading(found), summary_table(group_summaries(found)), coverage_line(found)]
    if not chosen:
        blocks += ["steps, batches and runs by model", summary_table(found.summary.models, "model")]
        blocks += ["and by engine", summary_table(found.summary.engines, "engine")]
    if found.targets and not chosen:
        blocks += ["what the model is to show", targets_table(found.targets)]
    if found.leave_one_out:
        blocks += left_out_blocks(found.leave_one_out)
    if outside:
        blocks += ["rows outside their band", rows_table(outside)]
    if shown:
        blocks += [_said(shown, predicted), rows_table(shown)]
    blocks += reasons_blocks(found.rows, every=every)
    return Report(blocks, [_record(row) for row in found.rows], found)


def heading(found: Validation) -> str:
    """How many rows there are, and what became of them."""
    s = found.summary
    unseen = s.predicted_rows - s.fitted_rows
    return (
        f"{s.rows} published rows, {s.predicted_rows} predicted: {s.fitted_rows} fitted a constant or are an "
        f"input, {unseen} did neither"
    )


def group_summaries(found: Validation) -> list[ErrorSummary]:
    """Errors per group, then of all operators and of all rows; fitted and never-fitted rows apart."""
    s = found.summary
    groups = [*s.groups]
    if len({summary.group for summary in groups}) > 1:
        groups += [*s.operators, *s.totals]
    return groups


def summary_table(summaries: Sequence[ErrorSummary], by: str = "group") -> Table:
    """Errors of the rows of each group, model or engine."""
    header = (by, "rows were", "rows", "bias", "median", "mean", "worst", "outside", "worst row")
    return Table(header, [_summary_row(summary) for summary in summaries], "llrrrrrrl")


def _summary_row(s: ErrorSummary) -> tuple[str, ...]:
    return (
        {"operators": "operators, all", "all": "all but inputs"}.get(s.group, s.group),
        "fitted" if s.used_for_fit else "never fitted",
        str(s.rows),
        signed(s.bias_error),
        percent(s.median_error),
        percent(s.mean_error),
        signed(s.worst_error),
        str(s.outside_band) if s.outside_band else "",
        s.worst_id,
    )


def coverage_line(found: Validation) -> str:
    """How often an 80 % interval holds the truth on rows that fitted nothing."""
    coverage = found.summary.coverage
    if coverage is None:
        return "no never-fitted row among these: nothing says how good the 80 % intervals are"
    low, high = COVERAGE
    held = f"80 % intervals hold {coverage.within_interval} of {coverage.rows} never-fitted rows"
    if coverage.rows < ENOUGH:
        return f"{held}: too few to judge them"
    verdict = "as it should" if low <= coverage.share <= high else "as it should NOT"
    return f"{held}: {percent(coverage.share)}, {verdict} ({100 * low:.0f} to {100 * high:.0f} %)"


def targets_table(targets: Iterable[Target]) -> Table:
    """Every target with its bar and what was measured."""
    rows = [
        (target.title, bar(target), measured(target), "yes" if target.met else "NO") for target in targets
    ]
    return Table(("target", "bar", "measured", "met"), rows, "lrrl")


_FORMS: dict[str, Callable[[float], str]] = {
    "points": lambda value: f"{100 * value:.1f} points",
    "rise": lambda value: f"{100 * value:+.2f} points",
    "predicted": signed,
    "constants": lambda value: f"{value:.0f}",
}


def bar(target: Target) -> str:
    """The bar of a target in its own terms."""
    form = _FORMS.get(target.measure, percent)
    if target.bar_low is None:
        return f"<= {form(target.bar_high)}"
    return f"{form(target.bar_low)} .. {form(target.bar_high)}"


def measured(target: Target) -> str:
    """What was measured for a target, in its own terms."""
    form = _FORMS.get(target.measure, percent)
    low, high = form(target.measured_low), form(target.measured_high)
    return low if low == high else f"{low} .. {high}"


def left_out_blocks(rows: Sequence[LeftOut]) -> list[Block]:
    """Rows that the fit never saw."""
    mean = sum(abs(row.error) for row in rows) / len(rows)
    cells = [
        (row.id, with_unit(row.published, row.unit), with_unit(row.predicted, row.unit), signed(row.error))
        for row in rows
    ]
    return [
        f"each decode row predicted by a fit that never saw it: mean absolute error {percent(mean)}",
        Table(("row", "published", "predicted", "error"), cells, "lrrr"),
    ]


def serving_rows(predicted: Iterable[CheckedRow]) -> list[CheckedRow]:
    """Rows of steps, batches, caching and loading, those of the shipped groups in their order.

    The rows of other engines are many: only those of a short group are among them.
    """
    rows = [row for row in predicted if row.kind not in ("op", "fact") and not of_engines(row)]
    return sorted(rows, key=lambda row: _SERVING.index(row.group) if row.group in _SERVING else -1)


def of_engines(row: CheckedRow) -> bool:
    """Whether a row is one of the many of other engines and machines."""
    return row.group.startswith("serving.")


def _said(shown: Sequence[CheckedRow], predicted: Sequence[CheckedRow]) -> str:
    if len(shown) == len(predicted):
        return f"rows ({len(shown)})"
    return (
        f"serving rows ({len(shown)}; other engines with --group serving, operators with --group operators, "
        "every row with --all)"
    )


def rows_table(rows: Iterable[CheckedRow]) -> Table:
    """Rows one by one; the band says so where a row leaves it."""
    header = ("row", "published", "predicted", "error", "band", "fitted", "covered", "source")
    return Table(header, [_row(row) for row in rows], "lrrrrlll")


def _row(row: CheckedRow) -> tuple[str, ...]:
    band = f"{100 * (row.band or 0):.3g} %"
    return (
        row.id,
        value(row.published, row.unit),
        predicted(row),
        signed(row.error or 0.0),
        band if row.within_band else f"OUT OF {band}",
        "yes" if row.used_for_fit else "no",
        "yes" if row.within_interval else "no",
        short_source(row.source),
    )


def predicted(row: CheckedRow) -> str:
    """The prediction, or its ends where the source leaves something open."""
    if row.open_low is None:
        return value(row.predicted, row.unit)
    low, high = (value(end, row.unit) for end in (row.open_low, row.open_high))
    unit = low.partition(" ")[2]
    return f"{low.removesuffix(f' {unit}')} .. {high}" if unit and high.endswith(unit) else f"{low} .. {high}"


def value(number: float | None, unit: str) -> str:
    """A published or predicted value; a ratio with three decimals."""
    if number is None:
        return ""
    return significant(number) if unit == "-" else with_unit(number, unit).replace("tokens/s", "tok/s")


def short_source(source: str) -> str:
    """A source whose place comes first when the line is cut."""
    for long, short in _PAPER:
        source = source.replace(long, short)
    return source


def reasons_blocks(rows: Iterable[CheckedRow], *, every: bool) -> list[Block]:
    """Rows that are not predicted: one by one, or counted by the first half of their reason."""
    without = [row for row in rows if row.predicted is None]
    if not without:
        return []
    said = f"not predicted ({len(without)} row{'s' if len(without) > 1 else ''})"
    if every:
        listed = [(row.id, value(row.published, row.unit), row.reason) for row in without]
        return [said, Table(("row", "published", "reason"), listed, "lrl")]
    counts = Counter(short_reason(row.reason) for row in without).most_common()
    cells = [(str(count), reason) for reason, count in counts[:REASONS]]
    rest = sum(count for _, count in counts[REASONS:])
    if rest:
        cells.append(
            (str(rest), f"{len(counts) - REASONS} other reasons; --all lists every row with its own")
        )
    return [said, Table(("rows", "reason"), cells, "rl")]


def short_reason(reason: str) -> str:
    """The first part of a reason."""
    return reason.split(";")[0].split(":")[0].split(" (")[0]


def _record(row: CheckedRow) -> dict[str, object]:
    return {name: "" if entry is None else entry for name, entry in flat(row).items()}
