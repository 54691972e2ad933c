"""One operator on one die, or on a share of it: the laws with the numbers of the hardware.

Everything here returns a `Term`; `cm384 op` shows these terms alone, the decode and prefill
predictors add them up.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cm384model.laws import attention as attention_laws
from cm384model.laws import comm as comm_laws
from cm384model.laws import exchange as exchange_laws
from cm384model.laws import gemm as gemm_laws
from cm384model.laws.caching import cold_start_time, mean_switch_time
from cm384model.laws.roofline import roofline_time
from cm384model.laws.vector import stream_time
from cm384model.numeric import Numeric
from cm384model.prediction.terms import Term
from cm384model.recording import recording, recording_active
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.hardware import Hardware

ELEMENT_BYTES = {"int4": 0.5, "fp4": 0.5, "int8": 1.0, "fp8": 1.0, "bf16": 2.0, "fp32": 4.0}
"""Bytes of one number in each precision. [B]"""


@dataclass(frozen=True)
class Die:
    """A die, or the share of it that one stream of work runs on.

    Attributes
    ----------
    hardware : Hardware
    cube_share, vector_share : numeric
        Share of the AIC and AIV cores. [-]
    contention : numeric
        Factor on memory times while another stream uses the same memory. [-]
    launch_latency : numeric or None
        Start-up of a kernel under this serving engine; None takes each operator's own
        stand-alone figure. [s]
    startup_share : numeric
        Part of an operator's own stand-alone start-up that stays under this engine, on top of
        ``launch_latency``: 0 where kernels are fused and fetch ahead, 1 where they run one by one. [-]
    """

    hardware: Hardware
    cube_share: Numeric = 1.0
    vector_share: Numeric = 1.0
    contention: Numeric = 1.0
    launch_latency: Numeric | None = None
    startup_share: Numeric = 0.0

    def flop_rate(self, precision: str) -> Numeric:
        """Peak of the cube cores of this share. [FLOP/s]"""
        return getattr(self.hardware.die, f"{precision}_flop_rate").si * self.cube_share

    def launch(self, constants: Any) -> Numeric:
        """Start-up of one kernel. [s]"""
        if self.launch_latency is None:
            return constants.launch_latency.si
        if isinstance(self.startup_share, float) and self.startup_share == 0:
            return self.launch_latency
        return self.launch_latency + self.startup_share * constants.launch_latency.si

    @property
    def bandwidth(self) -> Numeric:
        """Nominal memory bandwidth that this share sees. [B/s]"""
        return self.hardware.die.hbm_bandwidth.si / self.contention


def operator(function: Callable[..., Term]) -> Callable[..., Term]:
    """Let a term remember the laws and the numbers that made it, under `recording` only."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Term:
        if not recording_active():
            return function(*args, **kwargs)
        with recording() as calls:
            term = function(*args, **kwargs)
        return replace(term, calls=tuple(calls))

    return wrapped


def multiplies(hardware: Hardware, precision: str) -> bool:
    """Whether a machine multiplies in a format: it has a peak and a kernel for it."""
    return f"gemm_{precision}" in hardware.ops and bool(np.all(hardware.flop_rate(precision) > 0))


def precisions_of(hardware: Hardware) -> list[str]:
    """Formats in which a machine multiplies."""
    known = [op.removeprefix("gemm_") for op in hardware.ops if op.startswith("gemm_")]
    return [precision for precision in known if multiplies(hardware, precision)]


def no_product(hardware: Hardware, precision: str, settings: str = "") -> SpecError:
    """The error of a product in a format of which the data file of a machine has no kernel."""
    known = ", ".join(precisions_of(hardware))
    peak = np.all(hardware.flop_rate(precision) > 0)
    return SpecError.of(
        f"{hardware.name} has no product in {precision}"
        + (" in its data file, only the peak" if peak else ""),
        f"it has {known or 'none'}" + (f": {settings}, or import a model in one of them" if settings else ""),
    )


@operator
def gemm(
    die: Die,
    name: str,
    m: Numeric,
    n: Numeric,
    k: Numeric,
    *,
    groups: Numeric = 1.0,
    precision: str,
    stored: str | None = None,
    rows_vary: Numeric = 0.0,
) -> Term:
    """``groups`` equal products of M x N x K, with weights ``stored`` in another precision maybe. [-]"""
    if not multiplies(die.hardware, precision):
        raise no_product(die.hardware, precision)
    constants = getattr(die.hardware.ops, f"gemm_{precision}")
    widths = {
        "activation_bytes": ELEMENT_BYTES[precision],
        "weight_bytes": _weight_bytes(die, precision, stored),
        "output_bytes": constants.output_bytes.si,
    }
    compute = gemm_laws.gemm_compute_time(
        m,
        n,
        k,
        groups,
        flop_rate=die.flop_rate(precision),
        cores=die.hardware.die.aic_cores.si * die.cube_share,
        row_quantum=constants.row_quantum.si,
        tile_m=constants.tile_m.si,
        tile_n=constants.tile_n.si,
        fill_depth=constants.fill_depth.si,
        efficiency=constants.efficiency.si,
        rows_vary=rows_vary,
    )
    memory = gemm_laws.gemm_memory_time(
        m, n, k, groups, **widths, bandwidth=die.bandwidth, efficiency=constants.memory_efficiency.si
    )
    launch = die.launch(constants)
    return Term(
        name,
        roofline_time(compute, memory, overlap=constants.overlap.si, launch_latency=launch),
        {
            "flop": gemm_laws.gemm_flop(m, n, k, groups),
            "bytes": gemm_laws.gemm_bytes(m, n, k, groups, **widths),
            "compute": compute,
            "memory": memory,
            "latency": launch,
        },
    )


def _weight_bytes(die: Die, precision: str, stored: str | None) -> Numeric:
    """Traffic of one weight: as stored, or more where unpacking it takes a round trip. [B]"""
    computed = ELEMENT_BYTES[precision]
    if stored is None or stored == precision or "unpack" not in die.hardware.ops:
        return ELEMENT_BYTES[stored or precision]
    return np.maximum(ELEMENT_BYTES[stored], computed / die.hardware.ops.unpack.gain.si)


@operator
def quantise(die: Die, rows: Numeric, width: Numeric) -> Term:
    """Dynamic per-token quantisation of activations: BF16 read, INT8 and scales written."""
    constants = die.hardware.ops.quantise
    launch = die.launch(constants)
    moved = rows * width * (ELEMENT_BYTES["bf16"] + ELEMENT_BYTES["int8"])
    memory = attention_laws.attention_memory_time(
        moved, bandwidth=die.bandwidth, efficiency=constants.efficiency.si
    )
    return Term("quantise", launch + memory, {"bytes": moved, "memory": memory, "latency": launch})


@operator
def attention(
    die: Die,
    name: str,
    flop: Numeric,
    bytes_moved: Numeric,
    length: Numeric,
    *,
    constants_name: str,
    precision: str = "bf16",
    busy: Numeric = 1.0,
) -> Term:
    """An attention core with the constants of one kernel, from its flop and its traffic.

    ``busy`` is the share of the cores that have work. [-]
    """
    constants = getattr(die.hardware.ops, constants_name)
    compute = attention_laws.attention_compute_time(
        flop,
        length,
        flop_rate=die.flop_rate(precision) * busy,
        efficiency=constants.efficiency.si,
        half_length=constants.half_length.si,
    )
    memory = attention_laws.attention_memory_time(
        bytes_moved, bandwidth=die.bandwidth * busy, efficiency=constants.memory_efficiency.si
    )
    launch = die.launch(constants)
    time = roofline_time(compute, memory, overlap=constants.overlap.si, launch_latency=launch)
    work = {"flop": flop, "bytes": bytes_moved, "compute": compute, "memory": memory, "latency": launch}
    return Term(name, time, work)


@operator
def vector(
    die: Die, name: str, rows: Numeric, row_bytes: Numeric, kernels: Numeric, *, efficiency: Numeric
) -> Term:
    """Streaming work on the vector cores: norms, rotary embedding, quantisation, SwiGLU, gate."""
    constants = die.hardware.ops.vector
    launch = die.launch(constants)
    time = stream_time(
        rows,
        row_bytes,
        kernels,
        bandwidth=die.hardware.die.hbm_bandwidth.si * die.vector_share,
        efficiency=efficiency,
        launch_latency=launch,
        core_latency=constants.core_latency.si,
        cores=die.hardware.die.aiv_cores.si * die.vector_share,
    )
    started = kernels * launch
    return Term(name, time, {"bytes": rows * row_bytes, "memory": time - started, "latency": started})


def scales_out(hardware: Hardware) -> bool:
    """Whether a scale-out network joins several scale-up networks of a machine."""
    return bool(np.any(np.asarray(hardware.supernodes) > 1))


def exchange_bandwidth(hardware: Hardware, ep: Numeric, library: str) -> Numeric:
    """What one die of a group moves: inside its node, inside its supernode, beyond. [B/s]

    A library that pushes has what a die writes; one that pulls sustains shares of its own of what
    a die reads.
    """
    constants, domain = getattr(hardware.ops, library), hardware.dies_per_supernode
    if "intra_node_efficiency" in constants:
        pull = hardware.fabric.ub.read
        near = constants.intra_node_efficiency.si * pull.intra_node.bandwidth.si
        far = constants.inter_node_efficiency.si * pull.inter_node.bandwidth.si
    else:
        push = hardware.fabric.ub.write
        near, far = push.intra_node.bandwidth.si, push.inter_node.bandwidth.si
    beyond = scales_out(hardware)
    inside = exchange_laws.mixed_bandwidth(
        np.minimum(ep, domain) if beyond else ep,
        near_ranks=hardware.dies_per_node,
        near_bandwidth=near,
        far_bandwidth=far,
    )
    if not beyond:
        return inside
    return exchange_laws.mixed_bandwidth(
        ep, near_ranks=domain, near_bandwidth=inside, far_bandwidth=hardware.fabric.rdma.bandwidth.si
    )


@operator
def exchange(
    die: Die,
    name: str,
    tokens: Numeric,
    ep: Numeric,
    destinations: Numeric,
    message_bytes: Numeric,
    *,
    library: str,
) -> Term:
    """Dispatch or combine of MoE tokens with the constants of one library and mode."""
    constants = getattr(die.hardware.ops, library)
    operands = {
        "floor": constants.floor.si,
        "per_message": constants.per_message.si,
        "per_peer": constants.per_peer.si,
        "bandwidth": exchange_bandwidth(die.hardware, ep, library),
    }
    time = exchange_laws.exchange_time(tokens, ep, destinations, message_bytes, **operands)
    sent = exchange_laws.exchange_bytes(tokens, destinations, message_bytes, ep)
    floor = operands["floor"]
    return Term(name, time, {"bytes": sent, "fabric": time - floor, "latency": floor})


@operator
def collective(die: Die, kind: str, name: str, message_bytes: Numeric, ranks: Numeric) -> Term:
    """One of the collectives ``all_gather``, ``all_to_all``, ``all_reduce``, ``reduce_scatter``.

    Within a node and across nodes a library starts up differently; the caller of the law
    chooses, by the number of ranks. Beyond a supernode no bandwidth exceeds the scale-out link's.
    """
    constants = getattr(die.hardware.ops, kind)
    across = np.asarray(ranks) > die.hardware.dies_per_node
    operands = {
        key: np.where(across, constants[f"{key}_inter_node"].si, constants[key].si)[()]
        if f"{key}_inter_node" in constants
        else constants[key].si
        for key in constants
        if not key.endswith("_inter_node")
    }
    if scales_out(die.hardware):
        beyond = np.asarray(ranks) > die.hardware.dies_per_supernode
        link = die.hardware.fabric.rdma.bandwidth.si
        for key in {"bandwidth", "link_bandwidth"} & operands.keys():
            operands[key] = np.where(beyond, np.minimum(operands[key], link), operands[key])[()]
    time = getattr(comm_laws, f"{kind}_time")(message_bytes, ranks, **operands)
    sent = getattr(comm_laws, f"{kind}_bytes")(message_bytes, ranks)
    bandwidth_time = np.minimum(time, sent / operands["bandwidth"])
    return Term(name, time, {"bytes": sent, "fabric": bandwidth_time, "latency": time - bandwidth_time})


@operator
def transfer(die: Die, name: str, message_bytes: Numeric, *, plane: str) -> Term:
    """A point-to-point transfer over ``ub``, ``rdma`` or ``vpc``, from one die."""
    fabric = die.hardware.fabric
    tier = fabric.ub.write.inter_node if plane == "ub" else getattr(fabric, plane)
    latency = tier.latency.si
    time = comm_laws.point_to_point_time(message_bytes, latency=latency, bandwidth=tier.bandwidth.si)
    return Term(name, time, {"bytes": message_bytes, "fabric": time - latency, "latency": latency})


@operator
def model_load(die: Die, model_bytes: Numeric, loads: Numeric, hit_rate: Numeric) -> Term:
    """Start of an instance: from the memory pool with ``hit_rate``, else from the bucket."""
    constants = die.hardware.ops.model_load
    bucket = constants.bucket_bandwidth.si * constants.bucket_efficiency.si
    cold = cold_start_time(loads, model_bytes, bandwidth=bucket)
    warm = cold_start_time(1.0, model_bytes, bandwidth=constants.warm_bandwidth.si)
    time = mean_switch_time(hit_rate, warm, cold)
    return Term("model_load", time, {"bytes": loads * model_bytes, "fabric": time})
