"""One box of a sweep: a case, one value of every outer axis, and arrays of the others."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cm384model.numeric import Numeric
from cm384model.prediction.case import Case
from cm384model.prediction.decode import DecodeDeployment
from cm384model.prediction.evaluate import (
    decode_outputs,
    filled_decode,
    filled_prefill,
    prefill_outputs,
    with_best_split,
)
from cm384model.prediction.memory import Memory, prompt_dies
from cm384model.prediction.operators import scales_out
from cm384model.prediction.prefill import PrefillDeployment
from cm384model.prediction.scale_out import allowed
from cm384model.prediction.terms import Term
from cm384model.specs.overrides import apply_overrides
from cm384model.sweeping.study import FILES, Axis, Study

MEMORY_COLUMNS = tuple(f"{f.name}_bytes" for f in dataclasses.fields(Memory) if f.name != "parts")
"""Ledger of one die; it is known where a deployment does not fit, the times are not."""


@dataclass(frozen=True)
class Outcome:
    """What a box gives: numbers, arrays or words by column, all broadcast to ``shape``.

    Attributes
    ----------
    shape : tuple of int
    columns : mapping of str to callable
        Every column, computed when asked for.
    impossible : dict of str to bool array
        Where there is no such deployment, by reason; nothing is known of it.
    unfit : dict of str to bool array
        Where it does not fit the memory; its times are not known.
    late : dict of str to bool array
        Where it misses a limit.
    terms : tuple of str
        Columns that are the times of terms.
    """

    shape: tuple[int, ...]
    columns: Mapping[str, Callable[[], Any]]
    impossible: Mapping[str, Any]
    unfit: Mapping[str, Any]
    late: Mapping[str, Any]
    terms: tuple[str, ...] = ()

    @property
    def reasons(self) -> dict[str, np.ndarray]:
        """Why a row is forbidden; nothing is said of the memory of what cannot be, nor of unknown times."""
        told: dict[str, np.ndarray] = {}
        before = np.zeros(self.shape, dtype=bool)
        for masks in (self.impossible, self.unfit, self.late):
            told |= {reason: np.asarray(mask, dtype=bool) & ~before for reason, mask in masks.items()}
            before = before | self.forbidden(masks)
        return told

    def forbidden(self, masks: Mapping[str, Any]) -> np.ndarray:
        """Where any of some masks holds."""
        found = np.zeros(self.shape, dtype=bool)
        for mask in masks.values():
            found |= np.asarray(mask, dtype=bool)
        return found


def cell(study: Study, index: Sequence[int]) -> tuple[Case, dict[str, Any]]:
    """The case and the fixed values at one value of every outer axis, given by their positions."""
    chosen = [(axis, axis.values[i]) for axis, i in zip(study.outer, index, strict=True)]
    case = study.cases[tuple(value for axis, value in chosen if axis.role == "file")]
    given = dict(study.at)
    for axis, value in chosen:
        if axis.role == "field":
            given[axis.name] = value if isinstance(value, str) else float(value)
        elif axis.role == "path" and isinstance(value, str):
            case = Case(**apply_overrides(vars(case), [f"{axis.name}={value}"]))
        elif axis.role == "path":
            case = case.replaced(axis.name, float(value))
    return case, given


def evaluate(study: Study, index: Sequence[int], parts: Sequence[slice]) -> Outcome:
    """The outcome of a box: positions of the outer axes and a slice of each inner one."""
    case, given = cell(study, index)
    arrays = np.meshgrid(
        *(axis.values[part] for axis, part in zip(study.inner, parts, strict=True)),
        indexing="ij",
        sparse=True,
    )
    for axis, array in zip(study.inner, arrays, strict=True):
        if axis.role == "field":
            given[axis.name] = array
        else:
            case = case.replaced(axis.name, array)
    shape = np.broadcast_shapes(*(array.shape for array in arrays)) if arrays else ()
    with np.errstate(all="ignore"):  # rows that are impossible may divide by zero; they are masked
        predicted = (
            _decode(study, case, given, shape)
            if study.phase == "decode"
            else _prefill(study, case, given, shape)
        )
    columns = dict(predicted.columns)
    columns |= {name: functools.partial(getattr, getattr(case, name), "name") for name in FILES}
    columns |= _axis_columns(study, index, arrays)
    return replace(predicted, columns=columns)


def _axis_columns(
    study: Study, index: Sequence[int], arrays: Sequence[np.ndarray]
) -> Iterator[tuple[str, Callable[[], Any]]]:
    def constant(value: Any) -> Callable[[], Any]:
        return lambda: value

    for axis, i in zip(study.outer, index, strict=True):
        yield axis.column, constant(axis.values[i])
    for axis, array in zip(study.inner, arrays, strict=True):
        yield axis.column, constant(array)


def _decode(study: Study, case: Case, given: dict[str, Any], shape: tuple[int, ...]) -> Outcome:
    dies = case.hardware.dies_per_npu
    if "batch_per_npu" in given:
        given["batch_per_die"] = given["batch_per_npu"] / dies
    deployment = filled_decode(case, given)
    if deployment.microbatches > 1 and "attention_aic_share" not in given:
        deployment = with_best_split(case, deployment, len(shape))
    step, outputs = decode_outputs(case, deployment)
    impossible = _impossible_sizes(case, deployment.ep, given)
    if "attention_tp" in given:
        divides = (deployment.ep % given["attention_tp"] == 0) & (
            case.model.architecture.heads.si % given["attention_tp"] == 0
        )
        impossible["attention_tp"] = ~np.asarray(divides)
    impossible |= _impossible_experts(case, given, deployment.ep)
    drafting = np.asarray(deployment.draft_tokens) > 0
    impossible["mtp"] = drafting & (np.asarray(case.model.architecture.mtp_layers.si) == 0)
    limit = case.workload.slo.tpot.si
    columns = _columns(deployment, outputs, step.memory, step.terms)
    columns["batch_per_npu"] = lambda: deployment.batch_per_die * dies
    columns["tokens_per_step"] = lambda: step.tokens_per_step
    late = {"tpot": step.tpot > limit} if study.limited else {}
    return Outcome(shape, columns, impossible, {"hbm": step.memory.free < 0}, late, _times(step.terms))


def _prefill(study: Study, case: Case, given: dict[str, Any], shape: tuple[int, ...]) -> Outcome:
    deployment = filled_prefill(case, given)
    batch, outputs = prefill_outputs(case, deployment)
    impossible = _impossible_sizes(case, deployment.ep, given)
    d, own = deployment, np.greater(deployment.context_parallel, 0)
    sharing = np.where(own, prompt_dies(case.system, d), d.ep) if np.any(own) else d.ep
    tokens = d.tokens_per_npu * sharing / case.hardware.dies_per_npu
    impossible["prompt"] = np.asarray(tokens < d.prompt_len)
    group = d.attention_tp * np.maximum(d.context_parallel, 1) * d.pipeline_stages
    a = case.model.architecture
    impossible["layout"] = np.asarray(
        (d.ep % group != 0) | (a.heads.si % d.attention_tp != 0) | (d.pipeline_stages > a.layers.si)
    )
    impossible |= _impossible_experts(case, given, d.ep / d.pipeline_stages)
    limit = case.workload.slo.ttft.si
    late = {"ttft": batch.batch_time > limit} if study.limited else {}
    columns = _columns(deployment, outputs, batch.memory, batch.terms)
    return Outcome(shape, columns, impossible, {"hbm": batch.memory.free < 0}, late, _times(batch.terms))


def _impossible_experts(case: Case, given: Mapping[str, Any], dies: Numeric) -> dict[str, Any]:
    """Where dies split experts that there are not, or whose columns or groups do not come out even."""
    if "expert_tp" not in given:
        return {}
    tp, width = np.asarray(given["expert_tp"]), getattr(case.model.architecture, "moe_intermediate", None)
    if width is None:
        return {"expert_tp": tp > 1}
    return {"expert_tp": (dies % tp != 0) | (width.si % tp != 0)}


def _impossible_sizes(case: Case, ep: Numeric, given: Mapping[str, Any]) -> dict[str, Any]:
    """Where an instance is larger than the machine, no whole NPUs, or beyond a supernode unasked."""
    hardware, ep = case.hardware, np.asarray(ep)
    impossible = {"ep": (ep > hardware.total_dies) | (ep % hardware.dies_per_npu != 0)}
    if scales_out(hardware) and not allowed(case, given.get("scale_out")):
        impossible["scale_out"] = ep > hardware.dies_per_supernode
    return impossible


def _columns(
    deployment: DecodeDeployment | PrefillDeployment,
    outputs: Mapping[str, Numeric],
    memory: Memory,
    terms: Sequence[Term],
) -> dict[str, Callable[[], Any]]:
    """Everything a prediction says, by column."""

    def constant(value: Any) -> Callable[[], Any]:
        return lambda: value

    columns = {name: constant(value) for name, value in vars(deployment).items()}
    columns |= {name: constant(value) for name, value in outputs.items()}
    columns |= {
        name: functools.partial(getattr, memory, name.removesuffix("_bytes")) for name in MEMORY_COLUMNS
    }
    return columns | {
        name: functools.partial(getattr, term, "time")
        for name, term in zip(_times(terms), terms, strict=True)
    }


def _times(terms: Sequence[Term]) -> tuple[str, ...]:
    return tuple(f"{term.name}_time_s" for term in terms)


def is_word(axis: Axis) -> bool:
    """Whether the values of an axis are words."""
    return isinstance(axis.values, tuple)
