"""A random sample of deployments, of every machine, engine and workload that go together."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from cm384model.evidence.golden import sampling
from cm384model.prediction.case import DEFAULT_ENGINE
from cm384model.prediction.evaluate import core_shares
from cm384model.specs.catalogue import FOLDERS, data_root
from cm384model.specs.deployment import BALANCES
from cm384model.specs.diagnostics import SpecError

PHASES = ("decode", "prefill")
_SETTINGS: tuple[list[str], ...] = (
    [],
    ["model.precision.weights=fp8", "model.precision.activations=fp8"],
)
"""Settings under which a machine may run the shipped model: as it is, or in FP8."""
_RANKS = ((1.0, 2.0, 4.0), (1.0,))
"""Dies that share the heads of attention, where the machine has the collectives for it."""


def draw(
    data: sampling.Data, deployments: int, seed: int
) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """A random sample for every phase, balance, and every machine, engine and workload that go together.

    Lengths are multiples of the workload's own; acceptance, redundant experts and imbalance are left
    to the data files, so that a change of any of them shows.
    """
    groups = _groups(data)
    if not groups:
        raise SpecError.of(f"no machine, engine and workload of {data.root} go together")
    kinds = list(product(PHASES, groups, BALANCES))
    each = -(-deployments // len(kinds))
    generator = np.random.default_rng(seed)
    blocks: list[dict[str, Any]] = []
    columns: list[dict[str, np.ndarray]] = []
    for number, (phase, group, balance) in enumerate(kinds):
        rows = (number * each, (number + 1) * each)
        plane = ("ub", "vpc")[number % 2]
        blocks.append(group.block | {"phase": phase, "balance": balance, "plane": plane, "rows": rows})
        columns.append(_columns(generator, each, group))
    return blocks, {name: np.concatenate([c[name] for c in columns]) for name in columns[0]}


@dataclass(frozen=True)
class _Group:
    """A machine, an engine, a workload and settings that go together, with the bounds of deployments."""

    block: dict[str, Any]
    ranks: tuple[float, ...]
    node: int = 1
    nodes: int = 1
    shares: tuple[float, ...] = (0.5,)
    drafts: int = 0


def _columns(generator: np.random.Generator, size: int, group: _Group) -> dict[str, np.ndarray]:
    microbatches = generator.integers(1, 3, size).astype(float)
    reuse = generator.uniform(0, 0.95, size) * generator.integers(0, 2, size)
    return {
        "ep": group.node * generator.integers(1, group.nodes + 1, size).astype(float),
        "batch_per_die": np.floor(2 ** generator.uniform(1, 8, size)),
        "tokens_per_npu": 1024 * np.floor(2 ** generator.uniform(0, 6, size)),
        "length_factor": 2 ** generator.uniform(-3, 4, size),
        "microbatches": microbatches,
        "attention_aic_share": np.where(microbatches > 1, generator.choice(group.shares, size), 1.0),
        "attention_tp": generator.choice(group.ranks, size),
        "draft_tokens": generator.integers(0, group.drafts + 1, size).astype(float),
        "reuse": np.round(reuse, 3),
    }


def _groups(data: sampling.Data) -> list[_Group]:
    """Every machine, engine and workload that go together.

    Settings and shared heads are those of the first way in which a machine and an engine run. A
    machine that extends another one has most of its numbers, so its usual engine stands for all.
    """
    hardware, engines, workloads = (_names(data.root, kind) for kind in ("hardware", "engine", "workload"))
    found: list[_Group] = []
    for machine, engine in product(hardware, engines):
        spec = data.spec("hardware", machine)
        if spec.extends is not None and engine != (spec.engine or DEFAULT_ENGINE):
            continue
        for ranks, settings in product(_RANKS, _SETTINGS):
            block = {"hardware": machine, "engine": engine, "settings": settings}
            if _runs(_Group(block | {"workload": workloads[0]}, ranks[-1:]), data):
                found += [_bounded(block | {"workload": name}, ranks, data) for name in workloads]
                break
    return found


def _runs(group: _Group, data: sampling.Data) -> bool:
    one = _columns(np.random.default_rng(0), 1, group) | {"ep": np.array([float(max(group.ranks))])}
    either = {"balance": BALANCES[0], "plane": "ub", "rows": (0, 1)}
    blocks = [group.block | either | {"phase": phase} for phase in PHASES]
    predicted = sampling.outputs_of(blocks, one, data)
    return {name.partition(".")[0] for name in predicted} == set(PHASES)


def _bounded(block: dict[str, Any], ranks: tuple[float, ...], data: sampling.Data) -> _Group:
    case = data.case(block)
    node = int(case.hardware.dies_per_node)
    return _Group(
        block,
        tuple(rank for rank in ranks if node % rank == 0),
        node,
        int(case.hardware.total_dies if case.engine.scale_out else case.hardware.dies_per_supernode) // node,
        tuple(core_shares(case).tolist()),
        3 if case.model.architecture.mtp_layers.si else 0,
    )


def _names(root: Path, kind: Any) -> list[str]:
    own = sorted(path.stem for path in (root / FOLDERS[kind]).glob("*.toml"))
    return own or sorted(path.stem for path in (data_root() / FOLDERS[kind]).glob("*.toml"))
