"""Error bars of instances that prefill and decode."""

from __future__ import annotations

from dataclasses import replace

from cm384model.evidence.intervals import ends_of, run_residual
from cm384model.numeric import Numeric
from cm384model.planning.colocated import colocated_at
from cm384model.planning.results import ColocatedPlan, PlanResult
from cm384model.prediction.case import Case
from cm384model.prediction.evaluate import At
from cm384model.prediction.evaluate_colocated import (
    colocated_deployment,
    colocated_outputs,
    read_colocated,
)
from cm384model.prediction.results import ColocatedPrediction
from cm384model.prediction.uncertainty import Uncertainty, propagate


def colocated_uncertainty(case: Case, at: At) -> Uncertainty:
    """Effects of every input on the quantities of an instance that prefills and decodes."""
    given = read_colocated(case, at)
    nominal = colocated_deployment(case, given).decode
    given["attention_tp"] = nominal.attention_tp
    if nominal.microbatches > 1:
        given["attention_aic_share"] = nominal.attention_aic_share

    def outputs(varied: Case) -> dict[str, Numeric]:
        return colocated_outputs(varied, given, colocated_deployment(varied, given))[1]

    return propagate(case, outputs)


def with_colocated_interval(case: Case, at: At, prediction: ColocatedPrediction) -> ColocatedPrediction:
    """The prediction with an interval on TPOT, TTFT and rates."""
    if not prediction.feasible:
        return prediction
    names = ["tpot_s", "ttft_s", "requests_per_s", "throughput_tokens_per_s_per_npu"]
    if prediction.run_time_s is not None:
        names.append("run_tokens_per_s_per_npu")
    return replace(
        prediction, **ends_of(colocated_uncertainty(case, at), tuple(names), colocated_residual(case))
    )


def colocated_residual(case: Case) -> float:
    """The model's 80 % error on published runs of the engine, in log space. [-]"""
    return run_residual(case.engine.name)


def with_colocated_plan_intervals(case: Case, result: PlanResult) -> PlanResult:
    """Every colocated plan with intervals on TPOT and requests per second."""
    plans = tuple(_colocated_plan_interval(case, plan) for plan in result.colocated)
    return replace(result, colocated=plans)


def _colocated_plan_interval(case: Case, plan: ColocatedPlan) -> ColocatedPlan:
    case = case.with_kv_precision(plan.kv_precision)
    found = colocated_uncertainty(case, colocated_at(plan))
    error, one = colocated_residual(case), found.nominal["requests_per_s"]
    rate = [end / one * plan.requests_per_s for end in found.interval("requests_per_s", error)]
    return replace(
        plan, **ends_of(found, ("tpot_s",), error), requests_per_s_low=rate[0], requests_per_s_high=rate[1]
    )
