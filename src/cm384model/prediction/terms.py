"""Named terms: what a prediction is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cm384model.numeric import Numeric
from cm384model.recording import LawCall, Reading, recording_active

BOUNDS = ("compute", "memory", "fabric", "latency")
"""What a term can be bound by, in the order in which ties are decided."""


@dataclass(frozen=True)
class Term:
    """One named part of a step or a batch, for scalars or for a whole grid.

    The time is at hand; work and parts are added up over the children only when asked for,
    because a planner asks for times alone.

    Attributes
    ----------
    name : str
        Name of the operator or of the overhead.
    time : numeric
        Time of all its executions in the step or batch. [s]
    work : mapping
        Own ``flop`` [FLOP], ``bytes`` [B], and the times that compete inside the term:
        ``compute``, ``memory``, ``fabric``, ``latency`` [s]; absent means 0.
    children : tuple of (Term, numeric)
        Terms it stands for, each with the number of its executions.
    calls : tuple of LawCall and Reading
        The laws and the sourced numbers that made it; filled under `recording` only.
    """

    name: str
    time: Numeric
    work: Mapping[str, Numeric] = field(default_factory=dict)
    children: tuple[tuple[Term, Numeric], ...] = ()
    calls: tuple[LawCall | Reading, ...] = field(default=(), repr=False, compare=False)

    def part(self, key: str) -> Numeric:
        """Total of one entry of ``work`` over the term and its children."""
        own = self.work.get(key, 0.0)
        return sum((child.part(key) * count for child, count in self.children), start=own)

    @property
    def flop(self) -> Numeric:
        """Arithmetic. [FLOP]"""
        return self.part("flop")

    @property
    def bytes(self) -> Numeric:
        """Traffic: device memory, or fabric for communication. [B]"""
        return self.part("bytes")

    @property
    def bound_index(self) -> Any:
        """Index into `BOUNDS` of the largest part, elementwise."""
        return np.argmax(np.stack(np.broadcast_arrays(*(self.part(b) for b in BOUNDS))), axis=0)

    @property
    def bound(self) -> str:
        """Name of what bounds the term; for scalar predictions."""
        return BOUNDS[int(self.bound_index)]

    def times(self, count: Numeric) -> Term:
        """The same term executed ``count`` times in a row. [-]"""
        return Term(self.name, self.time * count, children=((self, count),), calls=self.calls)


def merged(name: str, *terms: Term, time: Numeric | None = None) -> Term:
    """One term that stands for several; executed one after the other unless ``time`` says else. [s]"""
    calls = tuple(call for term in terms for call in term.calls)
    total = total_time(terms) if time is None else time
    return Term(name, total, children=tuple((term, 1.0) for term in terms), calls=calls)


def total_time(terms: tuple[Term, ...] | list[Term]) -> Numeric:
    """Sum of the times of ``terms``; no terms take no time. [s]"""
    return sum((term.time for term in terms[1:]), start=terms[0].time) if terms else 0.0


def overhead_term(name: str, time: Numeric, *used: Any) -> Term:
    """A term that is waiting alone, with the quantities that say how long. [s]"""
    calls = tuple(Reading(q.path, q) for q in used) if recording_active() else ()
    return Term(name, time, {"latency": time}, calls=calls)
