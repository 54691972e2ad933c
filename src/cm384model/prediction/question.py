"""A deployment with its size and its load left open, and searches for the largest of each that fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from cm384model.numeric import Numeric
from cm384model.prediction.case import Case
from cm384model.prediction.decode import DecodeDeployment
from cm384model.prediction.evaluate import (
    At,
    decode_deployment,
    filled_decode,
    filled_prefill,
    prefill_deployment,
)
from cm384model.prediction.families import feed_forward_of
from cm384model.prediction.memory import Memory, decode_memory, prefill_memory, usual_attention_tp
from cm384model.prediction.prefill import PrefillDeployment
from cm384model.specs.deployment import DECODE_FIELDS, PREFILL_FIELDS, read_at
from cm384model.specs.overrides import apply_overrides

Phase = Literal["decode", "prefill"]
Deployment = DecodeDeployment | PrefillDeployment

BITS = 32
"""No batch and no context is as large as 2 to this power. [-]"""


@dataclass(frozen=True)
class Question:
    """What is asked: a deployment of any size and load.

    Attributes
    ----------
    case : Case
        Machine, engine, model and workload.
    phase : {"decode", "prefill"}
        Which half of serving.
    given : mapping
        What the user said, checked, in SI units; ``ep`` is left out.
    """

    case: Case
    phase: Phase
    given: Mapping[str, Any] = field(default_factory=dict)

    def with_given(self, **values: Any) -> Question:
        """The same with other values."""
        return replace(self, given={**self.given, **values})

    def with_setting(self, setting: str) -> Question:
        """The same after one ``PATH=VALUE``."""
        specs = {name: getattr(self.case, name) for name in ("hardware", "engine", "model", "workload")}
        return replace(self, case=Case(**apply_overrides(specs, [setting])))

    @property
    def step(self) -> int:
        """Sizes are multiples of this: whole NPUs, and whole groups that share heads or experts. [dies]"""
        tp = self.given.get("attention_tp") or usual_attention_tp(self.case.system)
        stages, parts = self.given.get("pipeline_stages", 1), max(self.given.get("context_parallel", 0), 1)
        groups = (tp * parts * stages, self.given.get("expert_tp", 1) * stages)
        return int(np.lcm.reduce([int(self.case.hardware.dies_per_npu), *map(int, groups)]))

    @property
    def context(self) -> float:
        """Tokens of one request: ``kv_len`` in decode, ``prompt_len`` in prefill. [tokens]"""
        if self.phase == "decode":
            return float(self.given.get("kv_len", self.case.decode_kv_len))
        return float(self.given.get("prompt_len", self.case.workload.traffic.prompt_len.si))

    def batch(self, ep: Numeric) -> Numeric:
        """Requests at once: of a die in decode, of an instance in prefill. [-]"""
        if self.phase == "decode":
            return self.given.get("batch_per_die", 1.0)
        if "tokens_per_npu" not in self.given:
            return 1.0
        return self.given["tokens_per_npu"] * (ep / self.case.hardware.dies_per_npu) / self.context

    def at(self, ep: Numeric, batch: Numeric, context: Numeric) -> Deployment:
        """The deployment of a size at a load; each may be an array."""
        if self.phase == "decode":
            load = {"ep": ep, "batch_per_die": batch, "kv_len": context}
            return filled_decode(self.case, {**self.given, **load})
        npus = ep / self.case.hardware.dies_per_npu
        load = {"ep": ep, "tokens_per_npu": batch * context / npus, "prompt_len": context}
        return filled_prefill(self.case, {**self.given, **load})

    def free(self, ep: Numeric, batch: Numeric, context: Numeric) -> Any:
        """Memory left on a die. [B]"""
        return memory_of(self.case, self.at(ep, batch, context)).free

    def free_as_asked(self, ep: Numeric) -> Any:
        """Memory left on a die at the load asked for. [B]"""
        return np.broadcast_to(self.free(ep, self.batch(ep), self.context), np.shape(ep))[()]

    def largest_batch(self, ep: Numeric, context: Numeric) -> Any:
        """The most requests of a context at once, 0 where not one fits. [-]"""
        return largest(lambda batch: self.free(ep, batch, context) >= 0, np.broadcast(ep, context).shape)

    def longest_context(self, ep: Numeric, batch: Numeric) -> Any:
        """The longest context of so many requests, 0 where not one token fits. [tokens]"""
        return largest(lambda context: self.free(ep, batch, context) >= 0, np.broadcast(ep, batch).shape)

    def smallest(self, *, whole_nodes: bool = False) -> int | None:
        """The fewest dies of the machine that hold the load asked for, None if all do not."""
        node = int(self.case.hardware.dies_per_node)
        step = int(np.lcm(self.step, node)) if whole_nodes else self.step
        eps = np.arange(step, int(self.case.hardware.total_dies) + 1, step, dtype=float)
        fitting = np.flatnonzero(self.free_as_asked(eps) >= 0)
        return int(eps[fitting[0]]) if fitting.size else None


def memory_of(case: Case, deployment: Deployment) -> Memory:
    """Ledger of a die of a deployment, as `predict` has it. [B]"""
    system = case.system
    d, stages = deployment, getattr(deployment, "pipeline_stages", 1.0)
    place = feed_forward_of(system.model).place
    placement = place(system.hardware, system.model, d.ep / stages, d.redundant_experts, d.expert_tp)
    if isinstance(deployment, DecodeDeployment):
        return decode_memory(system, deployment, placement)
    tokens_per_die = deployment.tokens_per_npu / system.hardware.npu.dies.si
    return prefill_memory(system, deployment, placement, tokens_per_die)


def largest(fits: Callable[[Any], Any], shape: tuple[int, ...]) -> Any:
    """Largest whole number that fits, elementwise; 0 where 1 does not.

    ``fits`` must be true up to some number and false from there on. A bit of the answer is kept
    where the number with it fits, so `BITS` evaluations find it exactly.
    """
    found = np.zeros(shape)
    for bit in 2.0 ** np.arange(BITS - 1, -1, -1):
        found = np.where(fits(found + bit), found + bit, found)
    return found.astype(int)


def read_question(case: Case, phase: Phase, at: At = ()) -> tuple[Question, int | None]:
    """What ``at`` asks, and the size of the instance if it names one.

    Raises
    ------
    SpecError
        As `predict`, but nothing is required.
    """
    decode = phase == "decode"
    given = read_at(at, DECODE_FIELDS if decode else PREFILL_FIELDS, f"a {phase} deployment")
    unsized = Question(case, phase, {name: value for name, value in given.items() if name != "ep"})
    if decode:  # the checks of a prediction, with stand-ins for what is not given
        one = {} if "batch_per_npu" in given else {"batch_per_die": 1.0}
        asked = {"ep": unsized.step, "attention_aic_share": 0.5, "scale_out": "yes"}
        decode_deployment(case, {**asked, **one, **given})
        if "batch_per_npu" in given:
            per_die = unsized.given["batch_per_npu"] / case.hardware.dies_per_npu
            rest = {name: value for name, value in unsized.given.items() if name != "batch_per_npu"}
            unsized = replace(unsized, given={**rest, "batch_per_die": per_die})
    else:
        dies = int(case.hardware.total_dies)
        asked = {"ep": dies, "tokens_per_npu": unsized.context, "scale_out": "yes"}
        prefill_deployment(case, {**asked, **given})
    return unsized, int(given["ep"]) if "ep" in given else None
