"""Rows of a CSV or JSON file with the line each stands in, and what is wrong with one said there."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cm384model.specs.diagnostics import Problem, SpecError, with_suggestion
from cm384model.specs.units import NOUN, SI_UNIT, UNITS, Dimension, units_of


@dataclass(frozen=True)
class Line:
    """One row as text by column, and where it stands; its columns are named in line ``names_at``."""

    cells: Mapping[str, str]
    file: str
    number: int
    text: str
    names_at: int
    names_text: str

    def __getitem__(self, column: str) -> str:
        """The text of a cell; empty where the file has no such column."""
        return self.cells.get(column, "")

    def problem(self, message: str, cell: str = "", hint: str | None = None) -> Problem:
        """What is wrong, pointing at the text of a cell if the line shows it."""
        at = max(self.text.find(cell), 0) if cell else 0
        length = len(cell) if cell and cell in self.text else len(self.text)
        name = f"{self['id']}: " if self["id"] else ""
        return Problem(name + message, self.file, self.number, at + 1, max(length, 1), self.text, hint)

    def error(self, message: str, cell: str = "", hint: str | None = None) -> SpecError:
        """The same as an error of its own."""
        return SpecError([self.problem(message, cell, hint)])

    def located(self, error: SpecError) -> SpecError:
        """An error that knows no file, at this line."""
        return SpecError([self.problem(p.message, "", p.hint) for p in error.problems])

    def si(self, column: str, dimension: Dimension) -> float:
        """A positive value with the unit of the column ``unit``, in SI units.

        Raises
        ------
        SpecError
            For no number, a value that is not finite and positive, no unit and one of another
            dimension.
        """
        value, unit = self[column], self["unit"]
        number = self.positive(column)
        if not unit:
            raise self.error(
                f"{column} = {value} needs a unit", value, f"units of {NOUN[dimension]}: {_listed(dimension)}"
            )
        if unit not in UNITS:
            raise self.error(
                with_suggestion(f"unknown unit '{unit}'", unit, units_of(dimension)),
                unit,
                f"units of {NOUN[dimension]}: {_listed(dimension)}",
            )
        if UNITS[unit].dimension != dimension:
            raise self.error(
                f"unit '{unit}' measures {NOUN[UNITS[unit].dimension]}, not {NOUN[dimension]}",
                unit,
                f"use {_listed(dimension)}",
            )
        return float(UNITS[unit].to_si(number))

    def positive(self, column: str) -> float:
        """A positive and finite number.

        Raises
        ------
        SpecError
            If it is none.
        """
        text = self[column]
        try:
            number = float(text)
        except ValueError:
            hint = "the unit goes into the column 'unit'" if text[:1].isdigit() else None
            raise self.error(f"{column} = '{text}' is not a number", text, hint) from None
        if not (math.isfinite(number) and number > 0):
            raise self.error(f"{column} = {text} must be finite and positive", text)
        return number


def _listed(dimension: Dimension) -> str:
    return ", ".join(units_of(dimension)) if dimension != "number" else SI_UNIT[dimension]


def read_lines(path: Path, columns: Sequence[str], required: Iterable[str]) -> list[Line]:
    """Lines of a file with known columns and different ids.

    Parameters
    ----------
    path : Path
        CSV with a header, or JSON: a list of objects.
    columns : sequence of str
        Every column there may be.
    required : iterable of str
        Columns there must be.

    Raises
    ------
    SpecError
        If the file cannot be read or has no rows, and for unknown and missing columns, rows with
        too many cells, missing ids and ids that stand there twice.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SpecError.of(f"cannot read '{path}': {reason}") from error
    lines = list((_json_lines if path.suffix == ".json" else _csv_lines)(text, str(path)))
    if not lines:
        raise SpecError([Problem("there is no row", str(path), hint=f"columns are {', '.join(columns)}")])
    problems = _column_problems(lines, columns, tuple(required)) or list(_id_problems(lines))
    if problems:
        raise SpecError(problems)
    return lines


def _csv_lines(text: str, file: str) -> Iterator[Line]:
    shown = text.splitlines()
    reader = csv.reader(shown)
    header: list[str] | None = None
    start = names_at = 1
    for cells in reader:
        number, start = start, reader.line_num + 1
        if not any(cells) or cells[0].startswith("#"):
            continue
        if header is None:
            header, names_at = [cell.strip() for cell in cells], number
            if len(set(header)) < len(header):
                twice = next(name for name in header if header.count(name) > 1)
                text = shown[number - 1]
                raise SpecError([Problem(f"column '{twice}' stands twice", file, number, source_line=text)])
            continue
        if len(cells) > len(header):
            raise SpecError(
                [
                    Problem(
                        f"{len(cells)} cells under {len(header)} columns",
                        file,
                        number,
                        source_line=shown[number - 1],
                        hint='a cell with a comma goes between quotes: "ep=8,tokens_per_die=128"',
                    )
                ]
            )
        padded = [cell.strip() for cell in cells] + [""] * (len(header) - len(cells))
        cells_by_name = dict(zip(header, padded, strict=True))
        yield Line(cells_by_name, file, number, shown[number - 1], names_at, shown[names_at - 1])


def _json_lines(text: str, file: str) -> Iterator[Line]:
    def fault(message: str, at: int) -> SpecError:
        number = text.count("\n", 0, at) + 1
        shown = text.splitlines()[number - 1] if text else ""
        return SpecError([Problem(message, file, number, source_line=shown, hint='[{"id": ...}, ...]')])

    decoder = json.JSONDecoder(object_pairs_hook=_single)
    at = len(text) - len(text.lstrip())
    if text[at : at + 1] != "[":
        raise fault("needs a list of objects", min(at, max(len(text) - 1, 0)))
    at += 1
    while True:
        while text[at : at + 1] and text[at] in " \t\r\n,":
            at += 1
        if text[at : at + 1] == "]":
            return
        try:
            entry, end = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, ValueError) as error:
            raise fault(
                f"not valid JSON: {getattr(error, 'msg', error)}", getattr(error, "pos", at)
            ) from None
        if not isinstance(entry, dict):
            raise fault("needs an object with a name for each value", at)
        number = text.count("\n", 0, at) + 1
        cells = {name: "" if value is None else str(value).strip() for name, value in entry.items()}
        line = text.splitlines()[number - 1]
        yield Line(cells, file, number, line, number, line)
        at = end


def _single(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"'{next(name for name in names if names.count(name) > 1)}' stands twice")
    return dict(pairs)


def _column_problems(lines: list[Line], columns: Sequence[str], required: tuple[str, ...]) -> list[Problem]:
    """Unknown and missing columns, each said once and together where one is the other misspelled."""
    problems = []
    present = {name for line in lines for name in line.cells}
    for name in sorted(present - set(columns)):
        first = next(line for line in lines if name in line.cells)
        absent = [column for column in required if column not in present]
        message = with_suggestion(f"unknown column '{name}'", name, [*absent, *columns])
        problems.append(_of_names(first, message, name, f"columns are {', '.join(columns)}"))
    for name in required:
        if name not in present and not problems:
            hint = f"required are {', '.join(required)}"
            problems.append(_of_names(lines[0], f"there is no column '{name}'", "", hint))
    return problems


def _of_names(line: Line, message: str, name: str, hint: str) -> Problem:
    """What is wrong with the names of the columns."""
    at = max(line.names_text.find(name), 0)
    length = len(name) or len(line.names_text)
    return Problem(message, line.file, line.names_at, at + 1, length, line.names_text, hint)


def _id_problems(lines: list[Line]) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for line in lines:
        name = line["id"]
        if not name:
            yield line.problem("the row has no id")
        elif name in seen:
            yield line.problem(f"the id stands in line {seen[name]} too", name, "every row has its own id")
        seen.setdefault(name, line.number)
