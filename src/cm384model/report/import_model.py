"""The report of an imported model: what it is, and what became of every key."""

from __future__ import annotations

from cm384model.prediction.families import model_parameters
from cm384model.report.blocks import Block, Table
from cm384model.report.report import Report
from cm384model.specs.huggingface import Imported


def import_report(imported: Imported, file: str | None) -> Report:
    """Family and parameters, then the keys in three groups."""
    model, parameters = imported.model, model_parameters(imported.model)
    total, active = float(parameters.total), float(parameters.active)
    precision = {k: v for k, v in model.precision.model_dump().items() if v is not None}
    unsure = "keys that cm384 does not know (they may matter): " + ", ".join(imported.unmapped)
    blocks: list[Block] = [
        f"{model.name}: {model.family}, {total / 1e9:.4g} G parameters, {active / 1e9:.4g} G active\n"
        + ", ".join(f"{part} {word}" for part, word in precision.items())
        + (f"\nwritten to {file}" if file else ""),
        _table("key used", "becomes", imported.used),
        _table("key without effect", "reason", imported.ignored),
        *([unsure] if imported.unmapped else []),
    ]
    records = [
        *({"key": key, "outcome": "used", "meaning": path} for key, path in imported.used.items()),
        *({"key": key, "outcome": "ignored", "meaning": why} for key, why in imported.ignored.items()),
        *({"key": key, "outcome": "unmapped", "meaning": ""} for key in imported.unmapped),
    ]
    data = {
        "schema": 1,
        "name": model.name,
        "family": model.family,
        "file": file,
        "total_parameters": total,
        "active_parameters": active,
        "precision": precision,
        "used": imported.used,
        "ignored": imported.ignored,
        "unmapped": imported.unmapped,
    }
    return Report(blocks, records, data)


def _table(first: str, second: str, keys: dict[str, str]) -> Table:
    return Table((first, second), sorted(keys.items()), "ll")
