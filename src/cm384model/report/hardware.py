"""The report of the machines that are shipped, with their peaks, memory and links."""

from __future__ import annotations

from typing import Any

from cm384model.report.blocks import Table
from cm384model.report.report import Report
from cm384model.report.values import significant
from cm384model.specs.catalogue import FOLDERS, names
from cm384model.specs.hardware import PRECISIONS, Hardware
from cm384model.specs.load import load_hardware

NOTE = (
    "per NPU, one way; peaks in TFLOP/s, dense, of the cube cores alone; scale-up: NPUs that one scale-up "
    "network joins; "
    "evidence: measured has operator rows of its own, carried over takes its operator constants from another "
    "machine, announced is its maker's word"
)


def hardware_report() -> Report:
    """Every machine: its size, its peaks by precision, memory, links, and what is known of it."""
    rows = [hardware_row(load_hardware(name)) for name in names("hardware")]
    header = (
        "name",
        "dies\n/NPU",
        "NPUs\n/node",
        "scale-\nup",
        "all\nNPUs",
        *(precision.upper() for precision in PRECISIONS),
        "HBM\n[GB]",
        "HBM\n[TB/s]",
        "links\n[GB/s]",
        "RDMA\n[GB/s]",
        "evidence",
    )
    cells = [
        (
            row["name"],
            *(f"{row[key]:g}" for key in ("dies_per_npu", "npus_per_node", "npus_per_supernode", "npus")),
            *(_tera(row[f"{precision}_flop_per_s"]) for precision in PRECISIONS),
            f"{row['hbm_capacity_bytes'] / 1e9:.0f}",
            f"{row['hbm_bandwidth_bytes_per_s'] / 1e12:.2f}",
            f"{row['scale_up_bytes_per_s'] / 1e9:.0f}",
            f"{row['scale_out_bytes_per_s'] / 1e9:.0f}",
            row["evidence"],
        )
        for row in rows
    ]
    return Report([Table(header, cells, "l" + "r" * (len(header) - 2) + "l"), NOTE], rows, rows)


def hardware_row(hardware: Hardware) -> dict[str, Any]:
    """What a machine is, in SI units per NPU; a peak that it does not have is None."""
    dies = float(hardware.dies_per_npu)
    peaks = {precision: float(hardware.flop_rate(precision)) * dies for precision in PRECISIONS}
    return {
        "name": hardware.name,
        "dies_per_npu": int(dies),
        "npus_per_node": int(hardware.npus_per_node),
        "npus_per_supernode": int(hardware.dies_per_supernode / dies),
        "npus": int(hardware.total_npus),
        **{f"{precision}_flop_per_s": peak or None for precision, peak in peaks.items()},
        "hbm_capacity_bytes": float(hardware.hbm_capacity_per_npu),
        "hbm_bandwidth_bytes_per_s": float(hardware.hbm_bandwidth_per_npu),
        "scale_up_bytes_per_s": float(hardware.ub_rate_per_npu),
        "scale_out_bytes_per_s": float(hardware.fabric.rdma.bandwidth.si) * dies,
        "announced": hardware.announced,
        "evidence": _evidence(hardware),
        "notes": " ".join(f"{note}." for note in hardware.notes()),
        "file": f"{FOLDERS['hardware']}/{hardware.name}.toml",
        "title": hardware.title,
    }


def _evidence(hardware: Hardware) -> str:
    if hardware.announced:
        return "announced"
    return "carried over" if hardware.carried_from() else "measured"


def _tera(rate: float | None) -> str:
    return "-" if rate is None else significant(rate / 1e12, 4)
