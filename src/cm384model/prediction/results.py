"""What the command line and Python return: SI values under names that carry their unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cm384model.prediction.memory import Memory
from cm384model.prediction.terms import BOUNDS, Term

SCHEMA = 1


@dataclass(frozen=True)
class TermResult:
    """One named term: time, work and bound, totals over the step or batch."""

    name: str
    time_s: float
    flop: float
    bytes: float
    bound: str

    @classmethod
    def of(cls, term: Term) -> TermResult:
        """From a scalar `Term`."""
        return cls(term.name, float(term.time), float(term.flop), float(term.bytes), term.bound)


@dataclass(frozen=True)
class MemoryResult:
    """The memory ledger of one die."""

    capacity_bytes: float
    weights_bytes: float
    kv_cache_bytes: float
    buffers_bytes: float
    reserve_bytes: float
    free_bytes: float
    parts_bytes: Mapping[str, float]

    @classmethod
    def of(cls, memory: Memory) -> MemoryResult:
        """From a scalar `Memory`."""
        return cls(
            float(memory.capacity),
            float(memory.weights),
            float(memory.kv_cache),
            float(memory.buffers),
            float(memory.reserve),
            float(memory.free),
            {name: float(size) for name, size in memory.parts.items()},
        )


@dataclass(frozen=True)
class DecodePrediction:
    """One decode deployment. Times and throughput are None where it is infeasible.

    ``_low`` and ``_high`` are the ends of an 80 % interval, None where none was asked for;
    ``notes`` is what a reader must know of the machine.
    """

    feasible: bool
    reasons: tuple[str, ...]
    deployment: Mapping[str, Any]
    tpot_s: float | None
    step_time_s: float | None
    layer_time_s: float | None
    attention_stream_time_s: float | None
    expert_stream_time_s: float | None
    hidden_time_s: float | None
    tokens_per_step: float
    throughput_tokens_per_s_per_npu: float | None
    terms: tuple[TermResult, ...]
    memory: MemoryResult
    notes: tuple[str, ...] = ()
    schema: int = SCHEMA
    phase: str = "decode"
    tpot_s_low: float | None = None
    tpot_s_high: float | None = None
    step_time_s_low: float | None = None
    step_time_s_high: float | None = None
    layer_time_s_low: float | None = None
    layer_time_s_high: float | None = None
    throughput_tokens_per_s_per_npu_low: float | None = None
    throughput_tokens_per_s_per_npu_high: float | None = None
    raw_terms: tuple[Term, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True)
class PrefillPrediction:
    """One prefill deployment. Times and throughput are None where it is infeasible."""

    feasible: bool
    reasons: tuple[str, ...]
    deployment: Mapping[str, Any]
    batch_time_s: float | None
    layer_time_s: float | None
    hidden_time_s: float | None
    throughput_tokens_per_s_per_npu: float | None
    terms: tuple[TermResult, ...]
    memory: MemoryResult
    notes: tuple[str, ...] = ()
    schema: int = SCHEMA
    phase: str = "prefill"
    batch_time_s_low: float | None = None
    batch_time_s_high: float | None = None
    layer_time_s_low: float | None = None
    layer_time_s_high: float | None = None
    throughput_tokens_per_s_per_npu_low: float | None = None
    throughput_tokens_per_s_per_npu_high: float | None = None
    raw_terms: tuple[Term, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True)
class ColocatedPrediction:
    """One instance that prefills and decodes. Times and rates are None where it is infeasible.

    What begins with ``run_`` is of a run of a fixed number of requests, None without ``prompts``.
    """

    feasible: bool
    reasons: tuple[str, ...]
    deployment: Mapping[str, Any]
    tpot_s: float | None
    ttft_s: float | None
    e2e_s: float | None
    requests_per_s: float | None
    throughput_tokens_per_s_per_npu: float | None
    concurrency: float | None
    prefill_share: float | None
    prefill_time_s: float | None
    batch_time_s: float | None
    step_time_s: float | None
    longest_gap_s: float | None
    hidden_time_s: float | None
    tokens_per_step: float
    terms: tuple[TermResult, ...]
    memory: MemoryResult
    run_time_s: float | None = None
    run_tokens_per_s_per_npu: float | None = None
    run_tpot_s: float | None = None
    run_ttft_s: float | None = None
    schema: int = SCHEMA
    phase: str = "colocated"
    tpot_s_low: float | None = None
    tpot_s_high: float | None = None
    ttft_s_low: float | None = None
    ttft_s_high: float | None = None
    requests_per_s_low: float | None = None
    requests_per_s_high: float | None = None
    throughput_tokens_per_s_per_npu_low: float | None = None
    throughput_tokens_per_s_per_npu_high: float | None = None
    run_tokens_per_s_per_npu_low: float | None = None
    run_tokens_per_s_per_npu_high: float | None = None
    notes: tuple[str, ...] = ()
    raw_terms: tuple[Term, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True)
class EfficiencyUsed:
    """An efficiency or overhead that an operator used, with its origin."""

    name: str
    value: float
    unit: str
    source: str
    confidence: str


@dataclass(frozen=True)
class OperatorPrediction:
    """One operator on one die."""

    name: str
    operands: Mapping[str, Any]
    time_s: float
    flop: float
    bytes: float
    bound: str
    parts_s: Mapping[str, float]
    efficiency: tuple[EfficiencyUsed, ...]
    notes: tuple[str, ...] = ()
    schema: int = SCHEMA
    time_s_low: float | None = None
    time_s_high: float | None = None
    raw_term: Term | None = field(default=None, repr=False, compare=False)


def parts_of(term: Term) -> dict[str, float]:
    """The competing parts of a scalar term by name. [s]"""
    return {name: float(np.asarray(term.part(name))) for name in BOUNDS}
