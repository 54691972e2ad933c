"""Error bars: the ranges of the inputs and the model's own error on rows like the one predicted."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import replace
from fnmatch import fnmatch
from importlib.resources import files
from typing import Any

import numpy as np

from cm384model.evidence.calibrate import shipped_stages
from cm384model.evidence.published import Row, predicted_value
from cm384model.numeric import Numeric
from cm384model.planning.results import Plan, PlanResult, WeakInput
from cm384model.prediction.case import Case
from cm384model.prediction.evaluate import (
    At,
    decode_deployment,
    decode_outputs,
    operator_term,
    prefill_deployment,
    prefill_outputs,
)
from cm384model.prediction.results import DecodePrediction, OperatorPrediction, PrefillPrediction
from cm384model.prediction.serving import kv_transfer_time
from cm384model.prediction.uncertainty import Uncertainty, propagate

UNMEASURED = 0.15
"""Residual of an operator that no shipped row of this machine checks: an assumption. [-]"""


@functools.cache
def residuals() -> dict[str, float]:
    """The 80 % error of the model on unseen rows of every calibration stage, in log space. [-]"""
    text = files("cm384model.evidence").joinpath("residuals.toml").read_text(encoding="utf-8")
    return {name: float(value) for name, value in tomllib.loads(text).items()}


def residual(case: Case, subject: str, at: str) -> float:
    """The model's 80 % error on the measured rows nearest to a subject, in log space. [-]

    Nearest are the rows of the calibration stage that the subject falls into, those of the same
    machine first.
    """
    text = f"{subject} {at}"
    matching = [s for s in shipped_stages() if any(fnmatch(text, pattern) for pattern in s.rows)]
    matching.sort(key=lambda stage: stage.hardware != case.hardware.name)
    known = residuals()
    return next((known[stage.name] for stage in matching if stage.name in known), UNMEASURED)


def row_interval(case: Case, row: Row) -> tuple[float, float]:
    """80 % interval of the prediction of a published row."""
    found = propagate(case, lambda varied: {"value": predicted_value(varied, row)})
    return found.interval("value", residual(case, row.subject, row.at))


def decode_uncertainty(case: Case, at: At) -> Uncertainty:
    """Effects of every input on the quantities of a decode deployment."""
    share = decode_deployment(case, at).attention_aic_share

    def outputs(varied: Case) -> dict[str, Numeric]:
        deployment = replace(decode_deployment(varied, at), attention_aic_share=share)
        return decode_outputs(varied, deployment)[1]

    return propagate(case, outputs)


def prefill_uncertainty(case: Case, at: At) -> Uncertainty:
    """Effects of every input on the quantities of a prefill deployment."""
    return propagate(case, lambda varied: prefill_outputs(varied, prefill_deployment(varied, at))[1])


def with_decode_interval(case: Case, at: At, prediction: DecodePrediction) -> DecodePrediction:
    """The prediction with an interval on TPOT, step time, layer time and throughput."""
    if not prediction.feasible:
        return prediction
    found, error = decode_uncertainty(case, at), residual(case, "decode", "")
    names = ("tpot_s", "step_time_s", "layer_time_s", "throughput_tokens_per_s_per_npu")
    return replace(prediction, **_ends(found, names, error))


def with_prefill_interval(case: Case, at: At, prediction: PrefillPrediction) -> PrefillPrediction:
    """The prediction with an interval on batch time, layer time and throughput."""
    if not prediction.feasible:
        return prediction
    found, error = prefill_uncertainty(case, at), residual(case, "prefill", "")
    return replace(
        prediction, **_ends(found, ("batch_time_s", "layer_time_s", "throughput_tokens_per_s_per_npu"), error)
    )


def with_operator_interval(case: Case, at: At, prediction: OperatorPrediction) -> OperatorPrediction:
    """The prediction with an interval on its time."""
    name = prediction.name
    found = propagate(case, lambda varied: {"time_s": operator_term(varied, name, at)[0].time})
    operands = ",".join(f"{key}={value}" for key, value in prediction.operands.items())
    return replace(prediction, **_ends(found, ("time_s",), residual(case, f"op {name}", operands)))


def with_plan_intervals(case: Case, result: PlanResult) -> PlanResult:
    """Every plan with intervals on TPOT, TTFT and requests per second, and the winner's weakest inputs."""
    if not result.plans:
        return result
    found = [plan_uncertainty(case, plan) for plan in result.plans]
    error = residual(case, "decode", "")
    names = ("tpot_s", "ttft_s", "requests_per_s")
    plans = tuple(
        replace(plan, **_ends(u, names, error)) for plan, u in zip(result.plans, found, strict=True)
    )
    weakest = tuple(
        WeakInput(effect.path, effect.quantity.confidence, effect.low, effect.high)
        for effect in found[0].weakest("requests_per_s", 3)
    )
    return replace(result, plans=plans, weakest_inputs=weakest)


def plan_uncertainty(case: Case, plan: Plan) -> Uncertainty:
    """Effects of every input on the TPOT, the TTFT and the request rate of a plan.

    The pools stay as they are, and so does the share of their capacity that they serve.
    """
    d, p, traffic = plan.decode, plan.prefill, case.workload.traffic
    decode_at: dict[str, Any] = {
        "ep": d.ep,
        "batch_per_die": d.batch_per_die,
        "microbatches": d.microbatches,
        "draft_tokens": d.draft_tokens,
        "attention_tp": d.attention_tp,
        "redundant_experts": d.redundant_experts,
    }
    if d.microbatches > 1:
        decode_at["attention_aic_share"] = d.attention_aic_share
    prefill_at: dict[str, Any] = {
        "ep": p.ep,
        "tokens_per_npu": p.tokens_per_npu,
        "microbatches": p.microbatches,
        "redundant_experts": p.redundant_experts,
    }
    if p.reuse > 0:
        prefill_at |= {"reuse": p.reuse, "plane": p.plane}
    served = plan.requests_per_s / min(d.capacity_requests_per_s, p.capacity_requests_per_s)
    in_prefill = plan.ttft_s - plan.kv_transfer_s - d.step_time_s  # at one load it goes with the batch
    usual = prefill_outputs(case, prefill_deployment(case, prefill_at))[0].batch_time

    def outputs(varied: Case) -> dict[str, Numeric]:
        decoding = varied.with_kv_precision(d.kv_precision)
        step, _ = decode_outputs(decoding, decode_deployment(decoding, decode_at))
        batch, _ = prefill_outputs(varied, prefill_deployment(varied, prefill_at))
        decode_rate = d.dies * d.batch_per_die / (traffic.output_len.si * step.tpot)
        prefill_rate = p.capacity_requests_per_s * usual / batch.batch_time
        return {
            "tpot_s": step.tpot,
            "ttft_s": in_prefill * batch.batch_time / usual + kv_transfer_time(decoding) + step.step_time,
            "requests_per_s": served * np.minimum(decode_rate, prefill_rate),
        }

    return propagate(case, outputs)


def _ends(found: Uncertainty, names: tuple[str, ...], error: float) -> dict[str, Any]:
    ends: dict[str, Any] = {}
    for name in names:
        ends[f"{name}_low"], ends[f"{name}_high"] = found.interval(name, error)
    return ends
