"""The report of the models that are shipped, with their sizes."""

from __future__ import annotations

import dataclasses

from cm384model.prediction.case import DEFAULT_ENGINE, DEFAULT_HARDWARE
from cm384model.prediction.sizes import model_sizes
from cm384model.prediction.system import System
from cm384model.report.blocks import Table
from cm384model.report.report import Report
from cm384model.specs.catalogue import FOLDERS, names
from cm384model.specs.load import load_engine, load_hardware, load_model


def models_report(machine: str | None = None) -> Report:
    """Every model with its sizes on a machine, by default the usual one."""
    hardware = load_hardware(machine or DEFAULT_HARDWARE)
    engine = load_engine(hardware.engine or DEFAULT_ENGINE)
    rows = []
    for name in names("model"):
        model = load_model(name)
        sizes = model_sizes(System(hardware, engine, model))
        rows.append(
            {
                "name": name,
                "family": model.family,
                **dataclasses.asdict(sizes),
                "weight_precision": model.precision.experts or model.precision.weights,
                "kv_precision": model.precision.kv,
                "hardware": hardware.name,
                "file": f"{FOLDERS['model']}/{name}.toml",
                "title": model.title,
            }
        )
    cells = [
        (
            str(row["name"]),
            str(row["family"]),
            f"{row['total_parameters'] / 1e9:.1f}",
            f"{row['active_parameters'] / 1e9:.1f}",
            str(row["weight_precision"]),
            f"{row['kv_bytes_per_token'] / 1e3:.1f}",
            str(row["kv_precision"]),
            "none" if row["smallest_npus"] is None else str(row["smallest_npus"]),
        )
        for row in rows
    ]
    header = (
        "name",
        "family",
        "parameters\n[G]",
        "active\n[G]",
        "weights",
        "KV cache\n[KB/token]",
        "KV",
        "smallest\n[NPU]",
    )
    note = (
        f"smallest: fewest NPUs of {hardware.name} that hold weights, buffers and one request of "
        "4,096 tokens per attention group without redundant experts; active: weights that a token uses, "
        "without the input embedding"
    )
    domain = int(hardware.dies_per_supernode / hardware.dies_per_npu)
    if hardware.supernodes > 1:
        note += f"; more than {domain} NPUs span scale-up networks"
    return Report([Table(header, cells, "llrrlrlr"), note], rows, rows, hardware.notes())
