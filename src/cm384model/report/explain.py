"""Reports of an explanation: from a total to its terms, from a term to its formulas and sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cm384model.prediction.case import Case
from cm384model.prediction.explain import (
    Explanation,
    LawUsed,
    NumberUsed,
    ReferenceUsed,
    TermExplanation,
)
from cm384model.report.blocks import WIDTH, Block, Command, Table
from cm384model.report.formula import readable
from cm384model.report.predict import TOTAL, heading, terms_of
from cm384model.report.report import Report
from cm384model.report.values import percent, setting, with_unit

COLUMNS = 6
"""Most evaluations of one law side by side."""


def explain_report(case: Case, explanation: Explanation, command: str) -> Report:
    """A summary of all terms, or everything behind one term."""
    blocks: list[Block]
    title = heading(case, explanation.phase, explanation.deployment)
    if explanation.term is not None:
        records = [_number_record(number) for number in explanation.term.numbers]
        blocks = [title, *_term_blocks(explanation, explanation.term)]
        return Report(blocks, records, explanation, explanation.notes)
    total = TOTAL[explanation.phase]
    summed = explanation.total_time_s + explanation.hidden_time_s
    largest = max(explanation.terms, key=lambda term: term.time_s)
    blocks = [
        title,
        terms_of(explanation.terms, explanation.hidden_time_s, total),
        "formulas, operands and sources of one term:",
        Command(f"{command} {largest.name}"),
    ]
    shares = [
        {"name": t.name, "time_s": t.time_s, "share": t.time_s / summed}
        | {"flop": t.flop, "bytes": t.bytes, "bound": t.bound}
        for t in explanation.terms
    ]
    return Report(blocks, shares, explanation, explanation.notes)


def _term_blocks(explanation: Explanation, term: TermExplanation) -> list[Block]:
    total = TOTAL[explanation.phase]
    line = f"{term.name}: {with_unit(term.time_s, 's')}, {percent(term.share)} of the sum of all terms"
    if term.time_s:
        line += f", {term.bound} bound"
    if not term.laws:
        waits = f"no law: the numbers below, as often as the {total} waits for them"
        line += "\n" + (waits if term.time_s else "nothing that this deployment executes")
    blocks: list[Block] = [line]
    if term.time_s:
        blocks.append(_operators(term))
    names = list(dict.fromkeys(law.law for law in term.laws))
    for name in names:
        blocks += _law_blocks([law for law in term.laws if law.law == name])
    if term.numbers:
        blocks += [f"numbers read ({len(term.numbers)})", _numbers(term.numbers)]
    references = _references(law.references for law in term.laws)
    if references:
        blocks += ["references", references]
    return blocks


def _operators(term: TermExplanation) -> Table:
    rows = [
        (
            operator.name,
            setting(operator.executions),
            with_unit(operator.time_s, "s"),
            with_unit(operator.total_time_s, "s"),
            operator.bound,
        )
        for operator in term.operators
    ]
    return Table(("operator", "executions", "time of one", "time of all", "bound"), rows, "lrrrl")


def _law_blocks(laws: Sequence[LawUsed]) -> list[Block]:
    first = laws[0]
    equations = readable(first.formula).replace(",   ", "\n    ")
    blocks: list[Block] = [f"{first.law}: {first.summary}\n    {equations}"]
    lasts = {law.operator: law.operator.rpartition("/")[2] for law in laws}
    labels = {
        whole: last if list(lasts.values()).count(last) == 1 else "\n".join(whole.split("/")[-2:])
        for whole, last in lasts.items()
    }
    start = 0
    while start < len(laws):
        for count in range(COLUMNS, 0, -1):
            table = _evaluations(laws[start : start + count], labels)
            if table.width <= WIDTH:
                break
        blocks.append(table)
        start += count
    return blocks


def _evaluations(laws: Sequence[LawUsed], labels: Mapping[str, str]) -> Table:
    """One column for each operator that evaluated the law, one row for each operand."""
    rows = []
    for i, operand in enumerate(laws[0].operands):
        paths = [law.operands[i].path for law in laws]
        source = _together(paths)
        if source and None in paths:
            owners = [labels[law.operator] for law, path in zip(laws, paths, strict=True) if path]
            source += f" ({', '.join(owners)})".replace("\n", " ")
        values = [with_unit(law.operands[i].value, operand.unit) for law in laws]
        rows.append((readable(operand.symbol), operand.name, *values, source))
    result = laws[0].result
    values = [with_unit(law.result.value, result.unit) for law in laws]
    symbol = readable(result.symbol)
    rows.append(("" if " " in symbol else symbol, f"= {result.name}", *values, ""))
    names = [labels[law.operator] for law in laws]
    return Table(("", "operand", *names, "read from"), rows, "ll" + "r" * len(laws) + "l")


def _together(paths: Iterable[str | None]) -> str:
    """Different paths in one: ``hardware.ops.{gemm_int8, gemm_bf16}.overlap``."""
    different = [path.split(".") for path in dict.fromkeys(paths) if path]
    if len(different) < 2:
        return ".".join(*different) if different else ""
    shortest = min(map(len, different))
    head = next((i for i in range(shortest) if len({path[i] for path in different}) > 1), shortest)
    tail = next((i for i in range(shortest - head) if len({path[-1 - i] for path in different}) > 1), 0)
    middles = ", ".join(".".join(path[head : len(path) - tail]) for path in different)
    parts = [*different[0][:head], "{" + middles + "}", *different[0][len(different[0]) - tail :]]
    return ".".join(parts)


def _numbers(numbers: Iterable[NumberUsed]) -> Table:
    rows = [
        (
            number.path,
            f"{number.value:g}" + ("" if number.unit == "-" else f" {number.unit}"),
            "" if number.range is None else f"{number.range[0]:g} to {number.range[1]:g}",
            number.kind,
            number.confidence,
            number.source,
        )
        for number in numbers
    ]
    return Table(("number", "value", "range", "kind", "conf.", "source"), rows, "lrllll")


def _number_record(number: NumberUsed) -> dict[str, object]:
    low, high = number.range or ("", "")
    return {
        "path": number.path,
        "value": number.value,
        "unit": number.unit,
        "per": number.per,
        "range_low": low,
        "range_high": high,
        "kind": number.kind,
        "confidence": number.confidence,
        "source": number.source,
        "note": number.note,
    }


def _references(groups: Iterable[tuple[ReferenceUsed, ...]]) -> str:
    """Every source once, with all places cited."""
    places: dict[str, list[str]] = {}
    first: dict[str, ReferenceUsed] = {}
    for reference in (reference for group in groups for reference in group):
        first.setdefault(reference.key, reference)
        cited = places.setdefault(reference.key, [])
        if reference.place and reference.place not in cited:
            cited.append(reference.place)
    return "\n".join(
        f"{key}: {ref.title}, {ref.ref}" + (f" ({'; '.join(places[key])})" if places[key] else "")
        for key, ref in first.items()
    )
