"""A number, its unit and where it comes from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from cm384model.recording import Reading, record, recording_active
from cm384model.specs.diagnostics import with_suggestion
from cm384model.specs.units import NOUN, SI_UNIT, UNITS, Dimension, parse_value, units_of

__all__ = [
    "UNITS",
    "Alternative",
    "ByteRate",
    "Bytes",
    "Count",
    "CountOrZero",
    "Deadline",
    "Dimension",
    "Efficiency",
    "FlopRate",
    "Measure",
    "Quantity",
    "Ratio",
    "Share",
    "Sourced",
    "Time",
    "Tokens",
    "fault",
    "parse_value",
]

Per = Literal[
    "die",
    "npu",
    "node",
    "supernode",
    "cpu",
    "core",
    "link",
    "request",
    "token",
    "layer",
    "expert",
    "message",
    "kernel",
    "step",
    "rank",
    "instance",
]
Kind = Literal["defined", "vendor", "measured", "fitted", "secondary", "assumed"]
Confidence = Literal["A", "B", "C", "D"]

_NEEDS_PER: frozenset[Dimension] = frozenset({"bytes", "byte_rate", "flop_rate"})
LARGEST = 1e24
"""No value is larger, or smaller than one over it: products of some of them stay finite. [-]"""

_FREE_SOURCES = ("guess", "choice", "command line")


def fault(message: str, hint: str | None = None, key: str | None = None) -> PydanticCustomError:
    """A validation error with its own words; ``key`` is the key inside the value that is to blame."""
    return PydanticCustomError("cm384", "{message}", {"message": message, "hint": hint, "key": key})


class Sourced(float):
    """A float in SI units that remembers the quantity it is and the path where that stands."""

    __slots__ = ("path", "quantity")
    quantity: Quantity
    path: str

    def __new__(cls, value: float, quantity: Quantity, path: str) -> Self:
        """A float with its provenance."""
        self = super().__new__(cls, value)
        self.quantity = quantity
        self.path = path
        return self

    def __getnewargs__(self) -> tuple[Any, ...]:
        return float(self), self.quantity, self.path


def _known_source(source: str, info: ValidationInfo) -> str:
    """The source starts with a key of [sources], or says that it is none."""
    known = (info.context or {}).get("sources")
    first = source.split(maxsplit=1)[0] if source.strip() else ""
    if not first:
        raise fault("source must not be empty")
    if (
        known is None
        or source in _FREE_SOURCES
        or source.startswith(("derived: ", "fit: "))
        or first in known
    ):
        return source
    raise fault(
        with_suggestion(f"unknown source '{first}'", first, [*known, "guess", "choice"]),
        f"a source starts with a key of [sources] ({', '.join(known) or 'none yet'}) "
        "or is 'guess', 'choice', 'derived: ...', 'fit: ...'",
    )


Value = Annotated[float, Field(allow_inf_nan=False)]
SourceText = Annotated[str, AfterValidator(_known_source)]


class Alternative(BaseModel):
    """A rival value, in the unit of the quantity it stands under."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    value: Value
    source: SourceText
    kind: Kind
    confidence: Confidence
    note: str | None = None


class Quantity(BaseModel):
    """One number with its unit and its whole provenance.

    ``carried_from`` is the machine that the number belongs to where another one uses it.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    value: Value
    unit: str
    per: Per | None = Field(default=None, validate_default=True)
    source: SourceText
    kind: Kind
    confidence: Confidence
    range: tuple[Value, Value] | None = Field(default=None, strict=False, validate_default=True)
    note: str | None = None
    alternatives: tuple[Alternative, ...] = Field(default=(), strict=False)
    carried_from: str | None = None

    _path: str = PrivateAttr(default="")

    @field_validator("value")
    @classmethod
    def _check_value(cls, value: float) -> float:
        if value < 0:
            raise fault(f"value must not be negative, is {value:.12g}")
        if value and not 1 / LARGEST <= value <= LARGEST:
            raise fault(f"value must be 0 or from {1 / LARGEST:g} to {LARGEST:g}, is {value:.12g}")
        return value

    @field_validator("unit")
    @classmethod
    def _check_unit(cls, unit: str) -> str:
        if unit not in UNITS:
            raise fault(with_suggestion(f"unknown unit '{unit}'", unit, UNITS))
        return unit

    @field_validator("per")
    @classmethod
    def _check_per(cls, per: Per | None, info: ValidationInfo) -> Per | None:
        unit = info.data.get("unit")
        if per is None and unit is not None and UNITS[unit].dimension in _NEEDS_PER:
            raise fault(f"missing key 'per': '{unit}' per what?", 'for example per = "die"')
        return per

    @field_validator("kind")
    @classmethod
    def _check_kind(cls, kind: Kind, info: ValidationInfo) -> Kind:
        if info.data.get("source") == "guess" and kind != "assumed":
            raise fault(f"source 'guess' needs kind 'assumed', not '{kind}'")
        return kind

    @field_validator("range")
    @classmethod
    def _check_range(
        cls, pair: tuple[float, float] | None, info: ValidationInfo
    ) -> tuple[float, float] | None:
        value = info.data.get("value")
        if pair is None:
            if info.data.get("source") == "guess":
                raise fault("source 'guess' needs a range", "for example range = [0.5, 1.0]")
        elif pair[0] > pair[1]:
            raise fault(f"range [{pair[0]:.12g}, {pair[1]:.12g}] is upside down")
        elif value is not None and not pair[0] <= value <= pair[1]:
            raise fault(f"value {value:.12g} lies outside its range [{pair[0]:.12g}, {pair[1]:.12g}]")
        return pair

    @property
    def origin(self) -> str:
        """The source, and on which other machine it was found if it was on another one."""
        if self.carried_from is None:
            return self.source
        return f"carried over from {self.carried_from}, not measured here: {self.source}"

    @property
    def dimension(self) -> Dimension:
        """What the unit measures."""
        return UNITS[self.unit].dimension

    @property
    def path(self) -> str:
        """Where the quantity stands, such as ``hardware.die.hbm_bandwidth``; empty outside a spec."""
        return self._path

    @property
    def si(self) -> Any:
        """The value in SI units: a `Sourced` float, or a plain array if the value is one.

        Reading it leaves a trace in an open `recording`.
        """
        if recording_active():
            record(Reading(self._path, self))
        return self._si

    @cached_property
    def _si(self) -> Any:
        value = UNITS[self.unit].to_si(self.value)
        return Sourced(value, self, self._path) if isinstance(value, float) else value

    @property
    def range_si(self) -> tuple[float, float] | None:
        """The range in SI units."""
        to_si = UNITS[self.unit].to_si
        return None if self.range is None else (to_si(self.range[0]), to_si(self.range[1]))

    def at(self, path: str) -> None:
        """Remember where the quantity stands; called once, when its spec is built."""
        self._path = path
        self.__dict__.pop("_si", None)

    def with_si(self, value: Any) -> Quantity:
        """The same quantity with another value in SI units, unchecked: a number or a numpy array."""
        new = self.model_copy(
            update={"value": value, "unit": SI_UNIT[self.dimension], "range": None, "alternatives": ()}
        )
        new.__dict__.pop("_si", None)
        return new


@dataclass(frozen=True)
class Measure:
    """What a field expects of its quantity: a dimension and bounds, in SI units."""

    dimension: Dimension
    low: float = 0.0
    high: float = math.inf
    above_low: bool = False
    whole: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    @property
    def units(self) -> list[str]:
        """The units the field accepts."""
        return [name for name in units_of(self.dimension) if not (self.whole and name == "%")]

    def check(self, quantity: Quantity) -> Quantity:
        """The quantity, or an error that names the expected units or bounds."""
        if quantity.unit not in UNITS or quantity.dimension != self.dimension:
            raise fault(
                f"unit '{quantity.unit}' measures {NOUN[quantity.dimension]}, not {NOUN[self.dimension]}",
                f"use {', '.join(self.units)}",
                key="unit",
            )
        if not self._inside(quantity.si):
            raise fault(f"value must be {self._words()}, is {_written(quantity)}", key="value")
        if quantity.range_si is not None and not all(map(self._inside, quantity.range_si)):
            raise fault(f"range must be {self._words()}", key="range")
        return quantity

    def _inside(self, value: float) -> bool:
        above = value > self.low if self.above_low else value >= self.low
        return above and value <= self.high and not (self.whole and value != math.floor(value))

    def _words(self) -> str:
        noun = "a whole number, " if self.whole else ""
        low = f"above {self.low:g}" if self.above_low else f"at least {self.low:g}"
        return noun + (low if self.high == math.inf else f"{low} and at most {self.high:g}")


def _written(quantity: Quantity) -> str:
    return f"{quantity.value:.12g}" + ("" if quantity.unit in ("-", "1") else f" {quantity.unit}")


Time = Annotated[Quantity, Measure("time")]
"""A time; zero is a legal latency."""
Deadline = Annotated[Quantity, Measure("time", above_low=True)]
"""A time that cannot be zero."""
Bytes = Annotated[Quantity, Measure("bytes", above_low=True)]
"""An amount of memory."""
ByteRate = Annotated[Quantity, Measure("byte_rate", above_low=True)]
"""A bandwidth."""
FlopRate = Annotated[Quantity, Measure("flop_rate", above_low=True)]
"""A rate of arithmetic."""
Tokens = Annotated[Quantity, Measure("tokens", above_low=True)]
"""A length in tokens; a mean may be fractional."""
Count = Annotated[Quantity, Measure("number", low=1, whole=True)]
"""A whole number of things, at least one."""
Cores = Annotated[Quantity, Measure("number", low=1, high=1_000, whole=True)]
"""Cores of a die; the planner tries every split of them."""
CountOrZero = Annotated[Quantity, Measure("number", whole=True)]
"""A whole number of things that may be absent."""
Share = Annotated[Quantity, Measure("number", high=1)]
"""A part of a whole, from 0 to 1."""
Efficiency = Annotated[Quantity, Measure("number", high=1, above_low=True)]
"""An attained part of a peak: above 0, at most 1."""
Ratio = Annotated[Quantity, Measure("number")]
"""A plain number, at least 0."""
