"""The space of deployments as sparse axes, evaluated in one pass, with masks and reasons.

Axes are arrays of shape ``(n, 1, 1, ...)``; a term that does not use an axis is never
evaluated along it, so broadcasting is the memoisation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cm384model.numeric import Numeric
from cm384model.predict.case import Case
from cm384model.predict.decode import DecodeDeployment, DecodeStep, decode_step
from cm384model.predict.evaluate import core_shares
from cm384model.predict.prefill import PrefillBatch, PrefillDeployment, prefill_batch


@dataclass(frozen=True)
class Candidates:
    """Every deployment of one phase.

    Attributes
    ----------
    axes : dict of str to array
        1-D values by name, in the order of the dimensions.
    shape : tuple of int
        Shape of the space.
    reasons : dict of str to bool array
        Where a constraint forbids a candidate, by reason.
    result : DecodeStep or PrefillBatch
        The prediction over the whole space.
    """

    axes: dict[str, np.ndarray]
    shape: tuple[int, ...]
    reasons: dict[str, np.ndarray]
    result: Any

    @property
    def size(self) -> int:
        """Number of candidates."""
        return int(np.prod(self.shape))

    @property
    def feasible(self) -> np.ndarray:
        """Where no constraint forbids a candidate."""
        allowed = np.ones(self.shape, dtype=bool)
        for forbidden in self.reasons.values():
            allowed &= ~forbidden
        return allowed

    def count(self, reason: str) -> int:
        """Candidates that ``reason`` forbids."""
        return int(np.count_nonzero(np.broadcast_to(self.reasons[reason], self.shape)))

    def full(self, values: Numeric) -> np.ndarray:
        """``values`` over the whole space."""
        return np.broadcast_to(values, self.shape)

    def at(self, index: tuple[int, ...]) -> dict[str, float]:
        """Values of all axes at one candidate."""
        return {name: float(axis[i]) for (name, axis), i in zip(self.axes.items(), index, strict=True)}


def sparse(*axes: np.ndarray) -> list[np.ndarray]:
    """Axes reshaped so that each varies along a dimension of its own."""
    return list(np.meshgrid(*axes, indexing="ij", sparse=True))


def instance_sizes(case: Case, npus: int) -> np.ndarray:
    """EP degrees that fill whole nodes, up to the NPUs given. [-]"""
    dies_per_node = int(case.hardware.dies_per_node)
    nodes = int(min(npus, case.hardware.total_npus) // case.hardware.npus_per_node)
    return dies_per_node * np.arange(1, nodes + 1, dtype=float)


MAX_BATCH_PER_DIE = 128
MAX_DRAFT_TOKENS = 3
MAX_TOKENS_PER_NPU = 65536
TOKENS_STEP = 1024


def decode_candidates(case: Case, npus: int, tpot_limit: float) -> Candidates:
    """All decode deployments: EP x requests per die x schedule x draft tokens.

    The schedule axis is "serial", then two microbatches with each split of the AIC cores.
    """
    sizes = instance_sizes(case, npus)
    batches = np.arange(1, MAX_BATCH_PER_DIE + 1, dtype=float)
    shares = np.concatenate([[1.0], core_shares(case)])
    drafts = np.arange(0, MAX_DRAFT_TOKENS + 1, dtype=float)
    drafts = drafts[drafts == 0] if case.model.architecture.mtp_layers.si == 0 else drafts
    ep, batch, share, draft = sparse(sizes, batches, shares, drafts)
    microbatches = np.where(share < 1, 2.0, 1.0)
    step: DecodeStep = decode_step(
        case.system,
        DecodeDeployment(
            ep=ep,
            batch_per_die=batch,
            kv_len=case.decode_kv_len,
            microbatches=microbatches,
            attention_aic_share=share,
            draft_tokens=draft,
            acceptance=float(case.workload.serving.acceptance.si),
            imbalance=case.imbalance(case.workload.serving.balance),
            redundant_experts=float(case.engine.layout.redundant_experts.si),
        ),
    )
    reasons = {
        "hbm": step.memory.free < 0,
        "tpot": step.tpot > tpot_limit,
        "microbatch": (microbatches > 1) & (batch < 2),
    }
    axes = {"ep": sizes, "batch_per_die": batches, "attention_aic_share": shares, "draft_tokens": drafts}
    return Candidates(axes, tuple(len(axis) for axis in axes.values()), reasons, step)


def prefill_candidates(case: Case, npus: int, ttft_limit: float) -> Candidates:
    """All prefill deployments: EP x tokens per NPU x microbatches."""
    sizes = instance_sizes(case, npus)
    tokens = TOKENS_STEP * np.arange(1, MAX_TOKENS_PER_NPU // TOKENS_STEP + 1, dtype=float)
    microbatches = np.array([1.0, 2.0])
    ep, tokens_per_npu, halves = sparse(sizes, tokens, microbatches)
    prompt_len = float(case.workload.traffic.prompt_len.si)
    batch: PrefillBatch = prefill_batch(
        case.system,
        PrefillDeployment(
            ep=ep,
            tokens_per_npu=tokens_per_npu,
            prompt_len=prompt_len,
            microbatches=halves,
            imbalance=case.imbalance(case.workload.serving.balance),
            redundant_experts=float(case.engine.layout.redundant_experts.si),
        ),
    )
    prompts = tokens_per_npu * ep / case.hardware.dies_per_npu / prompt_len
    reasons = {
        "hbm": batch.memory.free < 0,
        "ttft": batch.batch_time > ttft_limit,
        "prompts": prompts < halves,
    }
    axes = {"ep": sizes, "tokens_per_npu": tokens, "microbatches": microbatches}
    return Candidates(axes, tuple(len(axis) for axis in axes.values()), reasons, batch)
