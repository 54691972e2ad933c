"""The closed table of units: no prefix is parsed, every name is written out."""

from __future__ import annotations

import math
import re
from typing import Any, Literal, NamedTuple

from cm384model.specs.diagnostics import SpecError, with_suggestion

Dimension = Literal[
    "number", "time", "bytes", "byte_rate", "flop", "flop_rate", "tokens", "token_rate", "request_rate"
]


class Unit(NamedTuple):
    """A unit: ``value * times / over`` is in SI; two exact factors, so that 70 % is 0.7 to the last bit."""

    dimension: Dimension
    times: float
    over: float

    def to_si(self, value: Any) -> Any:
        """The value in the SI unit of the dimension."""
        return value * self.times / self.over


_TABLE: dict[Dimension, dict[str, tuple[float, float]]] = {
    "number": {"-": (1, 1), "1": (1, 1), "%": (1, 100)},
    "time": {
        "s": (1, 1),
        "ms": (1, 1e3),
        "us": (1, 1e6),
        "\u00b5s": (1, 1e6),  # micro sign
        "\u03bcs": (1, 1e6),  # Greek mu
        "ns": (1, 1e9),
        "min": (60, 1),
        "h": (3600, 1),
    },
    "bytes": {
        "B": (1, 1),
        "KB": (1e3, 1),
        "MB": (1e6, 1),
        "GB": (1e9, 1),
        "TB": (1e12, 1),
        "KiB": (2**10, 1),
        "MiB": (2**20, 1),
        "GiB": (2**30, 1),
        "TiB": (2**40, 1),
    },
    "byte_rate": {
        "B/s": (1, 1),
        "KB/s": (1e3, 1),
        "MB/s": (1e6, 1),
        "GB/s": (1e9, 1),
        "TB/s": (1e12, 1),
        "GiB/s": (2**30, 1),
        "TiB/s": (2**40, 1),
        "bit/s": (1, 8),
        "Kbit/s": (1e3, 8),
        "Mbit/s": (1e6, 8),
        "Gbit/s": (1e9, 8),
        "Tbit/s": (1e12, 8),
        "Gbps": (1e9, 8),
    },
    "flop": {"FLOP": (1, 1), "GFLOP": (1e9, 1), "TFLOP": (1e12, 1)},
    "flop_rate": {
        "FLOP/s": (1, 1),
        "GFLOP/s": (1e9, 1),
        "TFLOP/s": (1e12, 1),
        "PFLOP/s": (1e15, 1),
        "TOP/s": (1e12, 1),
        "TOPS": (1e12, 1),
    },
    "tokens": {"tokens": (1, 1)},
    "token_rate": {"tokens/s": (1, 1)},
    "request_rate": {"requests/s": (1, 1), "/s": (1, 1)},
}

UNITS: dict[str, Unit] = {
    name: Unit(dimension, float(times), float(over))
    for dimension, names in _TABLE.items()
    for name, (times, over) in names.items()
}
"""Every unit by name."""

SI_UNIT: dict[Dimension, str] = {dimension: next(iter(names)) for dimension, names in _TABLE.items()}
"""The unit of each dimension in which the laws compute."""

NOUN: dict[Dimension, str] = {
    "number": "a plain number",
    "time": "a time",
    "bytes": "bytes",
    "byte_rate": "bytes per second",
    "flop": "operations",
    "flop_rate": "operations per second",
    "tokens": "tokens",
    "token_rate": "tokens per second",
    "request_rate": "requests per second",
}
"""What a unit of each dimension measures, in words."""

_USUAL: dict[Dimension, tuple[str, ...]] = {
    "time": ("ms", "s"),
    "bytes": ("GB", "GiB"),
    "byte_rate": ("GB/s", "TB/s"),
    "flop": ("GFLOP", "TFLOP"),
    "flop_rate": ("TFLOP/s", "PFLOP/s"),
    "token_rate": ("tokens/s",),
    "request_rate": ("requests/s",),
}

_SUFFIX = {"K": 1024, "k": 1024, "M": 1024**2}
_VALUE = re.compile(r"([+-]?(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*)")


def units_of(dimension: Dimension) -> list[str]:
    """Names of the units of a dimension, without the second spelling of the micro sign."""
    return [name for name in _TABLE[dimension] if name.isascii()]


def parse_measure(text: str, dimension: Dimension) -> tuple[float, str]:
    """Value and unit of a text such as ``50ms``, both as written; K and M count tokens by 1024.

    >>> parse_measure("1.6 TB/s", "byte_rate"), parse_measure("4K", "tokens")
    ((1.6, 'TB/s'), (4096.0, 'tokens'))
    """
    text = text.strip()
    match = _VALUE.fullmatch(text)
    if match is None:
        raise SpecError.of(f"'{text}' is not a value", _example(dimension))
    digits, unit = match[1], match[2].strip()
    value = float(digits)
    if value < 0 or not math.isfinite(value):
        raise SpecError.of(f"'{text}' must be finite and not negative")
    if dimension in ("number", "tokens"):
        if not unit or unit in _SUFFIX:
            return value * _SUFFIX.get(unit, 1), SI_UNIT[dimension]
    elif not unit:
        raise SpecError.of(f"'{text}' needs a unit: {', '.join(digits + name for name in _USUAL[dimension])}")
    if unit not in UNITS:
        raise SpecError.of(
            with_suggestion(f"unknown unit '{unit}' in '{text}'", unit, units_of(dimension)),
            _example(dimension),
        )
    if UNITS[unit].dimension != dimension:
        raise SpecError.of(
            f"'{text}' measures {NOUN[UNITS[unit].dimension]}, not {NOUN[dimension]}", _example(dimension)
        )
    return value, unit


def parse_value(text: str, dimension: Dimension) -> float:
    """A value of the command line in SI units.

    >>> parse_value("50ms", "time"), parse_value("70%", "number")
    (0.05, 0.7)
    """
    value, unit = parse_measure(text, dimension)
    return float(UNITS[unit].to_si(value))


def _example(dimension: Dimension) -> str:
    if dimension == "tokens":
        return "write a count of tokens: 2048, 4K"
    return f"units are {', '.join(units_of(dimension))}"
