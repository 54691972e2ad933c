"""Reports of what there is: data files, laws, names, units."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import tomllib
from collections.abc import Callable, Sequence
from typing import Any

from cm384model.report.blocks import Table
from cm384model.report.formula import readable
from cm384model.report.report import Report


def listing(kind: str, hardware: str | None = None) -> Report:
    """The report of one of `KINDS`; ``hardware`` is the machine of `ON_A_MACHINE`."""
    return KINDS[kind]() if hardware is None else ON_A_MACHINE[kind](hardware)


def _files(kind: Any) -> Callable[[], Report]:
    def report() -> Report:
        from cm384model.specs.catalogue import FOLDERS, data_root, names

        folder = data_root() / FOLDERS[kind]
        rows = []
        for name in names(kind):
            path = folder / f"{name}.toml"
            title = tomllib.loads(path.read_text(encoding="utf-8")).get("title", "")
            rows.append({"name": name, "title": title, "file": f"{FOLDERS[kind]}/{name}.toml"})
        return _report(rows, ("name", "file", "title"))

    return report


def _engines() -> Report:
    """The engines with what distinguishes them: how much of communication or of a stream they hide."""
    from cm384model.specs.catalogue import names
    from cm384model.specs.load import load_engine

    rows = []
    for name in names("engine"):
        engine = load_engine(name)
        rows.append(
            {
                "name": name,
                "stream_overlap": float(engine.constants.stream_overlap.si),
                "prefill_overlap": float(engine.constants.prefill_overlap.si),
                "decode_streams": engine.decode_streams,
                "ep_library": engine.ep_library,
                "title": engine.title,
            }
        )
    titles = ("name", "decode\noverlap", "prefill\noverlap", "decode streams", "EP library", "title")
    return _report(rows, tuple(rows[0]), "lrrlll", titles)


def _models(hardware: str | None = None) -> Report:
    from cm384model.report.models import models_report

    return models_report(hardware)


def _hardware() -> Report:
    from cm384model.report.hardware import hardware_report

    return hardware_report()


def _laws() -> Report:
    from cm384model import laws
    from cm384model.lawdoc import read_lawdoc
    from cm384model.numeric import LAWS

    for module in pkgutil.iter_modules(laws.__path__):
        importlib.import_module(f"{laws.__name__}.{module.name}")
    rows = []
    for law in sorted(LAWS.values(), key=lambda law: (law.__module__, law.__name__)):
        doc = read_lawdoc(law)
        rows.append(
            {
                "name": doc.name,
                "module": doc.module,
                "unit": doc.result.unit,
                "summary": doc.summary,
                "formula": readable(doc.formula),
                "references": " ".join(reference.key for reference in doc.references),
            }
        )
    return _report(rows, ("name", "module", "unit", "summary"))


def _quantities() -> Report:
    from cm384model.report.glossary import GLOSSARY

    return _report([dataclasses.asdict(entry) for entry in GLOSSARY], ("name", "unit", "meaning"))


def _units() -> Report:
    from cm384model.specs.units import NOUN, SI_UNIT, UNITS

    rows = [
        {
            "unit": name,
            "measures": NOUN[unit.dimension],
            "si_unit": SI_UNIT[unit.dimension],
            "factor": unit.to_si(1.0),
        }
        for name, unit in UNITS.items()
        if name.isascii()
    ]
    return _report(rows, ("unit", "measures", "factor", "si_unit"), "llrl")


def _operators() -> Report:
    from cm384model.specs.deployment import OPERATOR_FIELDS

    rows = [
        {"operator": operator, "operand": name, "meaning": field.help, "allowed": field.allowed}
        for operator, fields in OPERATOR_FIELDS.items()
        for name, field in fields.items()
    ]
    return _report(rows, ("operator", "operand", "allowed", "meaning"))


def _report(
    rows: Sequence[dict[str, Any]], columns: tuple[str, ...], align: str = "", titles: tuple[str, ...] = ()
) -> Report:
    cells = [tuple(_cell(row[column]) for column in columns) for row in rows]
    return Report([Table(titles or columns, cells, align or "l" * len(columns))], rows, rows)


def _cell(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


KINDS: dict[str, Callable[[], Report]] = {
    "hardware": _hardware,
    "workloads": _files("workload"),
    "models": _models,
    "engines": _engines,
    "laws": _laws,
    "operators": _operators,
    "quantities": _quantities,
    "units": _units,
}
"""What can be listed, by name."""

ON_A_MACHINE: dict[str, Callable[[str], Report]] = {"models": _models}
"""What depends on a machine."""
