"""What a law says about itself: formula, operands, validity and references, read from its docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_SECTION = re.compile(r"^(\w+)\n-{3,}\n", re.MULTILINE)
_ENTRY = re.compile(r"^(\w+) : .*\n((?:    .*\n?|\n)+)", re.MULTILINE)
_UNIT = re.compile(r"\s*\[([^\]]+)\]$")
_SYMBOL = re.compile(r",?\s*:math:`([^`]+)`")
_REFERENCE = re.compile(r"^\.\. \[\d+\] (.*(?:\n    .*)*)", re.MULTILINE)
_ROLE = re.compile(r":math:`([^`]+)`")


@dataclass(frozen=True)
class Operand:
    """One operand or the result of a law: what it means, its symbol (LaTeX) and its unit."""

    name: str
    meaning: str
    symbol: str
    unit: str


@dataclass(frozen=True)
class Reference:
    """A key of the bibliography, and where in that source."""

    key: str
    place: str


@dataclass(frozen=True)
class LawDoc:
    """The docstring of a law, taken apart; the formula is LaTeX."""

    name: str
    module: str
    summary: str
    formula: str
    operands: tuple[Operand, ...]
    result: Operand
    notes: str
    references: tuple[Reference, ...]


def read_lawdoc(law: Callable[..., Any]) -> LawDoc:
    """The docstring of a law, taken apart."""
    text = inspect.getdoc(law) or ""
    head, *rest = _SECTION.split(text)
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    summary, _, description = head.partition("\n")
    return LawDoc(
        name=law.__name__,
        module=law.__module__.rpartition(".")[2],
        summary=summary.rstrip("."),
        formula=_formula(description),
        operands=_entries(sections.get("Parameters", "")),
        result=next(iter(_entries(sections.get("Returns", ""))), Operand("result", "", "", "-")),
        notes=_ROLE.sub(r"\1", sections.get("Notes", "")).strip(),
        references=_references(sections.get("References", "")),
    )


def _formula(description: str) -> str:
    match = re.search(r"\.\. math::\n((?:    .*\n?|\n)+)", description)
    return " ".join(match[1].split()) if match else ""


def _entries(section: str) -> tuple[Operand, ...]:
    return tuple(_operand(name, " ".join(body.split())) for name, body in _ENTRY.findall(section + "\n"))


def _operand(name: str, text: str) -> Operand:
    unit = _UNIT.search(text)
    symbol = _SYMBOL.search(text)
    meaning = _SYMBOL.sub("", _UNIT.sub("", text), count=1)
    meaning = _ROLE.sub(r"\1", meaning).rstrip(". ")
    return Operand(name, meaning, symbol[1] if symbol else "", unit[1] if unit else "-")


def _references(section: str) -> tuple[Reference, ...]:
    """References; one footnote may cite several sources, separated by semicolons."""
    found = []
    for footnote in _REFERENCE.findall(section):
        for cited in " ".join(footnote.split()).rstrip(".").split("; "):
            key, _, place = cited.partition(", ")
            key, colon, remark = key.partition(": ") if ": " in key else (key, "", "")
            found.append(Reference(key.strip(), place or remark if colon else place))
    return tuple(found)
