"""The tables inside hand-written pages: published against predicted, and the fitted constants."""

from __future__ import annotations

import csv
import statistics
from dataclasses import dataclass
from pathlib import Path

import cm384model
from cm384model.report.glossary import GLOSSARY
from cm384model.specs.catalogue import names
from cm384model.specs.load import load_engine, load_hardware
from cm384model.specs.quantity import Quantity
from cm384model.specs.spec import Spec, node_at, quantity_paths
from cm384model.specs.units import UNITS

PUBLISHED = Path(__file__).resolve().with_name("published.csv")
GROUPS = {
    "decode": "Decode: TPOT on EP320, one draft token, acceptance 0.7",
    "prefill": "Prefill: input tokens per second and NPU",
    "held_out": "Decode TPOT, held out: used in no fit",
    "operators": "Operators on one die",
}


@dataclass(frozen=True)
class Comparison:
    """A published figure and our prediction of it, in the published unit."""

    label: str
    published: float
    predicted: float
    unit: str
    use: str
    source: str

    @property
    def error(self) -> float:
        """Signed relative error of the prediction. [-]"""
        return self.predicted / self.published - 1


def comparisons() -> dict[str, list[Comparison]]:
    """Every published figure against its prediction, by group."""
    found: dict[str, list[Comparison]] = {group: [] for group in GROUPS}
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            unit = UNITS[row["unit"]]
            predicted = _predicted(row) / unit.to_si(1.0)
            published = float(row["published"])
            found[row["group"]].append(
                Comparison(row["label"], published, predicted, row["unit"], row["use"], row["source"])
            )
    return found


def _predicted(row: dict[str, str]) -> float:
    call, at, quantity = row["call"], row["at"], row["quantity"]
    if call in ("decode", "prefill"):
        return float(getattr(cm384model.predict(row["workload"], phase=call, at=at), quantity))
    result = cm384model.op(call, at=at)
    if quantity == "bandwidth":
        return float(result.bytes / result.time_s)
    if quantity.endswith("_utilisation"):
        die = cm384model.load_hardware("cloudmatrix384").die
        peak = getattr(die, quantity.replace("_utilisation", "_flop_rate")).si
        return float(result.flop / result.time_s / peak)
    return float(getattr(result, quantity))


def accuracy() -> str:
    """The table of published against predicted figures, for the README."""
    lines: list[str] = []
    for group, rows in comparisons().items():
        lines += [f"**{GROUPS[group]}**\n", "| case | published | predicted | error | the row was |"]
        lines += ["|---|--:|--:|--:|---|"]
        lines += [
            f"| {r.label} | {_number(r.published)} {r.unit} | {_number(r.predicted)} {r.unit} "
            f"| {r.error * 100:+.1f} % | {r.use} |"
            for r in rows
        ]
        if len({r.use for r in rows} - {"held out"}):
            errors = [abs(row.error) for row in rows]
            mean, worst = statistics.mean(errors) * 100, max(errors) * 100
            lines.append(f"\nMean absolute error {mean:.1f} %, worst {worst:.1f} %.")
        sources = list(dict.fromkeys(row.source for row in rows))
        lines.append(f"\nPublished in: {'; '.join(sources)}.\n")
    return "\n".join(lines).rstrip()


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" if value >= 100 else f"{value:.1f}"


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
            if quantity.kind == "fitted":
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
