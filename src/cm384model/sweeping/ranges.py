"""The values of an axis, as they are typed: ``32,64,128``, ``1:64``, ``1K:128K:x2``, ``30ms:60ms:5``.

Counted before they are made, so that a billion values by mistake cost nothing; made in decimal
arithmetic and read like a value of ``--at``, so that both are the same number to the last bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from cm384model.specs.diagnostics import SpecError
from cm384model.specs.units import UNITS, Dimension, parse_measure

MOST_VALUES = 10_000_000
"""Values of one axis; an axis is kept in memory."""

FORMS = "a,b,c   1:64   1:64:4 (step)   1K:128K:x2 (factor)   30ms:60ms:5 or 0.5:0.9:n5 (points)"

_MARK = re.compile(r"([+-]?(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*)", re.ASCII)
_SUFFIX = {"K": 1024, "k": 1024, "M": 1024**2}


@dataclass(frozen=True)
class Mark:
    """A value as written: an exact decimal and its unit; K and M are multiplied out."""

    number: Decimal
    unit: str
    suffixed: bool

    @property
    def whole(self) -> bool:
        """Whether it is a whole number without a unit."""
        return not self.unit and self.number == self.number.to_integral_value()


@dataclass(frozen=True)
class Span:
    """Evenly or geometrically spaced values: ``start + i * width / parts`` or ``start * factor**i``."""

    start: Decimal
    unit: str
    count: int
    width: Decimal = Decimal(0)
    parts: int = 1
    factor: Decimal = Decimal(1)

    @property
    def plain(self) -> bool:
        """Whether all values are whole numbers without a unit."""
        integral = all(x == x.to_integral_value() for x in (self.start, self.width))
        return not self.unit and integral and self.parts == 1 and self.factor == 1

    def texts(self) -> Iterator[str]:
        """Every value as it would be typed."""
        for i in range(self.count):
            yield self.text(i)

    def text(self, i: int) -> str:
        """One value as it would be typed."""
        if self.factor == 1:
            number = self.start + i * self.width / self.parts
        else:
            number = self.start * self.factor**i
        return f"{number.normalize():f}{self.unit}"


def spans(text: str, dimension: Dimension) -> list[Span]:
    """The spans that the text of an axis asks for, counted and not yet made.

    Raises
    ------
    SpecError
        For what is no value, an empty range, and a range that can be read in two ways.
    """
    found = [_span(item.strip(), dimension) for item in text.split(",") if item.strip()]
    if not found:
        raise SpecError.of("there is no value", f"forms: {FORMS}")
    count = sum(span.count for span in found)
    if count > MOST_VALUES:
        raise SpecError.of(
            f"'{text}' has {count:,} values, more than {MOST_VALUES:,}", "use a step or a factor"
        )
    return found


def values_of(found: list[Span], read: Callable[[str], float]) -> np.ndarray:
    """All values in SI units; ``read`` takes one value as typed and checks its bounds.

    Raises
    ------
    SpecError
        From ``read``, and for a value given twice.
    """
    pieces = []
    for span in found:
        if span.plain:
            for i in {0, span.count - 1}:
                read(span.text(i))
            pieces.append(float(span.start) + float(span.width) * np.arange(span.count))
        else:
            pieces.append(np.array([read(text) for text in span.texts()]))
    values: np.ndarray = np.concatenate(pieces)
    different, counts = np.unique(values, return_counts=True)
    if len(different) < len(values):
        twice = different[np.argmax(counts > 1)]
        raise SpecError.of(f"{twice:.12g} is given twice")
    return values


def _span(item: str, dimension: Dimension) -> Span:
    parts = [part.strip() for part in item.split(":")]
    if len(parts) > 3 or not all(parts):
        raise SpecError.of(f"'{item}' is neither a value nor a range", f"forms: {FORMS}")
    first = _mark(parts[0], dimension)
    if len(parts) == 1:
        return Span(first.number, first.unit, 1)
    last = _in_unit(_mark(parts[1], dimension), first.unit)
    if bool(first.unit) != bool(last.unit):
        raise SpecError.of(f"'{item}' has a unit at one end only")
    if last.number < first.number:
        raise SpecError.of(f"'{item}' is an empty range", f"for example {parts[1]}:{parts[0]}")
    return _ranged(item, first, last, parts[2] if len(parts) == 3 else None, dimension)


def _ranged(item: str, first: Mark, last: Mark, third: str | None, dimension: Dimension) -> Span:
    ends = ":".join(item.split(":")[:2])
    if third is None:
        if not (first.whole and last.whole):
            raise SpecError.of(f"'{item}' needs a step, a factor or a number of points", _three(ends))
        return _stepped(first, last, Decimal(1))
    if third[0] in "xn" and (match := _MARK.fullmatch(third[1:])) and not match[2]:
        number = Decimal(match[1])
        return _factored(item, first, last, number) if third[0] == "x" else _points(item, first, last, number)
    match = _MARK.fullmatch(third)
    if match is None:
        raise SpecError.of(f"'{third}' in '{item}' is no step, factor or number of points", _three(ends))
    if match[2]:
        step = _in_unit(_mark(third, dimension), first.unit)
        if bool(first.unit) != bool(step.unit):
            raise SpecError.of(f"the step of '{item}' is not in the unit of its ends")
        return _stepped(first, last, step.number, item)
    number = Decimal(match[1])
    if first.unit:  # a step would carry a unit too
        return _points(item, first, last, number)
    fraction = number != number.to_integral_value()
    if first.suffixed or last.suffixed or not (fraction or (first.whole and last.whole)):
        raise SpecError.of(f"'{item}' can be read in two ways: is {third} a step or a number?", _three(ends))
    return _stepped(first, last, number, item)


def _three(ends: str) -> str:
    return f"{ends}:n5 is five points, {ends}:x2 doubles, a step is written like the ends"


def _stepped(first: Mark, last: Mark, step: Decimal, item: str = "") -> Span:
    if step <= 0:
        raise SpecError.of(f"the step of '{item}' must be above 0")
    return Span(first.number, first.unit, int((last.number - first.number) / step) + 1, width=step)


def _points(item: str, first: Mark, last: Mark, number: Decimal) -> Span:
    if number != number.to_integral_value() or number < 2:
        raise SpecError.of(f"'{item}' asks for {number} points", "a whole number of at least 2")
    count = int(number)
    return Span(first.number, first.unit, count, width=last.number - first.number, parts=count - 1)


def _factored(item: str, first: Mark, last: Mark, factor: Decimal) -> Span:
    if factor <= 1 or first.number <= 0:
        raise SpecError.of(f"'{item}' does not grow", "a factor above 1 and a start above 0")
    count, value = 0, first.number
    while value <= last.number and count <= MOST_VALUES:
        count, value = count + 1, value * factor
    return Span(first.number, first.unit, count, factor=factor)


def _mark(text: str, dimension: Dimension) -> Mark:
    parse_measure(text, dimension)  # says what is wrong, if anything is
    match = _MARK.fullmatch(text.strip())
    assert match is not None
    number, unit = Decimal(match[1]), match[2].strip()
    if unit in _SUFFIX and unit not in UNITS:
        return Mark(number * _SUFFIX[unit], "", True)
    return Mark(number, unit, False)


def _in_unit(mark: Mark, unit: str) -> Mark:
    """The same value in another unit of its dimension; a bare number stays bare."""
    if mark.unit == unit or not (mark.unit and unit):
        return mark
    old, new = UNITS[mark.unit], UNITS[unit]
    factor = Decimal(old.times) * Decimal(new.over) / (Decimal(old.over) * Decimal(new.times))
    return Mark(mark.number * factor, unit, False)
