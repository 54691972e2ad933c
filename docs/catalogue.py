"""The generated parts of ``catalogue.md``: what ships, where it comes from, what was checked against what."""

from __future__ import annotations

from collections.abc import Iterable

import accuracy

from cm384model.evidence.validate import CheckedRow
from cm384model.report.hardware import hardware_report
from cm384model.report.models import models_report
from cm384model.report.values import percent
from cm384model.specs.hardware import PRECISIONS, Hardware
from cm384model.specs.huggingface.importer import NOT_MODELLED
from cm384model.specs.load import load_hardware
from cm384model.specs.spec import Source


def models() -> str:
    """Every model with its sizes, and how many published rows concern it, with their median error."""
    lines = [
        "| model | family | parameters, active [G] | weights | cache [KB/token] | smallest [NPU] "
        "| rows unseen | median error | rows fitted |",
        "|---|---|--:|---|--:|--:|--:|--:|--:|",
    ]
    rows = accuracy.found().rows
    for sizes in models_report().records:
        name = str(sizes["name"])
        smallest = sizes["smallest_npus"] or "none"
        own = [row for row in rows if row.model == name and row.kind != "op"]
        lines.append(
            f"| {name} | {sizes['family']} | {sizes['total_parameters'] / 1e9:.1f}, "
            f"{sizes['active_parameters'] / 1e9:.1f} | {sizes['weight_precision']} "
            f"| {sizes['kv_bytes_per_token'] / 1e3:.1f} | {smallest} | {_evidence(own)} |"
        )
    return "\n".join(lines)


def machines() -> str:
    """Every machine: its peaks, its memory, from where its constants come, and the rows measured on it."""
    lines = [
        "| machine | TFLOP/s per NPU | HBM | one scale-up network | constants | rows unseen | median error "
        "| rows fitted |",
        "|---|---|---|--:|---|--:|--:|--:|",
    ]
    rows = accuracy.found().rows
    for entry in hardware_report().records:
        hardware = load_hardware(str(entry["name"]))
        peaks = ", ".join(
            f"{precision.upper()} {entry[f'{precision}_flop_per_s'] / 1e12:g}"
            for precision in PRECISIONS
            if entry[f"{precision}_flop_per_s"]
        )
        capacity, bandwidth = entry["hbm_capacity_bytes"] / 1e9, entry["hbm_bandwidth_bytes_per_s"] / 1e12
        own = [row for row in rows if row.hardware == hardware.name]
        lines.append(
            f"| {hardware.name} | {peaks} | {capacity:.0f} GB, {bandwidth:.2f} TB/s "
            f"| {entry['npus_per_supernode']} NPUs | {_constants(hardware)} | {_evidence(own)} |"
        )
    return "\n".join(lines)


def machine_sources() -> str:
    """Where the facts of every machine were read, and the nearest machine that it takes the rest from."""
    lines = []
    for entry in hardware_report().records:
        hardware = load_hardware(str(entry["name"]))
        own = _own_sources(hardware)
        listed = "; ".join(f"{source.title} ({source.ref})" for source in own)
        taken = (
            ""
            if hardware.extends is None
            else f" Extends `{hardware.extends.machine}`: {hardware.extends.why}."
        )
        lines.append(f"- **{hardware.name}**, {hardware.title}. {listed}.{taken}")
    return "\n".join(lines)


def not_modelled() -> str:
    """Architectures that the importer refuses, by the reason."""
    reasons: dict[str, list[str]] = {}
    for name, reason in NOT_MODELLED.items():
        reasons.setdefault(reason, []).append(f"`{name}`")
    return "\n".join(f"- {', '.join(names)}: {reason}" for reason, names in reasons.items())


def _evidence(rows: Iterable[CheckedRow]) -> str:
    """Unseen rows, their median error, and fitted rows, as cells."""
    rows = list(rows)
    unseen = sorted(abs(row.error) for row in rows if row.is_evidence and row.error is not None)
    fitted = sum(row.used_for_fit and row.predicted is not None for row in rows)
    middle = len(unseen) // 2
    median = "" if not unseen else percent((unseen[middle] + unseen[-1 - middle]) / 2)
    return f"{len(unseen)} | {median} | {fitted}"


def _constants(hardware: Hardware) -> str:
    if hardware.extends is None:
        return "measured"
    words = f"carried over from {' and '.join(hardware.carried_from())}"
    wide = hardware.extends.widen
    announced = "**announced**; " if hardware.announced else ""
    return announced + words + (f", ranges x {wide:g}" if wide > 1 else "")


def _own_sources(hardware: Hardware) -> list[Source]:
    """Sources that the file itself names; those of the file it extends stand there."""
    if hardware.extends is None:
        return list(hardware.sources.values())
    base = load_hardware(hardware.extends.machine)
    return [source for key, source in hardware.sources.items() if key not in base.sources]


PARTS = {
    "catalogue_models": models,
    "catalogue_machines": machines,
    "catalogue_sources": machine_sources,
    "catalogue_not_modelled": not_modelled,
}
