"""Rows of a sweep for people, and what each of its columns is."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cm384model.report.blocks import Block, Table
from cm384model.report.glossary import GLOSSARY
from cm384model.report.report import Report
from cm384model.report.values import scale, significant
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.quantity import Quantity
from cm384model.specs.spec import node_at
from cm384model.specs.units import SI_UNIT
from cm384model.sweeping.study import Study

HEADER_WIDTH = 12
_UNITS = {"_bytes_per_s": "B/s", "_flop_per_s": "FLOP/s", "_bytes": "B", "_flop": "FLOP", "_s": "s"}
_KNOWN = {entry.name: entry for entry in GLOSSARY}


def column_entries(study: Study) -> list[dict[str, str]]:
    """Name, unit and meaning of every column, from the glossary or from the data file of an axis."""
    return [_entry(study, name) for name in study.columns]


def _entry(study: Study, name: str) -> dict[str, str]:
    axis = study.axis(name)
    if axis is not None and axis.role == "path":
        node = node_at(getattr(study.case, axis.name.partition(".")[0]), axis.name)
        unit = SI_UNIT[node.dimension] if isinstance(node, Quantity) else "-"
        return {"name": name, "unit": unit, "meaning": f"{axis.name} of the data files"}
    if name in _KNOWN:
        return {"name": name, "unit": _KNOWN[name].unit, "meaning": _KNOWN[name].meaning}
    if name.endswith("_time_s"):
        return {"name": name, "unit": "s", "meaning": f"time of the term {name.removesuffix('_time_s')}"}
    pool, _, rest = name.partition("_")
    end = {"_low": "low end of ", "_high": "high end of "}
    for suffix, words in end.items():
        if name.endswith(suffix) and name.removesuffix(suffix) in _KNOWN:
            known = _KNOWN[name.removesuffix(suffix)]
            return {"name": name, "unit": known.unit, "meaning": f"{words}the 80 % interval: {known.meaning}"}
    if rest in _KNOWN:
        return {"name": name, "unit": _KNOWN[rest].unit, "meaning": f"{pool} pool: {_KNOWN[rest].meaning}"}
    raise KeyError(f"the glossary has no '{name}'")


def sweep_report(
    title: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str], rest: int = 0
) -> Report:
    """A title and a table of rows; ``rest`` more are not shown."""
    blocks: list[Block] = [title] if title else []
    if rows:
        blocks.append(rows_table(rows, columns))
    if rest:
        blocks.append(f"and {rest:,} more rows; -o FILE keeps them all")
    return Report(blocks, list(rows), list(rows))


def rows_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Table:
    """Rows as text, every column in the unit in which its largest value reads well."""
    header, cells, align = [], [], ""
    for name in columns:
        values = [row[name] for row in rows]
        numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
        unit = _unit(name)
        factor, shown = scale(numbers, unit)
        header.append(_header(name, shown if unit else ""))
        cells.append([_cell(value, factor) for value in values])
        align += "r" if numbers else "l"
    return Table(tuple(header), list(zip(*cells, strict=True)), align)


def _unit(name: str) -> str:
    name = name.removesuffix("_low").removesuffix("_high")
    if name in _KNOWN and _KNOWN[name].unit in ("s", "B", "FLOP"):
        return _KNOWN[name].unit
    if name.endswith(("tokens_per_s", "requests_per_s")):
        return ""
    return next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), "")


def _header(name: str, unit: str) -> str:
    if unit:
        for end in ("_low", "_high", ""):
            suffix = next((suffix for suffix in _UNITS if name.endswith(suffix + end)), "")
            if suffix:
                name = name.removesuffix(suffix + end) + end
                break
    words = " ".join(name.split(".")[-2:]).replace("_", " ")
    lines = textwrap.wrap(words, HEADER_WIDTH)
    return "\n".join([*lines, f"[{unit}]"] if unit else lines)


def _cell(value: Any, factor: float) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return str(value) if isinstance(value, int) and factor == 1 else significant(value / factor)
    return str(value)


def result_title(path: str, rows: int, columns: int, said: Mapping[str, Any], *, finished: bool) -> str:
    """What a written sweep is: its size, its case, its origin.

    Raises
    ------
    SpecError
        For provenance of another shape than a sweep writes.
    """
    lines = [f"{path}: {rows:,} rows x {columns} columns"]
    if not finished:
        lines[0] += "; unfinished, --resume continues it"
    try:
        return "\n".join(lines + (_origin(said) if said else []))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise SpecError.of(
            f"what stands beside '{path}' is no provenance of a sweep", "without its .meta.json it is shown"
        ) from None


def _origin(said: Mapping[str, Any]) -> list[str]:
    files = _names(said.get("files", ()))
    workload, hardware, engine = (files.get(kind, "?") for kind in ("workload", "hardware", "engine"))
    return [
        f"{said.get('phase')} of {workload} on {hardware} with {engine}; "
        f"keep {said.get('keep')}, {said.get('candidates', 0):,} candidates",
        f"cm384 {said.get('cm384')}, {said.get('started')}: {said.get('command')}",
        *(f"note: {note}" for note in said.get("notes", ())),
    ]


def _names(files: Iterable[Mapping[str, str]]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for file in files:
        found.setdefault(file["kind"], []).append(file["name"])
    return {kind: ", ".join(names) for kind, names in found.items()}
