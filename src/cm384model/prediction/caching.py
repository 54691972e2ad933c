"""What one node of host DRAM gives to the context cache, and what the traffic asks of the pool."""

from __future__ import annotations

from dataclasses import dataclass

from cm384model.laws.caching import cache_capacity_tokens
from cm384model.numeric import Numeric
from cm384model.prediction.case import Case
from cm384model.prediction.memory import kv_bytes_per_token_layer
from cm384model.specs.diagnostics import SpecError


@dataclass(frozen=True)
class PoolNode:
    """One node's part of the pool.

    Attributes
    ----------
    capacity_bytes : numeric
        DRAM that the pool may fill. [B]
    capacity_tokens : numeric
        Tokens whose cache it holds. [tokens]
    load_rate : numeric
        What the node sends over its plane at most. [B/s]
    dram_rate : numeric
        What its DRAM reads and writes at most. [B/s]
    """

    capacity_bytes: Numeric
    capacity_tokens: Numeric
    load_rate: Numeric
    dram_rate: Numeric


def kv_bytes_per_token(case: Case) -> Numeric:
    """KV cache of one prompt token over all layers, as prefill stores it. [B/tokens]"""
    prompt_len = case.workload.traffic.prompt_len.si
    return case.model.architecture.layers.si * kv_bytes_per_token_layer(case.system, prompt_len)


def pool_node(case: Case, plane: str) -> PoolNode:
    """What a node lends to the pool, with loads over ``ub`` (all CPU sockets) or ``vpc`` (one VPC card).

    Raises
    ------
    SpecError
        With every number that the machine or the engine does not state.
    """
    node, fabric, constants = case.hardware.node, case.hardware.fabric, case.engine.constants
    needed = {
        "hardware.node.dram_capacity": node.dram_capacity,
        "hardware.node.dram_bandwidth": node.dram_bandwidth,
        "engine.constants.cache_dram_share": vars(constants).get("cache_dram_share"),
    }
    if plane == "ub":
        needed["hardware.fabric.ub.cpu_rate"] = fabric.ub.cpu_rate
    missing = [path for path, quantity in needed.items() if quantity is None]
    if missing or node.dram_capacity is None or node.dram_bandwidth is None:
        raise SpecError.of(
            f"{case.hardware.name} with {case.engine.name} does not state {', '.join(missing)}",
            "a context cache in host DRAM is sized by them",
        )
    share = constants.cache_dram_share.si
    if plane == "vpc" or fabric.ub.cpu_rate is None:
        load_rate = fabric.vpc.bandwidth.si
    else:
        load_rate = node.cpus.si * fabric.ub.cpu_rate.si
    return PoolNode(
        capacity_bytes=share * node.dram_capacity.si,
        capacity_tokens=cache_capacity_tokens(
            1.0, node.dram_capacity.si, share, bytes_per_token=kv_bytes_per_token(case)
        ),
        load_rate=load_rate,
        dram_rate=node.dram_bandwidth.si,
    )
