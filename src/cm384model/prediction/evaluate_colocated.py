"""One instance that prefills and decodes, from what the user said to a result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from cm384model.laws.mtp import expected_tokens
from cm384model.numeric import Numeric
from cm384model.prediction.case import Case
from cm384model.prediction.colocated import (
    Colocated,
    ColocatedDeployment,
    closed_loop_run,
    colocated_serving,
    prompt_groups,
    with_concurrency,
)
from cm384model.prediction.evaluate import (
    At,
    check_ep,
    check_expert_tp,
    check_stages,
    check_tp,
    filled_decode,
    filled_prefill,
    floats,
    memory_reasons,
    require,
    with_best_split,
)
from cm384model.prediction.families import attention_of
from cm384model.prediction.results import ColocatedPrediction, MemoryResult, TermResult
from cm384model.prediction.scale_out import check_scale_out, notes_of
from cm384model.specs.deployment import COLOCATED_FIELDS, LOADS, read_at
from cm384model.specs.diagnostics import SpecError


def predict_colocated(case: Case, at: At) -> ColocatedPrediction:
    """Predict one instance that prefills and decodes, given as ``name=value`` items or as a mapping.

    Raises
    ------
    SpecError
        For unknown names, values out of bounds, an EP degree that is no whole number of NPUs, and
        unless one load is given.
    """
    given = read_colocated(case, at)
    deployment = colocated_deployment(case, given)
    check_scale_out(case, deployment.decode, given.get("scale_out"))
    found, outputs = colocated_outputs(case, given, deployment)
    reasons = memory_reasons(found.memory.free)
    ok = not reasons
    terms = tuple(found.terms)
    return ColocatedPrediction(
        feasible=ok,
        reasons=reasons,
        deployment={
            name: value if isinstance(value, str) else float(value)
            for name, value in deployment_values(given, deployment).items()
        },
        tokens_per_step=float(found.step.tokens_per_step),
        **floats(outputs, ok),
        terms=tuple(TermResult.of(term) for term in terms) if ok else (),
        memory=MemoryResult.of(found.memory),
        notes=notes_of(case, deployment.decode),
        raw_terms=terms,
    )


def read_colocated(case: Case, at: At) -> dict[str, Any]:
    """What ``at`` says, checked, in SI units.

    Raises
    ------
    SpecError
        As `predict_colocated`.
    """
    given = read_at(at, COLOCATED_FIELDS, "a colocated deployment")
    require(given, ("ep",), "colocated", "--at ep=16,concurrency=64")
    if not any(name in given for name in LOADS):
        raise SpecError.of("a colocated deployment needs a load", f"give one of {', '.join(LOADS)}")
    if "prompts" in given and "concurrency" not in given:
        raise SpecError.of("prompts needs concurrency", "for example --at concurrency=64,prompts=256")
    check_ep(case, given["ep"])
    check_tp(case, given)
    check_expert_tp(case, given)
    check_stages(case, given)
    if given.get("draft_tokens", 0) > 0 and case.model.architecture.mtp_layers.si == 0:
        raise SpecError.of(f"model {case.model.name} has no MTP layer to draft with", "draft_tokens=0")
    if case_of_lengths(case, given).workload.traffic.output_len.si < 2:
        raise SpecError.of("an output of one token has no decode", "output_len of at least 2")
    return given


def colocated_outputs(
    case: Case, given: Mapping[str, Any], deployment: ColocatedDeployment
) -> tuple[Colocated, dict[str, Numeric]]:
    """A colocated instance and its machine-readable quantities, scalars or arrays."""
    found = colocated_serving(case.system, deployment)
    outputs = {
        "tpot_s": found.tpot,
        "ttft_s": found.ttft,
        "e2e_s": found.e2e,
        "requests_per_s": found.rate,
        "throughput_tokens_per_s_per_npu": found.throughput,
        "concurrency": found.concurrency,
        "prefill_share": found.prefill_share,
        "prefill_time_s": found.prefill_time,
        "batch_time_s": found.batch.batch_time,
        "step_time_s": found.step.step_time,
        "longest_gap_s": found.longest_gap,
        "hidden_time_s": found.hidden_time,
    }
    if "prompts" in given:
        run = closed_loop_run(
            case.system, deployment, prompts=given["prompts"], concurrency=given["concurrency"]
        )
        outputs |= {
            "run_time_s": run.time,
            "run_tokens_per_s_per_npu": run.throughput,
            "run_tpot_s": run.tpot,
            "run_ttft_s": run.ttft,
        }
    return found, outputs


def colocated_deployment(case: Case, given: Mapping[str, Any], axes: int = 1) -> ColocatedDeployment:
    """The deployment that checked values describe, defaults filled in from the case.

    Values may be arrays of at most ``axes`` dimensions.

    A load given as concurrency is turned into the decode batch that it keeps. Without
    ``tokens_per_npu`` a prefill batch holds the prompts that take the places of the requests which
    end with a step, and one for each group of dies that share prompts at least.
    """
    case = case_of_lengths(case, given)
    ep, dies_per_npu = given["ep"], case.hardware.dies_per_npu
    if "batch_per_npu" in given:
        batch = given["batch_per_npu"] / dies_per_npu
    else:
        batch = given["batch_per_die"] if "batch_per_die" in given else given["concurrency"] / ep
    decode = filled_decode(case, {**given, "batch_per_die": batch})
    if decode.microbatches > 1 and "attention_aic_share" not in given:
        decode = with_best_split(case, decode, axes)
    output_len, prompt_len = case.workload.traffic.output_len.si, case.workload.traffic.prompt_len.si
    splits = attention_of(case.model).SPLITS_PREFILL
    prefill_tp = decode.attention_tp if splits else 1.0
    prefill = filled_prefill(
        case,
        {
            "tokens_per_npu": 1.0,
            **given,
            "microbatches": given.get("prefill_microbatches", 1.0),
            "attention_tp": prefill_tp,
        },
    )
    if "tokens_per_npu" not in given:
        ended = batch * ep * expected_tokens(decode.draft_tokens, decode.acceptance) / (output_len - 1)
        prompts = np.maximum(prompt_groups(case.system, prefill), ended)
        prefill = replace(prefill, tokens_per_npu=prompts * prompt_len / (ep / dies_per_npu))
    deployment = ColocatedDeployment(decode, prefill, output_len, given.get("mixed_overlap", 0.0))
    if "concurrency" in given:
        return with_concurrency(case.system, deployment, given["concurrency"])
    return deployment


def case_of_lengths(case: Case, given: Mapping[str, Any]) -> Case:
    """The case with the prompt and output lengths of a deployment."""
    for name in ("prompt_len", "output_len"):
        if name in given:
            case = case.replaced(f"workload.traffic.{name}", given[name])
    return case


def deployment_values(given: Mapping[str, Any], deployment: ColocatedDeployment) -> dict[str, Any]:
    """Every value of ``--at``, defaults filled in: numbers, arrays or words."""
    prefill = deployment.prefill
    return {
        **vars(deployment.decode),
        "prompt_len": prefill.prompt_len,
        "output_len": deployment.output_len,
        "tokens_per_npu": prefill.tokens_per_npu,
        "context_parallel": prefill.context_parallel,
        "prefill_microbatches": prefill.microbatches,
        "mixed_overlap": deployment.mixed_overlap,
        "reuse": prefill.reuse,
        "plane": prefill.plane,
        **{name: given[name] for name in ("concurrency", "prompts") if name in given},
    }
