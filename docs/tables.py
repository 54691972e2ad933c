"""The tables inside hand-written pages: the fitted constants and the names of columns."""

from __future__ import annotations

from cm384model.report.glossary import GLOSSARY
from cm384model.specs.catalogue import names
from cm384model.specs.load import load_engine, load_hardware
from cm384model.specs.quantity import Quantity
from cm384model.specs.spec import Spec, node_at, quantity_paths


def fitted() -> dict[tuple[str, str], list[tuple[str, Quantity]]]:
    """Fitted constants with their paths, by the data file and the rows on which they were fitted."""
    specs: list[Spec] = [load_hardware(name) for name in names("hardware")]
    specs += [load_engine(name) for name in names("engine")]
    found: dict[tuple[str, str], list[tuple[str, Quantity]]] = {}
    for spec in specs:
        rows = ""
        for path in quantity_paths(spec):
            quantity = node_at(spec, path)
            source = quantity.source.removeprefix("fit: ")
            same = quantity.source.startswith("fit: same rows")
            if quantity.source.startswith("fit: ") and not same:
                rows = source
            if quantity.kind == "fitted" and quantity.carried_from is None:
                found.setdefault((spec.name, rows if same else source), []).append((path, quantity))
    return found


def fitted_summary() -> str:
    """Which rows fitted which constants, in one line each."""
    lines = ["| data file | rows used | constants fitted on them |", "|---|---|---|"]
    for (file, rows), constants in fitted().items():
        sections: dict[str, list[str]] = {}
        for path, _ in constants:
            section, _, name = path.rpartition(".")
            sections.setdefault(section, []).append(f"`{name}`")
        listed = "; ".join(f"`{section}`: {', '.join(found)}" for section, found in sections.items())
        lines.append(f"| {file} | {rows} | {listed} |")
    return "\n".join(lines)


def fitted_constants() -> str:
    """Every fitted constant with its value, range and rows; a table per data file."""
    lines: list[str] = []
    last = ("", "")
    for (file, rows), constants in fitted().items():
        if file != last[0]:
            lines += [f"\n### {file}\n", "| constant | value | range | confidence | rows used |"]
            lines.append("|---|--:|---|---|---|")
        for path, q in constants:
            unit = "" if q.unit == "-" else f" {q.unit}"
            span = f"{q.range[0]:g} to {q.range[1]:g}" if q.range else ""
            said = "" if (file, rows) == last else rows
            lines.append(f"| `{path}` | {q.value:g}{unit} | {span} | {q.confidence} | {said} |")
            last = (file, rows)
    return "\n".join(lines).lstrip("\n")


def columns() -> str:
    """The machine names, for the glossary."""
    lines = ["| name | unit | meaning |", "|---|---|---|"]
    lines += [f"| `{entry.name}` | {entry.unit} | {entry.meaning} |" for entry in GLOSSARY]
    return "\n".join(lines)
