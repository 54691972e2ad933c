"""A machine or an engine that states only what is different, and takes the rest from another file.

What is taken is named table by table, so nothing comes along by accident. Numbers that were
found on the other one say so; on another chip they become assumptions with wider ranges.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, ClassVar

from pydantic import Field

from cm384model.specs.constants import AT_MOST_ONE
from cm384model.specs.diagnostics import with_suggestion
from cm384model.specs.quantity import fault
from cm384model.specs.spec import Section

Table = dict[str, Any]

FOUND = ("measured", "fitted")
"""Kinds of numbers that were found on one machine and are uncertain on another."""


class Extends(Section):
    """From where a file takes what it does not state; ``KEY`` names the other file, by name or path.

    Attributes
    ----------
    take : tuple of str
        Tables that are taken, such as ``die`` or ``ops``; what this file states goes before them.
    like : dict of str to str
        Further tables, each with the one of the other file that it is like:
        ``"ops.gemm_fp8" = "ops.gemm_int8"``.
    widen : float
        1 for the same chip. Else the factor by which ranges of found and assumed numbers grow to
        both sides, and the numbers count as assumed. Of a file that was read: the product over
        the files that it goes through. [-]
    why : str
        What makes the other one the nearest.
    """

    KEY: ClassVar[str]

    take: tuple[str, ...] = Field(strict=False, min_length=1)
    like: dict[str, str] = Field(default_factory=dict)
    widen: float = Field(default=1.0, ge=1, allow_inf_nan=False)
    why: str

    @property
    def other(self) -> str:
        """Name or path of the other file."""
        return str(getattr(self, self.KEY))


class ExtendsMachine(Extends):
    """``machine`` is the other machine."""

    KEY = "machine"

    machine: str


class ExtendsEngine(Extends):
    """``engine`` is the other engine."""

    KEY = "engine"

    engine: str


def merged(own: Table, base: Table, extends: Extends) -> Table:
    """The tables of a file: those it takes from ``base``, changed by what it states itself.

    Raises
    ------
    PydanticCustomError
        For a table that the other file does not have; its key is ``take`` or ``like``.
    """
    taken: Table = {"sources": {**base["sources"], **own.get("sources", {})}}
    pairs = [("take", path, path) for path in extends.take]
    pairs += [("like", to, path) for to, path in extends.like.items()]
    for key, to, path in pairs:
        *parents, last = to.split(".")
        place = taken
        for name in parents:
            place = place.setdefault(name, {})
        table = deepcopy(_table(base, path, key))
        for name, number in _numbers(table):
            _carry(name, number, extends.widen, str(base["name"]))
        place[last] = _over(table, place.get(last, {}))
    through = base.get("extends", {}).get("widen", 1.0)
    return {**_over(taken, own), "extends": extends.model_copy(update={"widen": extends.widen * through})}


def _table(base: Table, path: str, key: str) -> Table:
    node: Any = base
    for name in path.split("."):
        node = node.get(name) if isinstance(node, Mapping) else None
    if not isinstance(node, dict) or _is_number(node) or path in ("sources", "extends"):
        known = [name for name in _tables(base) if name.partition(".")[0] not in ("sources", "extends")]
        raise fault(with_suggestion(f"{base['name']} has no table '{path}'", path, known), key=key)
    return node


def _tables(node: Table, prefix: str = "") -> Iterator[str]:
    for name, child in node.items():
        if isinstance(child, dict) and not _is_number(child):
            yield f"{prefix}{name}"
            yield from _tables(child, f"{prefix}{name}.")


def _is_number(node: Any) -> bool:
    return isinstance(node, Mapping) and "value" in node


def _numbers(table: Table) -> Iterator[tuple[str, Table]]:
    for name, child in table.items():
        if _is_number(child):
            yield name, child
        elif isinstance(child, dict):
            yield from _numbers(child)


def _carry(name: str, number: Table, widen: float, owner: str) -> None:
    """Mark a number as that of another file; on another chip widen its range too."""
    same = widen == 1
    if number["kind"] == "defined" or (same and number["kind"] == "vendor"):
        return
    number.setdefault("carried_from", owner)
    if same:
        return
    if number["kind"] in FOUND or "range" in number:
        number["range"] = _wider(name, number, widen)
    number |= {"kind": "assumed", "confidence": "D"}


def _wider(name: str, number: Table, factor: float) -> list[float]:
    """The range of a number, larger to both sides; whole numbers stay whole and shares below 1."""
    value = number["value"]
    low, high = number.get("range", (value, value))
    whole = number["unit"] == "-" and all(end == int(end) for end in (value, low, high))
    low, high = low / factor, high * factor
    if name.endswith(AT_MOST_ONE):
        high = max(min(high, 1.0), value)
    return [math.floor(low), math.ceil(high)] if whole and value > 1 else [low, high]


def _over(below: Table, above: Mapping[str, Any]) -> Table:
    """Two tables in one; numbers and words of ``above`` replace those below."""
    found = dict(below)
    for name, value in above.items():
        old = found.get(name)
        tables = isinstance(value, dict) and not _is_number(value) and not _is_number(old)
        found[name] = _over(old, value) if tables and isinstance(old, dict) else value
    return found
