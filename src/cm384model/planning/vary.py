"""A plan as a function of one input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cm384model.planning.request import read_slo
from cm384model.planning.results import PlanResult
from cm384model.prediction.case import Case
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.overrides import apply_overrides, find_quantity
from cm384model.specs.units import Dimension, parse_measure, parse_value

LIMITS = ("tpot", "ttft", "e2e")
NUMBERS: dict[str, Dimension] = {
    "npus": "number",
    "rate": "request_rate",
    "spare_nodes": "number",
    "max_concurrency": "number",
    "reuse": "number",
    "cache_nodes": "number",
    "cache_retention": "time",
}
WHOLE = ("npus", "spare_nodes", "cache_nodes")

MOST_VALUES = 1000


@dataclass(frozen=True)
class Varied:
    """One value of the input, as text, and the plan under it."""

    name: str
    value: str
    result: PlanResult


@dataclass(frozen=True)
class Variant:
    """One value of the input: the case under it, and the arguments of `plan` that it changes."""

    name: str
    value: str
    case: Case
    asked: dict[str, Any] = field(default_factory=dict)


def variants(case: Case, vary: str, slo: Mapping[str, Any] | str | None) -> list[Variant]:
    """What ``NAME=START:STOP:STEP`` stands for: a limit, a number of `plan`, or any number of the case.

    Raises
    ------
    SpecError
        For an unknown name or a faulty range.
    """
    name, equals, text = vary.partition("=")
    if not equals:
        raise SpecError.of(f"'{vary}' is not NAME=START:STOP:STEP", "for example tpot=10ms:50ms:5ms")
    if name in LIMITS:
        limits = {k: v for k, v in vars(read_slo(case, slo)).items() if v != float("inf")}
        return [
            Variant(name, value, case, {"slo": limits | {name: parse_value(value, "time")}})
            for value in steps(text, "time")
        ]
    if name in NUMBERS:
        numbers = {value: parse_value(value, NUMBERS[name]) for value in steps(text, NUMBERS[name])}
        broken = next((v for v, number in numbers.items() if name in WHOLE and number != int(number)), None)
        if broken is not None:
            raise SpecError.of(f"{name} = {broken} is no whole number", "a whole start and step")
        whole = int if name in WHOLE else float
        return [Variant(name, value, case, {name: whole(number)}) for value, number in numbers.items()]
    specs = {kind: getattr(case, kind) for kind in ("hardware", "engine", "model", "workload")}
    dimension = find_quantity(specs, name).dimension
    return [
        Variant(name, value, Case(**apply_overrides(specs, [f"{name}={value}"])))
        for value in steps(text, dimension)
    ]


def steps(text: str, dimension: Dimension) -> list[str]:
    """Values from ``A:B:STEP``, all in the unit of their own, ends included; or those of ``A,B,C``.

    Raises
    ------
    SpecError
        If a part has no value of the dimension, the step is not above zero, or there are too many.
    """
    if "," in text:
        listed = text.split(",")
        for value in listed:
            parse_value(value, dimension)
        return listed
    parts = text.split(":")
    if len(parts) != 3:
        raise SpecError.of(f"'{text}' is no range", "START:STOP:STEP or A,B,C, for example 10ms:50ms:5ms")
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
