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
from cm384model.prediction.evaluate_colocated import (
    colocated_deployment,
    colocated_outputs,
    deployment_values,
)
from cm384model.prediction.memory import Memory, prompt_dies
from cm384model.prediction.operators import scales_out
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
    deployment, terms : tuple of str
        Columns that say what the deployment is, and those that are the times of terms.
    """

    shape: tuple[int, ...]
    columns: Mapping[str, Callable[[], Any]]
    impossible: Mapping[str, Any]
    unfit: Mapping[str, Any]
    late: Mapping[str, Any]
    deployment: tuple[str, ...] = ()
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
        predicted = PREDICTORS[study.phase](study, case, given, shape)
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
    impossible = _impossible_decode(case, deployment, given)
    late = {"tpot": step.tpot > case.workload.slo.tpot.si} if study.limited else {}
    outputs |= {"batch_per_npu": deployment.batch_per_die * dies, "tokens_per_step": step.tokens_per_step}
    return _outcome(shape, vars(deployment), outputs, step.memory, step.terms, impossible, late)


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
    late = {"ttft": batch.batch_time > case.workload.slo.ttft.si} if study.limited else {}
    return _outcome(shape, vars(deployment), outputs, batch.memory, batch.terms, impossible, late)


def _colocated(study: Study, case: Case, given: dict[str, Any], shape: tuple[int, ...]) -> Outcome:
    deployment = colocated_deployment(case, given, len(shape))
    found, outputs = colocated_outputs(case, given, deployment)
    decode, prefill = deployment.decode, deployment.prefill
    impossible = _impossible_decode(case, decode, given)
    parts = prefill.attention_tp * np.maximum(prefill.context_parallel, 1)
    impossible["layout"] = np.asarray(decode.ep % parts != 0)
    slo = case.workload.slo
    late = {"tpot": found.tpot > slo.tpot.si, "ttft": found.ttft > slo.ttft.si} if study.limited else {}
    outputs |= {
        "batch_per_npu": decode.batch_per_die * case.hardware.dies_per_npu,
        "tokens_per_step": found.step.tokens_per_step,
    }
    said = deployment_values(given, deployment)
    outputs = {name: value for name, value in outputs.items() if name not in said}
    return _outcome(shape, said, outputs, found.memory, found.terms, impossible, late)


PREDICTORS: dict[str, Callable[[Study, Case, dict[str, Any], tuple[int, ...]], Outcome]] = {
    "decode": _decode,
    "prefill": _prefill,
    "colocated": _colocated,
}
"""What predicts a box, by phase."""


def _impossible_decode(case: Case, deployment: DecodeDeployment, given: Mapping[str, Any]) -> dict[str, Any]:
    """Where there is no such decode deployment, by reason."""
    a, impossible = case.model.architecture, _impossible_sizes(case, deployment.ep, given)
    tp = deployment.attention_tp
    impossible["attention_tp"] = np.asarray((deployment.ep % tp != 0) | (a.heads.si % tp != 0))
    impossible |= _impossible_experts(case, given, deployment.ep)
    drafting = np.asarray(deployment.draft_tokens) > 0
    impossible["mtp"] = drafting & (np.asarray(a.mtp_layers.si) == 0)
    return impossible


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


def _outcome(
    shape: tuple[int, ...],
    deployment: Mapping[str, Any],
    outputs: Mapping[str, Numeric],
    memory: Memory,
    terms: Sequence[Term],
    impossible: Mapping[str, Any],
    late: Mapping[str, Any],
) -> Outcome:
    """Everything a prediction says, by column."""

    def constant(value: Any) -> Callable[[], Any]:
        return lambda: value

    columns = {name: constant(value) for name, value in deployment.items()}
    columns |= {name: constant(value) for name, value in outputs.items()}
    columns |= {
        name: functools.partial(getattr, memory, name.removesuffix("_bytes")) for name in MEMORY_COLUMNS
    }
    times = {f"{term.name}_time_s": functools.partial(getattr, term, "time") for term in terms}
    unfit = {"hbm": memory.free < 0}
    return Outcome(shape, columns | times, impossible, unfit, late, tuple(deployment), tuple(times))


def is_word(axis: Axis) -> bool:
    """Whether the values of an axis are words."""
    return isinstance(axis.values, tuple)
