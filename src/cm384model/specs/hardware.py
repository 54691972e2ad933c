"""The machine: dies, packages, nodes, and the networks between them."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from cm384model.specs.diagnostics import with_suggestion
from cm384model.specs.inheritance import ExtendsMachine
from cm384model.specs.quantity import (
    UNITS,
    ByteRate,
    Bytes,
    Cores,
    Count,
    FlopRate,
    Quantity,
    SourceText,
    Time,
    fault,
)
from cm384model.specs.spec import Constants, Free, Operators, Section, Spec, nodes

PRECISIONS = ("bf16", "int8", "fp8", "fp4")
"""Formats that cube cores may multiply in; a die states the peaks of those that it has."""


class Die(Section):
    """One die: what it computes, stores and moves. Peaks are dense, of the cube cores alone."""

    aic_cores: Cores
    aiv_cores: Cores
    bf16_flop_rate: FlopRate
    int8_flop_rate: FlopRate | None = None
    fp8_flop_rate: FlopRate | None = None
    fp4_flop_rate: FlopRate | None = None
    vector_flop_rate: FlopRate | None = None
    hbm_capacity: Bytes
    l2_capacity: Bytes | None = None
    hbm_bandwidth: ByteRate
    tile_m: Count
    tile_n: Count


class Npu(Section):
    """One package."""

    dies: Count


class Node(Section):
    """One server."""

    npus: Count
    cpus: Count
    dram_capacity: Bytes | None = None
    dram_bandwidth: ByteRate | None = None


class Supernode(Section):
    """All servers on one scale-up network."""

    nodes: Count


class Cluster(Section):
    """All supernodes that the scale-out network joins."""

    supernodes: Count


class Route(Section):
    """A way for bytes: sustained bandwidth, one way, and start-up latency."""

    bandwidth: ByteRate
    latency: Time


class Reach(Section):
    """The same way inside a node and between nodes."""

    intra_node: Route
    inter_node: Route


class Ub(Section):
    """The scale-up network."""

    link_rate: ByteRate
    links: Count
    die_to_die: Route
    read: Reach
    write: Reach
    cpu_read: Reach
    cpu_write: Reach
    cpu_rate: ByteRate | None = None


class Fabric(Section):
    """The three networks."""

    ub: Ub
    rdma: Route
    vpc: Route


def _derived(name: str) -> str:
    known = derived_names()
    if name not in known:
        raise fault(
            with_suggestion(f"no derived property '{name}'", name, known), f"one of {', '.join(known)}"
        )
    return name


def _unit(unit: str) -> str:
    if unit not in UNITS:
        raise fault(with_suggestion(f"unknown unit '{unit}'", unit, UNITS))
    return unit


class Check(Section):
    """A published figure that a derived property must reproduce, within a relative tolerance."""

    property: Annotated[str, AfterValidator(_derived)]
    value: float = Field(allow_inf_nan=False, gt=0)
    unit: Annotated[str, AfterValidator(_unit)]
    source: SourceText
    tolerance: float = Field(default=0.005, ge=0, lt=1)


class Hardware(Spec):
    """A machine as its data file describes it.

    ``engine`` names the serving engine that usually runs on it; ``announced`` says that nobody
    outside its maker has measured it.
    """

    spec_kind: ClassVar[str] = "hardware"
    not_settable: ClassVar[frozenset[str]] = Spec.not_settable | {
        "announced",
        "checks",
        "engine",
        "extends",
    }

    announced: bool = False
    engine: str | None = None
    extends: ExtendsMachine | None = None
    die: Die
    npu: Npu
    node: Node
    supernode: Supernode
    cluster: Cluster | None = None
    fabric: Fabric
    ops: Operators = Field(default_factory=Free)
    residuals: Constants = Field(default_factory=Free)
    checks: tuple[Check, ...] = Field(default=(), strict=False)

    @property
    def npus_per_node(self) -> Any:
        """Packages of one node."""
        return self.node.npus.si

    @property
    def dies_per_npu(self) -> Any:
        """Dies of one package."""
        return self.npu.dies.si

    @property
    def dies_per_node(self) -> Any:
        """Dies of one node."""
        return self.node.npus.si * self.npu.dies.si

    @property
    def supernodes(self) -> Any:
        """Scale-up networks of the machine."""
        return 1 if self.cluster is None else self.cluster.supernodes.si

    @property
    def dies_per_supernode(self) -> Any:
        """Dies that one scale-up network joins: an EP group beyond them uses the scale-out network."""
        return self.supernode.nodes.si * self.dies_per_node

    @property
    def total_nodes(self) -> Any:
        """Nodes of the machine."""
        return self.supernodes * self.supernode.nodes.si

    @property
    def total_npus(self) -> Any:
        """Packages of the machine."""
        return self.total_nodes * self.node.npus.si

    def said_to_have(self, npus: int) -> str:
        """How many packages there are, and the setting under which there are at least ``npus``."""
        one, said = int(self.total_npus // self.supernodes), f"{self.name} has {self.total_npus:g} NPUs"
        if self.cluster is None or npus <= self.total_npus:
            return said
        supernodes = -(-npus // one)
        return f"{said}; --set cluster.supernodes={supernodes} makes it {supernodes * one}"

    @property
    def total_cpus(self) -> Any:
        """CPUs of the machine."""
        return self.total_nodes * self.node.cpus.si

    @property
    def total_dies(self) -> Any:
        """Dies of the machine."""
        return self.total_npus * self.npu.dies.si

    @property
    def ub_rate_per_die(self) -> Any:
        """Scale-up peak of one die, one way: all its links. [B/s]"""
        return self.fabric.ub.links.si * self.fabric.ub.link_rate.si

    @property
    def ub_rate_per_npu(self) -> Any:
        """Scale-up peak of one package, one way. [B/s]"""
        return self.ub_rate_per_die * self.npu.dies.si

    @property
    def hbm_capacity_per_npu(self) -> Any:
        """HBM of one package. [B]"""
        return self.die.hbm_capacity.si * self.npu.dies.si

    @property
    def hbm_bandwidth_per_npu(self) -> Any:
        """HBM bandwidth of one package. [B/s]"""
        return self.die.hbm_bandwidth.si * self.npu.dies.si

    @property
    def bf16_flop_rate_per_npu(self) -> Any:
        """BF16 peak of one package. [FLOP/s]"""
        return self.die.bf16_flop_rate.si * self.npu.dies.si

    @property
    def int8_flop_rate_per_npu(self) -> Any:
        """INT8 peak of one package, 0 where it has none. [FLOP/s]"""
        return self.flop_rate("int8") * self.npu.dies.si

    @property
    def total_hbm_capacity(self) -> Any:
        """HBM of the machine. [B]"""
        return self.die.hbm_capacity.si * self.total_dies

    @property
    def total_bf16_flop_rate(self) -> Any:
        """BF16 peak of the machine. [FLOP/s]"""
        return self.die.bf16_flop_rate.si * self.total_dies

    def flop_rate(self, precision: str) -> Any:
        """Peak of one die in one of `PRECISIONS`, 0 where it has none. [FLOP/s]"""
        rate = getattr(self.die, f"{precision}_flop_rate", None)
        return 0.0 if rate is None else rate.si

    def notes(self) -> tuple[str, ...]:
        """What every report must say of this machine: that it is announced, what was not measured on it."""
        found = []
        if self.announced:
            found.append(
                f"{self.name} is announced: peaks, memory and links are its maker's figures, none is measured"
            )
        carried = self.carried_from()
        if carried:
            found.append(
                f"{sum(carried.values())} of {len(self._constants())} operator constants of {self.name} are "
                f"carried over from {' and '.join(carried)}, not measured here"
            )
        return tuple(found)

    def is_other_chip(self) -> bool:
        """Whether its constants are those of another chip."""
        return self.extends is not None and self.extends.widen > 1

    def carried_from(self) -> dict[str, int]:
        """How many operator constants are those of other machines, by their names."""
        return Counter(number.carried_from for number in self._constants() if number.carried_from)

    def _constants(self) -> list[Quantity]:
        return [node for _, node in nodes(self.ops) if isinstance(node, Quantity)]


def derived_names() -> list[str]:
    """Names of the properties that are computed and never typed."""
    return [name for name, value in vars(Hardware).items() if isinstance(value, property)]


def failed_checks(hardware: Hardware) -> list[str]:
    """One line for every published figure the derived properties do not reproduce."""
    lines = []
    for check in hardware.checks:
        published = UNITS[check.unit].to_si(check.value)
        derived = getattr(hardware, check.property)
        if abs(derived - published) > check.tolerance * published:
            lines.append(
                f"{check.property}: derived {derived:.6g}, published {published:.6g} ({check.source})"
            )
    return lines
