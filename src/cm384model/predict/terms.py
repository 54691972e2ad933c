"""Named terms: what a prediction is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cm384model.numeric import Numeric
from cm384model.recording import LawCall, Reading

BOUNDS = ("compute", "memory", "fabric", "latency")
"""What a term can be bound by, in the order in which ties are decided."""


@dataclass(frozen=True)
class Term:
    """One named part of a step or a batch, for scalars or for a whole grid.

    Attributes
    ----------
    name : str
        Name of the operator or of the overhead.
    time : numeric
        Time of all its executions in the step or batch. [s]
    flop, bytes : numeric
        Arithmetic and traffic (device memory, or fabric for communication) of
        the same executions. [FLOP], [B]
    compute, memory, fabric, latency : numeric
        The parts that compete inside the term. [s]
    calls : tuple of LawCall and Reading
        The laws and the sourced numbers that made it; filled under `recording` only.
    """

    name: str
    time: Numeric
    flop: Numeric = 0.0
    bytes: Numeric = 0.0
    compute: Numeric = 0.0
    memory: Numeric = 0.0
    fabric: Numeric = 0.0
    latency: Numeric = 0.0
    calls: tuple[LawCall | Reading, ...] = field(default=(), repr=False, compare=False)

    @property
    def bound_index(self) -> Any:
        """Index into `BOUNDS` of the largest part, elementwise."""
        parts = np.broadcast_arrays(self.compute, self.memory, self.fabric, self.latency)
        return np.argmax(np.stack(parts), axis=0)

    @property
    def bound(self) -> str:
        """Name of what bounds the term; for scalar predictions."""
        return BOUNDS[int(self.bound_index)]

    def times(self, count: Numeric) -> Term:
        """The same term executed ``count`` times in a row. [-]"""
        parts = ("time", "flop", "bytes", "compute", "memory", "fabric", "latency")
        return Term(self.name, *(getattr(self, part) * count for part in parts), calls=self.calls)


def merged(name: str, *terms: Term) -> Term:
    """One term that stands for several executed one after the other."""
    parts = ("time", "flop", "bytes", "compute", "memory", "fabric", "latency")
    sums = (sum((getattr(t, part) for t in terms[1:]), start=getattr(terms[0], part)) for part in parts)
    return Term(name, *sums, calls=tuple(call for t in terms for call in t.calls))


def total_time(terms: list[Term]) -> Numeric:
    """Sum of the times of ``terms``. [s]"""
    return sum((t.time for t in terms[1:]), start=terms[0].time)
