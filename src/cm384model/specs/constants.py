"""Which constants there are, and what each may be, by how its name ends: files and ``--set`` keep to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from pydantic import AfterValidator

from cm384model.specs.diagnostics import with_suggestion
from cm384model.specs.quantity import Measure, Quantity, fault

ENGINE = {
    "constants": (
        *("kernel_launch", "operator_startup", "vector_efficiency", "stream_overlap", "stream_sync"),
        *("step_overhead", "graph_overhead", "prefill_overlap", "dispatch_scale_bytes"),
        *("imbalance_perfect", "imbalance_eplb", "imbalance_none"),
        *("cache_dram_share", "cache_block_tokens", "cache_block_latency_ub", "cache_block_latency_vpc"),
    ),
    "layout": ("lm_head_tp", "prefill_core_share", "prefill_copies_limit", "redundant_experts"),
    "memory": ("reserve_share", "runtime"),
}
"""Constants that something reads, by table of an engine file: another name is one that nothing would see."""
OPERATOR = (
    *("efficiency", "memory_efficiency", "overlap", "launch_latency", "half_length"),
    *("row_quantum", "tile_m", "tile_n", "fill_depth", "output_bytes", "gain"),
    *("core_latency", "bandwidth_share_exponent"),
    *("floor", "per_message", "per_peer", "intra_node_efficiency", "inter_node_efficiency"),
    *("latency", "latency_inter_node", "per_doubling", "bandwidth", "link_bandwidth", "staging_bandwidth"),
    *("switch_latency", "switch_bytes", "switch_bytes_inter_node"),
    *("bucket_bandwidth", "bucket_efficiency", "warm_bandwidth"),
)
"""The same for the operators of a machine."""
S = TypeVar("S", bound=Iterable[str])

AT_MOST_ONE = ("efficiency", "overlap", "exponent", "share")
"""Parts of a whole; no range reaches beyond 1 either."""
DIVISORS = ("efficiency", "core_share", "dram_share")
"""Parts of a whole that something is divided by."""
COUNTS = ("tile_m", "tile_n", "row_quantum", "block_tokens", "lm_head_tp", "copies_limit")
"""Whole numbers that something is divided by."""


def measure_of(name: str, quantity: Quantity) -> Measure | None:
    """The bounds of a constant, None where any number that is not negative will do."""
    if name.endswith(AT_MOST_ONE):
        return Measure("number", high=1, above_low=name.endswith(DIVISORS))
    if name.endswith(COUNTS):
        return Measure("number", low=1, whole=True)
    if name.startswith("imbalance"):  # copies of experts take their share of what is above 1
        return Measure("number", low=1, above_low=name.endswith("none"))
    if name.endswith("bandwidth") or quantity.dimension in ("byte_rate", "flop_rate"):
        return Measure("byte_rate" if name.endswith("bandwidth") else quantity.dimension, above_low=True)
    return None


def check_constant(name: str, quantity: Quantity) -> None:
    """Refuse a constant that no law can take.

    Raises
    ------
    PydanticCustomError
        With the bounds, or the units that it may have.
    """
    measure = measure_of(name, quantity)
    if measure is not None:
        measure.check(quantity)


def only(names: Sequence[str]) -> AfterValidator:
    """A free section that has constants of these names alone."""

    def known(section: S) -> S:
        for name in section:
            if name not in names:
                raise fault(with_suggestion(f"unknown constant '{name}'", name, names), key=name)
        return section

    return AfterValidator(known)
