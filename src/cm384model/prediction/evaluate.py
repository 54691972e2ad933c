"""One deployment or one operator, from what the user said to a result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from cm384model.numeric import Numeric
from cm384model.prediction import operators, single
from cm384model.prediction.case import Case
from cm384model.prediction.decode import DecodeDeployment, DecodeStep, decode_step
from cm384model.prediction.families import attention_of
from cm384model.prediction.memory import prompt_dies, usual_attention_tp
from cm384model.prediction.prefill import PrefillBatch, PrefillDeployment, prefill_batch
from cm384model.prediction.results import (
    DecodePrediction,
    EfficiencyUsed,
    MemoryResult,
    OperatorPrediction,
    PrefillPrediction,
    TermResult,
    parts_of,
)
from cm384model.prediction.scale_out import check_scale_out, notes_of
from cm384model.prediction.terms import Term
from cm384model.recording import Reading, recording
from cm384model.specs.deployment import DECODE_FIELDS, OPERATOR_FIELDS, PREFILL_FIELDS, read_at
from cm384model.specs.diagnostics import SpecError, with_suggestion
from cm384model.specs.quantity import Quantity

At = Mapping[str, Any] | Iterable[str]


def decode_outputs(case: Case, deployment: DecodeDeployment) -> tuple[DecodeStep, dict[str, Numeric]]:
    """A decode step and its machine-readable quantities, scalars or arrays."""
    step = decode_step(case.system, deployment)
    return step, {
        "tpot_s": step.tpot,
        "step_time_s": step.step_time,
        "layer_time_s": step.layer_time,
        "attention_stream_time_s": step.attention_stream_time,
        "expert_stream_time_s": step.expert_stream_time,
        "hidden_time_s": step.hidden_time,
        "throughput_tokens_per_s_per_npu": step.throughput,
    }


def prefill_outputs(case: Case, deployment: PrefillDeployment) -> tuple[PrefillBatch, dict[str, Numeric]]:
    """A prefill batch and its machine-readable quantities, scalars or arrays."""
    batch = prefill_batch(case.system, deployment)
    return batch, {
        "batch_time_s": batch.batch_time,
        "layer_time_s": batch.layer_time,
        "hidden_time_s": batch.hidden_time,
        "throughput_tokens_per_s_per_npu": batch.throughput,
    }


def predict_decode(case: Case, at: At) -> DecodePrediction:
    """Predict one decode deployment given as ``name=value`` items or as a mapping.

    Raises
    ------
    SpecError
        For unknown names, values out of bounds, an EP degree that is no whole number of NPUs.
    """
    deployment = decode_deployment(case, at)
    step, outputs = decode_outputs(case, deployment)
    reasons = memory_reasons(step.memory.free)
    ok = not reasons
    return DecodePrediction(
        feasible=ok,
        reasons=reasons,
        deployment=scalars(deployment),
        **floats(outputs, ok),
        tokens_per_step=float(step.tokens_per_step),
        terms=tuple(TermResult.of(term) for term in step.terms) if ok else (),
        memory=MemoryResult.of(step.memory),
        notes=notes_of(case, deployment),
        raw_terms=tuple(step.terms),
    )


def predict_prefill(case: Case, at: At) -> PrefillPrediction:
    """Predict one prefill deployment given as ``name=value`` items or as a mapping.

    Raises
    ------
    SpecError
        As `predict_decode`, and for a batch smaller than one prompt.
    """
    deployment = prefill_deployment(case, at)
    batch, outputs = prefill_outputs(case, deployment)
    reasons = memory_reasons(batch.memory.free)
    ok = not reasons
    return PrefillPrediction(
        feasible=ok,
        reasons=reasons,
        deployment=scalars(deployment),
        **floats(outputs, ok),
        terms=tuple(TermResult.of(term) for term in batch.terms) if ok else (),
        memory=MemoryResult.of(batch.memory),
        notes=notes_of(case, deployment),
        raw_terms=tuple(batch.terms),
    )


def operator_term(case: Case, name: str, at: At) -> tuple[Term, dict[str, Any]]:
    """The term of one operator on one die, and the operands it was evaluated with.

    Raises
    ------
    SpecError
        For an unknown operator, unknown names and values out of bounds.
    """
    if name not in OPERATOR_FIELDS:
        raise SpecError.of(
            with_suggestion(f"there is no operator '{name}'", name, OPERATOR_FIELDS),
            f"operators: {', '.join(OPERATOR_FIELDS)}",
        )
    operands = single.defaults(case, name) | read_at(at, OPERATOR_FIELDS[name], f"operator {name}")
    return single.OPERATORS[name](operators.Die(case.hardware), case, operands), operands


def predict_operator(case: Case, name: str, at: At) -> OperatorPrediction:
    """Predict one operator on one die.

    Raises
    ------
    SpecError
        For an unknown operator, unknown names and values out of bounds.
    """
    with recording() as entries:
        term, operands = operator_term(case, name, at)
    readings = {entry.path: entry.quantity for entry in entries if isinstance(entry, Reading)}
    return OperatorPrediction(
        name=name,
        operands=operands,
        time_s=float(term.time),
        flop=float(term.flop),
        bytes=float(term.bytes),
        bound=term.bound,
        parts_s=parts_of(term),
        efficiency=tuple(
            _used(path, q)
            for path, q in readings.items()
            if path.startswith(("hardware.ops.", "hardware.fabric."))
        ),
        notes=case.hardware.notes(),
        raw_term=term,
    )


def decode_deployment(case: Case, at: At) -> DecodeDeployment:
    """The deployment that ``at`` describes, defaults filled in from the case."""
    given = read_at(at, DECODE_FIELDS, "a decode deployment")
    dies_per_npu = case.hardware.dies_per_npu
    if "batch_per_npu" in given:
        given["batch_per_die"] = given.pop("batch_per_npu") / dies_per_npu
    require(given, ("ep", "batch_per_die"), "decode", "--at ep=320,batch_per_die=48")
    check_ep(case, given["ep"])
    if given.get("draft_tokens", 0) > 0 and case.model.architecture.mtp_layers.si == 0:
        raise SpecError.of(f"model {case.model.name} has no MTP layer to draft with", "draft_tokens=0")
    check_tp(case, given)
    check_expert_tp(case, given)
    deployment = filled_decode(case, given)
    if deployment.microbatches > 1 and "attention_aic_share" not in given:
        deployment = with_best_split(case, deployment)
    check_scale_out(case, deployment, given.get("scale_out"))
    return deployment


def filled_decode(case: Case, given: Mapping[str, Any]) -> DecodeDeployment:
    """A decode deployment with the defaults of the case where nothing is given.

    Values may be arrays and are not checked; the core split of two streams is not chosen.
    """
    return DecodeDeployment(
        ep=given["ep"],
        batch_per_die=given["batch_per_die"],
        kv_len=given.get("kv_len", case.decode_kv_len),
        microbatches=given.get("microbatches", 1.0),
        attention_aic_share=given.get("attention_aic_share", 1.0),
        draft_tokens=given.get("draft_tokens", 0.0),
        attention_tp=_attention_tp(case, given),
        expert_tp=given.get("expert_tp", 1.0),
        acceptance=given.get("acceptance", case.workload.serving.acceptance.si),
        imbalance=_imbalance(case, given),
        redundant_experts=given.get("redundant_experts", case.engine.layout.redundant_experts.si),
    )


def core_shares(case: Case) -> np.ndarray:
    """Every way to give whole AIC cores to the attention stream and leave some to the experts. [-]

    One where the engine's streams do not divide the cores: it has no effect.
    """
    cores = int(np.max(case.hardware.die.aic_cores.si))
    shares: np.ndarray = np.arange(1, cores) / cores
    return shares if case.engine.decode_streams == "attention-experts" else shares[:1]


def with_best_split(case: Case, deployment: DecodeDeployment, axes: int = 1) -> DecodeDeployment:
    """The deployment with the core split that gives the shortest step.

    Where the case or the deployment holds arrays, they have at most ``axes`` dimensions.
    """
    shares = core_shares(case)
    tried = shares.reshape(-1, *[1] * axes)
    times = decode_step(case.system, replace(deployment, attention_aic_share=tried)).step_time
    times = np.broadcast_to(times, np.broadcast_shapes(np.shape(times), tried.shape))
    best = shares[np.argmin(times, axis=0)]
    return replace(deployment, attention_aic_share=float(best.flat[0]) if best.size == 1 else best)


def prefill_deployment(case: Case, at: At) -> PrefillDeployment:
    """The deployment that ``at`` describes, defaults filled in from the case."""
    given = read_at(at, PREFILL_FIELDS, "a prefill deployment")
    require(given, ("ep", "tokens_per_npu"), "prefill", "--at ep=32,tokens_per_npu=16384")
    check_ep(case, given["ep"])
    check_tp(case, given)
    check_expert_tp(case, given)
    check_stages(case, given)
    if _attention_tp(case, given) > 1 and not attention_of(case.model).SPLITS_PREFILL:
        raise SpecError.of(
            f"the attention weights of {case.model.name} are not split in prefill", "attention_tp=1"
        )
    prompt_len = given.get("prompt_len", case.workload.traffic.prompt_len.si)
    deployment = filled_prefill(case, given)
    own = given.get("context_parallel", 0.0) > 0
    npus = (prompt_dies(case.system, deployment) if own else given["ep"]) / case.hardware.dies_per_npu
    if given["tokens_per_npu"] * npus < prompt_len:
        raise SpecError.of(
            f"a batch of {given['tokens_per_npu'] * npus:g} tokens holds no prompt of {prompt_len:g}",
            f"tokens_per_npu of at least {prompt_len / npus:g}",
        )
    check_scale_out(case, deployment, given.get("scale_out"))
    return deployment


def filled_prefill(case: Case, given: Mapping[str, Any]) -> PrefillDeployment:
    """A prefill deployment with the defaults of the case where nothing is given; unchecked, maybe arrays."""
    return PrefillDeployment(
        ep=given["ep"],
        tokens_per_npu=given["tokens_per_npu"],
        prompt_len=given.get("prompt_len", case.workload.traffic.prompt_len.si),
        microbatches=given.get("microbatches", 2.0),
        imbalance=_imbalance(case, given),
        reuse=given.get("reuse", 0.0),
        plane=given.get("plane", "ub"),
        attention_tp=_attention_tp(case, given),
        expert_tp=given.get("expert_tp", 1.0),
        context_parallel=given.get("context_parallel", 0.0),
        pipeline_stages=given.get("pipeline_stages", 1.0),
        chunks=given.get("chunks", 1.0),
        balanced_chunks=given.get("balanced_chunks", 1.0),
        redundant_experts=given.get("redundant_experts", case.engine.layout.redundant_experts.si),
    )


def memory_reasons(free: Any) -> tuple[str, ...]:
    """Why a scalar deployment does not fit; empty when it does."""
    if free >= 0:
        return ()
    return (f"hbm: {-float(free) / 1e9:.2f} GB over the capacity of a die",)


def _imbalance(case: Case, given: Mapping[str, Any]) -> Numeric:
    if "imbalance" in given:
        return given["imbalance"]
    return case.imbalance(given.get("balance", case.workload.serving.balance), given.get("redundant_experts"))


def require(given: Mapping[str, Any], names: tuple[str, ...], phase: str, example: str) -> None:
    """Refuse a deployment that lacks a name.

    Raises
    ------
    SpecError
        With every name that is missing.
    """
    missing = [name for name in names if name not in given]
    if missing:
        raise SpecError.of(f"a {phase} deployment needs {' and '.join(missing)}", f"for example {example}")


def check_ep(case: Case, ep: float) -> None:
    """Refuse an EP degree that is no whole number of NPUs of the machine.

    Raises
    ------
    SpecError
    """
    dies, total = int(np.max(case.hardware.dies_per_npu)), int(np.max(case.hardware.total_dies))
    if ep > total:
        raise SpecError.of(f"ep = {ep:g} is more than the {total} dies of {case.hardware.name}")
    if ep % dies:
        below = ep // dies * dies
        near = " or ".join(f"{x:g}" for x in (below, below + dies) if 0 < x <= total)
        raise SpecError.of(
            f"ep = {ep:g} is no whole number of NPUs", f"ep counts dies, {dies} per NPU; nearest: {near}"
        )


def _attention_tp(case: Case, given: Mapping[str, Any]) -> Numeric:
    return given["attention_tp"] if "attention_tp" in given else usual_attention_tp(case.system)


def check_tp(case: Case, given: Mapping[str, Any]) -> None:
    """Refuse an attention TP that does not divide the dies and the heads.

    Raises
    ------
    SpecError
    """
    tp = _attention_tp(case, given)
    if given["ep"] % tp or case.model.architecture.heads.si % tp:
        raise SpecError.of(
            f"attention_tp = {tp:g} does not divide ep = {given['ep']:g} and the heads of {case.model.name}",
            "allowed: a common divisor, such as 1, 2, 4 or 8",
        )


def _used(path: str, quantity: Quantity) -> EfficiencyUsed:
    name = path.removeprefix("hardware.")
    return EfficiencyUsed(name, float(quantity.value), quantity.unit, quantity.origin, quantity.confidence)


def check_expert_tp(case: Case, given: Mapping[str, Any]) -> None:
    """Refuse an expert TP that does not divide the dies of a stage and the columns of an expert.

    Raises
    ------
    SpecError
    """
    expert_tp = given.get("expert_tp", 1.0)
    if expert_tp == 1:
        return
    width = getattr(case.model.architecture, "moe_intermediate", None)
    if width is None:
        raise SpecError.of(f"model {case.model.name} has no experts to split", "expert_tp=1")
    if given["ep"] / given.get("pipeline_stages", 1.0) % expert_tp or width.si % expert_tp:
        raise SpecError.of(
            f"expert_tp = {expert_tp:g} does not divide the dies of a stage and the {width.si:g} "
            f"columns of an expert of {case.model.name}",
            "allowed: a common divisor, such as 1, 2, 4 or 8",
        )


def check_stages(case: Case, given: Mapping[str, Any]) -> None:
    """Refuse parts of prompts and stages of layers that do not fill the dies of an instance.

    Raises
    ------
    SpecError
    """
    stages, parts = given.get("pipeline_stages", 1.0), max(given.get("context_parallel", 0.0), 1.0)
    splits = attention_of(case.model).SPLITS_PREFILL  # where prefill splits no weights, a part is one die
    group = (_attention_tp(case, given) if splits else 1.0) * parts * stages
    if given["ep"] % group:
        raise SpecError.of(
            f"attention_tp x context_parallel x pipeline_stages = {group:g} does not divide ep = "
            f"{given['ep']:g}",
            "take a divisor",
        )
    layers = float(np.min(case.model.architecture.layers.si))
    if stages > layers:
        raise SpecError.of(
            f"pipeline_stages = {stages:g} is more than the {layers:g} layers of {case.model.name}"
        )


def scalars(deployment: Any) -> dict[str, float | str]:
    """Every value of a scalar deployment by name."""
    return {
        name: value if isinstance(value, str) else float(value) for name, value in vars(deployment).items()
    }


def floats(outputs: Mapping[str, Numeric], ok: bool) -> dict[str, Any]:
    """Outputs of a scalar prediction, None where it is not feasible."""
    return {name: float(value) if ok else None for name, value in outputs.items()}
