"""Error bars: the ranges of the inputs and the model's own error on rows like the one predicted."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatch
from importlib.resources import files
from operator import attrgetter
from typing import Any

import numpy as np

from cm384model.evidence.stages import shipped_stages
from cm384model.numeric import Numeric
from cm384model.planning.results import Plan, PlanResult, WeakInput
from cm384model.prediction.case import Case
from cm384model.prediction.evaluate import (
    At,
    decode_deployment,
    decode_outputs,
    filled_decode,
    filled_prefill,
    operator_term,
    prefill_deployment,
    prefill_outputs,
)
from cm384model.prediction.results import (
    DecodePrediction,
    OperatorPrediction,
    PrefillPrediction,
)
from cm384model.prediction.serving import kv_transfer_time
from cm384model.prediction.uncertainty import Uncertainty, propagate, propagate_each

UNMEASURED = 0.15
"""Residual of an operator that no shipped row of this machine checks: an assumption. [-]"""


@functools.cache
def residuals() -> dict[str, float]:
    """The 80 % error of the model on unseen rows of every calibration stage, in log space. [-]"""
    text = files("cm384model.evidence").joinpath("residuals.toml").read_text(encoding="utf-8")
    return {name: float(value) for name, value in tomllib.loads(text).items()}


def residual(case: Case, subject: str, at: str) -> float:
    """The model's 80 % error on the measured rows nearest to a subject, in log space. [-]

    Nearest are the rows of the calibration stage that the subject falls into: one's own, if the
    files of the case were calibrated with such, then those of the same machine. On a machine with
    the constants of another chip it is never below `UNMEASURED`.
    """
    text = f"{subject} {at}"
    matching = [s for s in shipped_stages() if any(fnmatch(text, pattern) for pattern in s.rows)]
    matching.sort(key=lambda stage: stage.hardware != case.hardware.name)
    own = {name: s[name].si for s in (case.hardware.residuals, case.engine.residuals) for name in s}
    known = [found[stage.name] for found in (own, residuals()) for stage in matching if stage.name in found]
    found = float(known[0]) if known else UNMEASURED
    return max(found, UNMEASURED) if case.hardware.is_other_chip() else found


def run_residual(engine: str) -> float:
    """The model's 80 % error on runs of an engine, those of all engines if it has none, in log space. [-]"""
    known = residuals()
    return known.get(f"runs_{engine.replace('-', '_')}", known["runs"])


def decode_uncertainty(case: Case, at: At) -> Uncertainty:
    """Effects of every input on the quantities of a decode deployment."""
    usual = decode_deployment(case, at)
    kept = {"attention_aic_share": usual.attention_aic_share, "attention_tp": usual.attention_tp}

    def outputs(varied: Case) -> dict[str, Numeric]:
        deployment = replace(decode_deployment(varied, at), **kept)
        return decode_outputs(varied, deployment)[1]

    return propagate(case, outputs)


def prefill_uncertainty(case: Case, at: At) -> Uncertainty:
    """Effects of every input on the quantities of a prefill deployment."""
    tp = prefill_deployment(case, at).attention_tp

    def outputs(varied: Case) -> dict[str, Numeric]:
        return prefill_outputs(varied, replace(prefill_deployment(varied, at), attention_tp=tp))[1]

    return propagate(case, outputs)


def with_decode_interval(case: Case, at: At, prediction: DecodePrediction) -> DecodePrediction:
    """The prediction with an interval on TPOT, step time, layer time and throughput."""
    if not prediction.feasible:
        return prediction
    found, error = decode_uncertainty(case, at), residual(case, "decode", "")
    names = ("tpot_s", "step_time_s", "layer_time_s", "throughput_tokens_per_s_per_npu")
    return replace(prediction, **ends_of(found, names, error))


def with_prefill_interval(case: Case, at: At, prediction: PrefillPrediction) -> PrefillPrediction:
    """The prediction with an interval on batch time, layer time and throughput."""
    if not prediction.feasible:
        return prediction
    found, error = prefill_uncertainty(case, at), residual(case, "prefill", "")
    return replace(
        prediction,
        **ends_of(found, ("batch_time_s", "layer_time_s", "throughput_tokens_per_s_per_npu"), error),
    )


def with_operator_interval(case: Case, at: At, prediction: OperatorPrediction) -> OperatorPrediction:
    """The prediction with an interval on its time."""
    name = prediction.name
    found = propagate(case, lambda varied: {"time_s": operator_term(varied, name, at)[0].time})
    operands = ",".join(f"{key}={value}" for key, value in prediction.operands.items())
    return replace(prediction, **ends_of(found, ("time_s",), residual(case, f"op {name}", operands)))


def with_plan_intervals(case: Case, result: PlanResult) -> PlanResult:
    """Every plan with intervals on TPOT, TTFT and requests per second, and the winner's weakest inputs."""
    if not result.plans:
        return result
    found = plan_uncertainties(case, result.plans)
    error = residual(case, "decode", "")
    names = ("tpot_s", "ttft_s", "requests_per_s")
    plans = tuple(
        replace(plan, **ends_of(u, names, error)) for plan, u in zip(result.plans, found, strict=True)
    )
    weakest = tuple(
        WeakInput(effect.path, effect.quantity.confidence, effect.low, effect.high)
        for effect in found[0].weakest("requests_per_s", 3)
    )
    return replace(result, plans=plans, weakest_inputs=weakest)


def plan_uncertainties(case: Case, plans: tuple[Plan, ...]) -> list[Uncertainty]:
    """Effects of every input on the TPOT, the TTFT and the request rate of each plan.

    The pools stay as they are, and so does the share of their capacity that they serve.
    """
    found: dict[int, Uncertainty] = {}
    for precision in dict.fromkeys(plan.decode.kv_precision for plan in plans):
        alike = tuple(plan for plan in plans if plan.decode.kv_precision == precision)
        found |= zip((plan.rank for plan in alike), _uncertainties(case, alike, precision), strict=True)
    return [found[plan.rank] for plan in plans]


def _uncertainties(case: Case, plans: tuple[Plan, ...], kv_precision: str) -> list[Uncertainty]:
    """The same for plans whose decode keeps its cache in one precision."""

    def column(value: Callable[[Plan], float]) -> np.ndarray:
        return np.array([[float(value(plan))] for plan in plans])

    decode_at = {name: column(attrgetter(f"decode.{name}")) for name in plans[0].decode.at}
    prefill_at: dict[str, Any] = dict(plans[0].prefill.at)  # the plane is the same for all
    prefill_at |= {name: column(attrgetter(f"prefill.{name}")) for name in prefill_at if name != "plane"}
    output_len = case.workload.traffic.output_len
    dies = column(attrgetter("decode.dies"))
    capacity = column(attrgetter("prefill.capacity_requests_per_s"))
    served = column(attrgetter("requests_per_s"))
    served /= np.minimum(capacity, column(attrgetter("decode.capacity_requests_per_s")))
    # At one load the time in prefill goes with the batch.
    in_prefill = column(lambda plan: plan.ttft_s - plan.kv_transfer_s - plan.decode.step_time_s)
    usual = prefill_outputs(case, filled_prefill(case, prefill_at))[0]

    def outputs(varied: Case) -> dict[str, Numeric]:
        decoding = varied.with_kv_precision(kv_precision)
        step, _ = decode_outputs(decoding, filled_decode(decoding, decode_at))
        batch, _ = prefill_outputs(varied, filled_prefill(varied, prefill_at))
        decode_rate = dies * decode_at["batch_per_die"] / (output_len.si * step.tpot)
        prefill_rate = capacity * usual.interval / batch.interval
        slower = batch.batch_time / usual.batch_time
        return {
            "tpot_s": step.tpot,
            "ttft_s": in_prefill * slower + kv_transfer_time(decoding) + step.step_time,
            "requests_per_s": served * np.minimum(decode_rate, prefill_rate),
        }

    return propagate_each(case, outputs, len(plans))


def ends_of(found: Uncertainty, names: tuple[str, ...], error: float) -> dict[str, Any]:
    """Ends of the intervals of some outputs, by the names of their fields."""
    ends: dict[str, Any] = {}
    for name in names:
        ends[f"{name}_low"], ends[f"{name}_high"] = found.interval(name, error)
    return ends
