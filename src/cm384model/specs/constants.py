"""What a constant of a free section may be, by how its name ends: files and ``--set`` keep to it."""

from __future__ import annotations

from cm384model.specs.quantity import Measure, Quantity

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
