"""The space of deployments as sparse axes, evaluated in one pass, with masks and reasons.

Axes are arrays of shape ``(n, 1, 1, ...)``; a term that does not use an axis is never
evaluated along it, so broadcasting is the memoisation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cm384model.numeric import Numeric
from cm384model.prediction.case import Case
from cm384model.prediction.decode import DecodeDeployment, decode_step
from cm384model.prediction.evaluate import core_shares
from cm384model.prediction.prefill import PrefillDeployment, prefill_batch

CHUNK = 100_000
"""Candidates evaluated at once: their arrays stay in the processor's cache."""


@dataclass(frozen=True)
class Candidates:
    """Every deployment of one phase.

    Attributes
    ----------
    axes : dict of str to array
        1-D values by name, in the order of the dimensions.
    values : dict of str to array
        Predicted quantities over the whole space, by name.
    reasons : dict of str to bool array
        Where a constraint forbids a candidate, by reason.
    """

    axes: dict[str, np.ndarray]
    values: dict[str, np.ndarray]
    reasons: dict[str, np.ndarray]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the space."""
        return tuple(len(axis) for axis in self.axes.values())

    @property
    def size(self) -> int:
        """Number of candidates."""
        return int(np.prod(self.shape))

    @property
    def feasible(self) -> np.ndarray:
        """Where no constraint forbids a candidate."""
        return self.allowed()

    def allowed(self, ignoring: str = "") -> np.ndarray:
        """Where no constraint forbids a candidate, one of them left out of account."""
        masks = [mask for reason, mask in self.reasons.items() if reason != ignoring]
        forbidden: np.ndarray = np.logical_or.reduce(masks)
        return ~forbidden

    def counts(self) -> dict[str, int]:
        """Candidates that each reason forbids."""
        return {reason: int(np.count_nonzero(mask)) for reason, mask in self.reasons.items()}

    def at(self, index: tuple[int, ...]) -> dict[str, float]:
        """Values of all axes at one candidate."""
        return {name: float(axis[i]) for (name, axis), i in zip(self.axes.items(), index, strict=True)}


def evaluate(
    axes: dict[str, np.ndarray], predict: Callable[..., tuple[dict[str, Any], dict[str, Any]]]
) -> Candidates:
    """Evaluate ``predict`` over the product of ``axes``, a slice of the first axis at a time.

    ``predict`` takes the axes as sparse arrays and returns the quantities and the masks to keep.
    """
    shape = tuple(len(axis) for axis in axes.values())
    step = max(1, CHUNK // int(np.prod(shape[1:])))
    first, *others = axes.values()
    kept: tuple[dict[str, np.ndarray], dict[str, np.ndarray]] = ({}, {})
    for start in range(0, len(first), step):
        part = slice(start, start + step)
        outputs = predict(*np.meshgrid(first[part], *others, indexing="ij", sparse=True))
        for store, output, dtype in zip(kept, outputs, (float, bool), strict=True):
            for name, values in output.items():
                store.setdefault(name, np.empty(shape, dtype))[part] = values
    return Candidates(axes, *kept)


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

    The schedule axis is "serial" (share 1), then two microbatches with each split of the AIC
    cores.
    """
    system, acceptance = case.system, float(case.workload.serving.acceptance.si)
    imbalance = case.imbalance(case.workload.serving.balance)
    redundant = float(case.engine.layout.redundant_experts.si)
    most_drafts = MAX_DRAFT_TOKENS if case.model.architecture.mtp_layers.si else 0

    def predict(ep: Numeric, batch: Numeric, share: Numeric, draft: Numeric) -> Any:
        microbatches = np.where(share < 1, 2.0, 1.0)
        step = decode_step(
            system,
            DecodeDeployment(
                ep=ep,
                batch_per_die=batch,
                kv_len=case.decode_kv_len,
                microbatches=microbatches,
                attention_aic_share=share,
                draft_tokens=draft,
                acceptance=acceptance,
                imbalance=imbalance,
                redundant_experts=redundant,
            ),
        )
        masks = {
            "hbm": step.memory.free < 0,
            "tpot": step.tpot > tpot_limit,
            "microbatch": (microbatches > 1) & (batch < 2),
        }
        return {"tpot": step.tpot, "step_time": step.step_time, "free": step.memory.free}, masks

    axes = {
        "ep": instance_sizes(case, npus),
        "batch_per_die": np.arange(1, MAX_BATCH_PER_DIE + 1, dtype=float),
        "attention_aic_share": np.concatenate([[1.0], core_shares(case)]),
        "draft_tokens": np.arange(0, most_drafts + 1, dtype=float),
    }
    return evaluate(axes, predict)


def prefill_candidates(case: Case, npus: int, ttft_limit: float) -> Candidates:
    """All prefill deployments: EP x tokens per NPU x microbatches."""
    system, prompt_len = case.system, float(case.workload.traffic.prompt_len.si)
    imbalance = case.imbalance(case.workload.serving.balance)
    redundant = float(case.engine.layout.redundant_experts.si)

    def predict(ep: Numeric, tokens_per_npu: Numeric, microbatches: Numeric) -> Any:
        batch = prefill_batch(
            system,
            PrefillDeployment(
                ep=ep,
                tokens_per_npu=tokens_per_npu,
                prompt_len=prompt_len,
                microbatches=microbatches,
                imbalance=imbalance,
                redundant_experts=redundant,
            ),
        )
        prompts = tokens_per_npu * ep / case.hardware.dies_per_npu / prompt_len
        masks = {
            "hbm": batch.memory.free < 0,
            "ttft": batch.batch_time > ttft_limit,
            "prompt": prompts < microbatches,
        }
        return {"batch_time": batch.batch_time, "free": batch.memory.free}, masks

    axes = {
        "ep": instance_sizes(case, npus),
        "tokens_per_npu": TOKENS_STEP * np.arange(1, MAX_TOKENS_PER_NPU // TOKENS_STEP + 1, dtype=float),
        "microbatches": np.array([1.0, 2.0]),
    }
    return evaluate(axes, predict)
