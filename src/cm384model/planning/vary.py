"""A plan as a function of one input."""

from __future__ import annotations

from dataclasses import dataclass

from cm384model.planning.results import PlanResult
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.units import Dimension, parse_measure, parse_value

MOST_VALUES = 1000


@dataclass(frozen=True)
class Varied:
    """One value of the input, as text, and the plan under it."""

    name: str
    value: str
    result: PlanResult


def steps(text: str, dimension: Dimension) -> list[str]:
    """Values from ``A:B:STEP``, all in the unit of their own, ends included.

    Raises
    ------
    SpecError
        If a part has no value of the dimension, the step is not above zero, or there are too many.
    """
    parts = text.split(":")
    if len(parts) != 3:
        raise SpecError.of(f"'{text}' is no range", "START:STOP:STEP, for example 10ms:50ms:5ms")
    start, stop, step = (parse_value(part, dimension) for part in parts)
    if step <= 0 or stop < start:
        raise SpecError.of(f"'{text}' is an empty range", "a stop above the start and a step above 0")
    count = int((stop - start) / step * (1 + 1e-12)) + 1
    if count > MOST_VALUES:
        raise SpecError.of(f"'{text}' has {count} values", f"at most {MOST_VALUES}")
    unit = parse_measure(parts[0], dimension)[1]
    suffix = "" if unit in ("-", "tokens") else unit
    one = parse_value(f"1{suffix}", dimension)
    return [f"{(start + i * step) / one:.10g}{suffix}" for i in range(count)]
