"""Reports of two sides: A, B, and B / A."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from cm384model.planning.compare import PlanComparison
from cm384model.prediction.compare import WHOLE, Comparison, Figure, Side, TermPair
from cm384model.report.blocks import Block, Table
from cm384model.report.report import Report, flat
from cm384model.report.values import npus_words, percent, scale, setting, significant, with_unit


class Noted(Protocol):
    """A result that carries notes."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of the machine."""


INTERVALS = (
    "tpot_s",
    "batch_time_s",
    "ttft_s",
    "throughput_tokens_per_s_per_npu",
    "run_tokens_per_s_per_npu",
)
"""Totals whose 80 % interval stands below them."""
SMALL = 0.01
"""Terms below this share of the difference are not named in the sentence that explains it. [-]"""


def compare_report(result: Comparison) -> Report:
    """What differs, totals, terms, cost of a token, memory."""
    blocks: list[Block] = [
        f"{result.phase}\nA  {_side(result.a)}\nB  {_side(result.b)}",
        figures_table("what differs", result.differences),
    ]
    if result.feasible:
        blocks += [_totals(result), _sentence(result), _times(result), _work(result)]
        if _load_differs(result):
            blocks += [_costs(result)]
    blocks.append(_memory(result))
    return Report(
        blocks,
        [flat(term) for term in result.terms],
        result,
        _notes(result.a.prediction, result.b.prediction),
    )


def compare_plans_report(result: PlanComparison) -> Report:
    """What differs, and totals and pools of the best plan of each side."""
    a, b = result.a, result.b
    blocks: list[Block] = [
        "best plans\n"
        f"A  {a.workload} on {a.hardware} with {a.engine}, {npus_words(a.npus)}\n"
        f"B  {b.workload} on {b.hardware} with {b.engine}, {npus_words(b.npus)}",
        figures_table("what differs", result.differences),
    ]
    if result.feasible:
        blocks += [
            figures_table("best plan", result.figures),
            figures_table("pools", result.pools),
            f"bound by\nA  {a.plans[0].bound_by}\nB  {b.plans[0].bound_by}",
        ]
    records = [
        {
            "name": figure.name,
            "a": figure.a,
            "b": figure.b,
            "ratio": "" if figure.ratio is None else figure.ratio,
        }
        for figure in (*result.figures, *result.pools)
    ]
    return Report(blocks, records, result, _notes(a, b))


def _notes(a: Noted, b: Noted) -> list[str]:
    """Notes of both sides, each once."""
    return list(dict.fromkeys((*a.notes, *b.notes)))


def figures_table(title: str, figures: Iterable[Figure]) -> Table:
    """A table of figures with B / A where there is a ratio."""
    rows = [(f.name, _value(f.name, f.a), _value(f.name, f.b), ratio(f.ratio)) for f in figures]
    return Table((title, "A", "B", "B / A"), rows, "lrrr")


def ratio(value: float | None) -> str:
    """B / A as a factor; empty where there is none.

    >>> ratio(0.98765), ratio(None)
    ('0.988', '')
    """
    return "" if value is None else significant(value, 3) if value >= 100 else f"{value:.3f}"


def _value(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and name.endswith("_s"):
        if "_per_" not in name:
            return with_unit(value, "s")
        return significant(value)
    if isinstance(value, float) and name.endswith("_bytes"):
        return with_unit(value, "B")
    return significant(value) if isinstance(value, float) and "throughput" in name else setting(value)


def _side(side: Side) -> str:
    return (
        f"{side.workload} on {side.hardware} with {side.engine}, "
        f"one instance of {npus_words(side.npus)} ({side.dies} dies)"
    )


def _totals(result: Comparison) -> Table:
    """Totals, each with its 80 % interval below where there is one."""
    rows: list[tuple[str, ...]] = []
    for f in result.figures:
        rows.append((f.name, _value(f.name, f.a), _value(f.name, f.b), ratio(f.ratio)))
        ends = [_interval(side, f.name) for side in (result.a, result.b)]
        if f.name in INTERVALS and all(ends):
            rows.append(("  80 % interval", *ends, ""))
    return Table(("total", "A", "B", "B / A"), rows, "lrrr")


def _interval(side: Side, name: str) -> str:
    low, high = (getattr(side.prediction, f"{name}_{end}", None) for end in ("low", "high"))
    if low is None or high is None:
        return ""
    if "_per_" in name:
        return f"{significant(low)} to {significant(high)}"
    factor, unit = scale([low, high], "s")
    return f"{significant(low / factor, 3)} to {significant(high / factor, 3)} {unit}"


def _sentence(result: Comparison) -> str:
    """Which terms explain the difference, largest first."""
    name, unit = WHOLE[result.phase]
    total = next(f for f in result.figures if f.name == unit)
    difference = total.b - total.a
    if result.main_term is None:
        return f"a {name} takes the same time on both sides"
    ranked = sorted((t for t in result.terms if t.share is not None), key=lambda t: -(t.share or 0))
    named = [t for t in ranked[:3] if (t.share or 0) > SMALL]
    against = [t for t in ranked[-1:] if (t.share or 0) < -SMALL]
    words = ", ".join(f"{_change(t)} ({t.share:.0%})" for t in named)
    sentence = (
        f"B's {name} is {with_unit(abs(difference), 's')} {'longer' if difference > 0 else 'shorter'}; "
        f"most of it: {words}"
    )
    return sentence + (f"; against it: {_change(against[0])}" if against else "")


def _change(term: TermPair) -> str:
    """What a term adds to the step or batch of B, in words."""
    time = with_unit(abs(term.difference_s), "s", 3)
    if term.name == "hidden":
        return f"overlap hides {time} {'less' if term.difference_s > 0 else 'more'}"
    return f"{term.name} {'+' if term.difference_s > 0 else '-'}{time}"


def _times(result: Comparison) -> Table:
    terms = _shown(result.terms)
    factor, unit = scale([max(max(t.a.time_s, t.b.time_s) for t in terms) / 2], "s")
    rows = [
        (
            t.name,
            f"{t.a.time_s / factor:.3f}",
            f"{t.b.time_s / factor:.3f}",
            ratio(t.ratio["time_s"]),
            f"{t.difference_s / factor:+.3f}",
            percent(t.share) if t.share and t.difference_s else "",
            t.a.bound,
            t.b.bound,
        )
        for t in terms
    ]
    a, b = (sum(getattr(t, side).time_s for t in terms) for side in ("a", "b"))
    last = (f"{a / factor:.3f}", f"{b / factor:.3f}", ratio(b / a), f"{(b - a) / factor:+.3f}")
    rows.append((WHOLE[result.phase][0], *last, percent(1) if b != a else "", "", ""))
    header = (
        "term",
        f"A [{unit}]",
        f"B [{unit}]",
        "B / A",
        f"B - A [{unit}]",
        "of B - A",
        "bound A",
        "bound B",
    )
    return Table(header, rows, "lrrrrrll")


def _work(result: Comparison) -> Table:
    terms = [t for t in result.terms if t.a.flop or t.b.flop or t.a.bytes or t.b.bytes]
    flop, flop_unit = scale([value for t in terms for value in (t.a.flop, t.b.flop)], "FLOP")
    byte, byte_unit = scale([value for t in terms for value in (t.a.bytes, t.b.bytes)], "B")

    def cells(t: TermPair, key: str, factor: float) -> tuple[str, str, str]:
        pair = [getattr(side, key) / factor for side in (t.a, t.b)]
        return (*(f"{value:.3f}" if value else "" for value in pair), ratio(t.ratio[key]))  # type: ignore[return-value]

    rows = [(t.name, *cells(t, "flop", flop), *cells(t, "bytes", byte)) for t in terms]
    header = [f"{side} [{unit}]" for unit in (flop_unit, byte_unit) for side in ("A", "B")]
    return Table(
        ("work of a die", header[0], header[1], "B / A", header[2], header[3], "B / A"), rows, "lrrrrrr"
    )


def _load_differs(result: Comparison) -> bool:
    """Whether a step or batch of one side serves other tokens than one of the other."""
    term = next(t for t in result.terms if t.a.time_s)
    return abs((term.ratio["npu_time_s"] or 0) - (term.ratio["time_s"] or 0)) > 1e-9


def _costs(result: Comparison) -> Table:
    """What a token costs, by term: the inverse of throughput, taken apart."""
    terms = _shown(result.terms)
    factor, unit = scale([max(max(t.a.npu_time_s, t.b.npu_time_s) for t in terms) / 2], "s")
    rows = [
        (
            t.name,
            f"{t.a.npu_time_s / factor:.3f}",
            f"{t.b.npu_time_s / factor:.3f}",
            ratio(t.ratio["npu_time_s"]),
            f"{t.npu_difference_s / factor:+.3f}",
            percent(t.npu_share) if t.npu_share and t.npu_difference_s else "",
        )
        for t in terms
    ]
    a, b = (sum(getattr(t, side).npu_time_s for t in terms) for side in ("a", "b"))
    last = (f"{a / factor:.3f}", f"{b / factor:.3f}", ratio(b / a), f"{(b - a) / factor:+.3f}")
    rows.append(("NPU time of a token", *last, percent(1) if b != a else ""))
    header = ("cost of a token", f"A [{unit}]", f"B [{unit}]", "B / A", f"B - A [{unit}]", "of B - A")
    return Table(header, rows, "lrrrrr")


def _shown(terms: Sequence[TermPair]) -> list[TermPair]:
    return [t for t in terms if t.a.time_s or t.b.time_s]


def _memory(result: Comparison) -> Table:
    rows = [
        (f.name, f"{f.a / 1e9:.3f}", f"{f.b / 1e9:.3f}", ratio(f.ratio), f"{(f.b - f.a) / 1e9:+.3f}")
        for f in result.ledger
        if f.a or f.b
    ]
    return Table(("memory of a die", "A [GB]", "B [GB]", "B / A", "B - A [GB]"), rows, "lrrrr")
