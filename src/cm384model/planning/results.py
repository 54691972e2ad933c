"""What ``plan`` returns: SI values under names that carry their unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from cm384model.prediction.results import SCHEMA


@dataclass(frozen=True, kw_only=True)
class DecodeInstance:
    """What is decided about an instance that decodes, in the names of ``--at``: the only list of it.

    A decision has a default where few plans differ from it; reports tell those that do.
    """

    ep: int
    batch_per_die: int
    microbatches: int
    attention_aic_share: float
    draft_tokens: int
    attention_tp: int
    expert_tp: int = 1
    redundant_experts: int

    @property
    def at(self) -> dict[str, float]:
        """The decisions as a deployment takes them."""
        return {f.name: float(getattr(self, f.name)) for f in fields(DecodeInstance)}


@dataclass(frozen=True, kw_only=True)
class PrefillInstance:
    """What is decided about an instance that prefills: as `DecodeInstance`."""

    ep: int
    tokens_per_npu: int
    microbatches: int
    attention_tp: int = 1
    expert_tp: int = 1
    context_parallel: int = 0
    pipeline_stages: int = 1
    chunks: int = 1
    redundant_experts: int
    reuse: float = 0.0
    plane: str = "ub"

    @property
    def at(self) -> dict[str, float | str]:
        """The decisions as a deployment takes them."""
        values = {f.name: getattr(self, f.name) for f in fields(PrefillInstance)}
        return {name: value if name == "plane" else float(value) for name, value in values.items()}


def decided(kind: type[DecodeInstance | PrefillInstance], at: Mapping[str, Any]) -> dict[str, Any]:
    """The decisions about a kind of instance in a row of a space, each of the type of its field."""
    types = get_type_hints(kind)
    return {f.name: types[f.name](at[f.name]) for f in fields(kind)}


@dataclass(frozen=True)
class DecodePool(DecodeInstance):
    """The decode instances of a plan, all alike."""

    kv_precision: str
    instances: int
    npus: int
    dies: int
    step_time_s: float
    throughput_tokens_per_s_per_npu: float
    capacity_requests_per_s: float
    utilisation: float
    free_bytes: float


@dataclass(frozen=True)
class PrefillPool(PrefillInstance):
    """The prefill instances of a plan, all alike."""

    instances: int
    npus: int
    dies: int
    batch_time_s: float
    queue_time_s: float
    throughput_tokens_per_s_per_npu: float
    capacity_requests_per_s: float
    utilisation: float
    free_bytes: float


@dataclass(frozen=True)
class CachePool:
    """The nodes whose DRAM holds the context cache of a plan, as few as carry it."""

    nodes: int
    limit_nodes: int
    capacity_bytes: float
    capacity_tokens: float
    capacity_blocks: float
    hit_rate: float
    retention_s: float
    load_bytes_per_s: float
    load_limit_bytes_per_s: float
    dram_bytes_per_s: float
    dram_limit_bytes_per_s: float
    bound_by: str


@dataclass(frozen=True)
class Plan:
    """One way to spend the NPUs."""

    rank: int
    decode: DecodePool
    prefill: PrefillPool
    npus: int
    dies: int
    tpot_s: float
    ttft_s: float
    ttft_p95_s: float
    e2e_s: float
    tpot_slack_s: float
    ttft_slack_s: float
    kv_transfer_s: float
    requests_per_s: float
    throughput_tokens_per_s_per_npu: float
    throughput_tokens_per_s: float
    concurrency: float
    relative: float
    bound_by: str
    tpot_s_low: float | None = None
    tpot_s_high: float | None = None
    ttft_s_low: float | None = None
    ttft_s_high: float | None = None
    requests_per_s_low: float | None = None
    requests_per_s_high: float | None = None
    cache: CachePool | None = None
    ttft_arrivals_s: float | None = None


@dataclass(frozen=True)
class ColocatedPlan(DecodeInstance):
    """Instances that prefill and decode, all alike, as one way to spend the NPUs."""

    rank: int
    kv_precision: str
    tokens_per_npu: float
    instances: int
    npus: int
    dies: int
    tpot_s: float
    ttft_s: float
    e2e_s: float
    step_time_s: float
    prefill_share: float
    requests_per_s: float
    throughput_tokens_per_s_per_npu: float
    throughput_tokens_per_s: float
    concurrency: float
    relative: float
    free_bytes: float
    reuse: float = 0.0
    tpot_s_low: float | None = None
    tpot_s_high: float | None = None
    requests_per_s_low: float | None = None
    requests_per_s_high: float | None = None


@dataclass(frozen=True)
class Marginal:
    """What one change would be worth to the winner."""

    change: str
    requests_per_s_change: float


@dataclass(frozen=True)
class FrontierPoint:
    """The most requests per second under one TPOT."""

    tpot_s: float
    ttft_s: float
    requests_per_s: float
    throughput_tokens_per_s: float
    decode_ep: int
    batch_per_die: int
    decode_npus: int
    prefill_npus: int


@dataclass(frozen=True)
class MixedPools:
    """The best mix of decode instances of different sizes beside the winner's prefill instances."""

    decode_instances: Mapping[str, int]
    prefill_instances: int
    npus: int
    requests_per_s: float
    requests_per_s_change: float


@dataclass(frozen=True)
class WeakInput:
    """An input whose range moves the winner's request rate most."""

    path: str
    confidence: str
    requests_per_s_change_low: float
    requests_per_s_change_high: float


@dataclass(frozen=True)
class Infeasible:
    """Why no plan exists: the constraint, the nearest miss, one hint."""

    constraint: str
    nearest: str
    hint: str


@dataclass(frozen=True)
class PlanResult:
    """The ranked plans, or why there is none.

    ``plans`` have pools of prefill and of decode, ``colocated`` are those whose instances do both;
    ``infeasible`` says why there is neither.
    """

    feasible: bool
    reasons: tuple[str, ...]
    workload: str
    hardware: str
    engine: str
    model: str
    objective: str
    rate_requests_per_s: float | None
    npus: int
    slo: Mapping[str, float]
    plans: tuple[Plan, ...]
    candidates: int
    evaluated_candidates: int
    feasible_candidates: int
    rejected: Mapping[str, int]
    infeasible: Infeasible | None
    elapsed_s: float
    binding: str = ""
    marginals: tuple[Marginal, ...] = ()
    runner_up: str = ""
    frontier: tuple[FrontierPoint, ...] = ()
    mixed: MixedPools | None = None
    weakest_inputs: tuple[WeakInput, ...] = ()
    serving: str = "disaggregated"
    colocated: tuple[ColocatedPlan, ...] = ()
    notes: tuple[str, ...] = ()
    schema: int = SCHEMA
