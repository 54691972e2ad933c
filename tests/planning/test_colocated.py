"""Plans of instances that do both, against loops over every deployment."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from cm384model import api
from cm384model.planning import colocated, layouts, space
from cm384model.planning.colocated import colocated_at, colocated_plans, time_to_first_token
from cm384model.planning.request import Request, Slo
from cm384model.prediction.case import load_case
from cm384model.prediction.colocated import colocated_serving
from cm384model.prediction.evaluate_colocated import colocated_deployment, predict_colocated
from cm384model.report.blocks import Command
from cm384model.report.colocated_plan import colocated_blocks
from cm384model.specs.load import load_model

BATCHES, DRAFTS, SHARES, TOKENS = 3, 1, (1 / 3, 5 / 8), (128.0, 4096.0)


def case_of(model):
    case = load_case("deepseek-r1-4k-256", settings=["hardware.die.hbm_capacity=128GB"])
    return replace(case, model=load_model(model))


def combinations(case, request, npus, tps, expert_tps):
    """Rate, TPOT, NPUs, TTFT and size of every deployment that keeps every limit, one after the other."""
    traffic, found = case.workload.traffic, []
    drafts = range(DRAFTS + 1) if case.model.architecture.mtp_layers.si else (0,)
    for ep in range(16, 2 * npus + 1, 16):
        for batch in range(1, BATCHES + 1):
            for draft in drafts:
                for tp in tps:
                    for expert_tp in expert_tps:
                        for redundant in (0, 32):
                            for limit in TOKENS:
                                at = {
                                    "ep": ep,
                                    "batch_per_die": batch,
                                    "draft_tokens": draft,
                                    "attention_tp": tp,
                                    "expert_tp": expert_tp,
                                    "redundant_experts": redundant,
                                }
                                schedules = [at] + [
                                    at | {"microbatches": 2, "attention_aic_share": s} for s in SHARES
                                ]
                                best = min(
                                    (colocated_deployment(case, one) for one in schedules),
                                    key=lambda d: colocated_serving(case.system, d).step.step_time,
                                )
                                tokens = min(best.prefill.tokens_per_npu, limit)
                                best = replace(best, prefill=replace(best.prefill, tokens_per_npu=tokens))
                                served = colocated_serving(case.system, best)
                                one = _one(case, request, npus, best, served)
                                if one is not None:
                                    found.append((*one, ep))
    assert traffic.output_len.si == 256
    return found


def _one(case, request, npus, deployment, served):
    each, slo = deployment.decode.ep / 2, request.slo
    most = min(
        npus // each,
        math.floor(request.max_concurrency / served.concurrency + 1e-9)
        if math.isfinite(request.max_concurrency)
        else 10**9,
    )
    count = most if request.rate is None else max(math.ceil(request.rate / served.rate - 1e-9), 1)
    if not 1 <= count <= most or served.memory.free < 0:
        return None
    rate = served.rate * count if request.rate is None else request.rate
    ttft = float(time_to_first_token(case, deployment, served, rate / count))
    if served.tpot > slo.tpot or ttft > slo.ttft or ttft + 255 * served.tpot > slo.e2e:
        return None
    return float(rate), float(served.tpot), each * count, ttft


def best_of(found, objective, same_rate):
    if objective == "npus":
        return min(found, key=lambda c: (c[2], c[1], c[3]))
    if objective == "throughput":
        top = max(c[0] for c in found)
        found = [c for c in found if c[0] >= top * (1 - same_rate)]
    return min(found, key=lambda c: (c[1], c[2], -c[0], c[3]))


@pytest.mark.parametrize(
    ("model", "tps", "expert_tps"),
    [("deepseek-r1", (1, 4), (1,)), ("qwen3-235b-a22b", (1, 2), (1, 16)), ("qwen3-32b", (2, 8), (1,))],
)
@settings(max_examples=4)
@given(seed=st.integers(0, 2**62))
def test_the_winner_is_the_best_of_all_deployments(model, tps, expert_tps, seed):
    rng = np.random.default_rng(seed)

    def one_of(*choices):
        return choices[rng.integers(len(choices))]

    def log_uniform(low, high):
        return float(low * (high / low) ** rng.random())

    objective = one_of("throughput", "throughput", "npus", "latency")
    request = Request(
        npus=one_of(8, 16, 24),
        slo=Slo(log_uniform(0.03, 0.3), log_uniform(0.2, 5.0), one_of(math.inf, log_uniform(8.0, 60.0))),
        objective=objective,
        rate=None if objective == "throughput" else log_uniform(0.2, 30.0),
        top=one_of(1, 3),
        max_concurrency=one_of(math.inf, log_uniform(10.0, 300.0)),
        serving="colocated",
    )
    same_rate = one_of(1e-3, 0.05)
    note(f"{request}, SAME_RATE={same_rate}")
    case = case_of(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(colocated, "MAX_BATCH_PER_DIE", BATCHES)
        patch.setattr(space, "MAX_DRAFT_TOKENS", DRAFTS)
        patch.setattr(colocated, "PREFILL_TOKENS", TOKENS)
        patch.setattr(colocated, "BLOCK", one_of(1, 2, 128))
        patch.setattr(colocated, "SAME_RATE", same_rate)
        patch.setattr("cm384model.prediction.evaluate.core_shares", lambda case: np.array(SHARES))
        patch.setattr(layouts, "ATTENTION_TP", tps)
        patch.setattr(layouts, "MORE_TP", tps)
        patch.setattr(layouts, "EXPERT_TP", expert_tps)
        result = colocated_plans(case, request, request.npus)
    left = combinations(case, request, request.npus, tps, expert_tps)
    assert bool(result.plans) == bool(left)
    assert (result.infeasible is None) == bool(left)
    assert len(result.plans) == min(len({c[4] for c in left}), request.top)
    for plan in result.plans:
        rate, tpot, npus, ttft, ep = best_of(left, objective, same_rate)
        assert plan.requests_per_s == pytest.approx(rate, rel=1e-9)
        assert plan.tpot_s == pytest.approx(tpot, rel=1e-9)
        assert plan.npus == npus
        assert plan.ttft_s == pytest.approx(ttft, rel=1e-9)
        left = [c for c in left if c[4] != ep]


@pytest.mark.parametrize("reuse", [0.0, 0.5])
def test_a_plan_is_what_prediction_says_of_it(reuse):
    case = load_case("deepseek-r1-4k-256")
    result = api.plan(case, npus=64, serving="both", top=2, reuse=reuse)
    assert result.plans
    for plan in result.colocated:
        found = predict_colocated(case, colocated_at(plan))
        assert found.tpot_s == pytest.approx(plan.tpot_s, rel=1e-9)
        assert found.requests_per_s * plan.instances == pytest.approx(plan.requests_per_s, rel=1e-9)
        assert plan.tpot_s_low < plan.tpot_s < plan.tpot_s_high
        assert plan.requests_per_s_low < plan.requests_per_s < plan.requests_per_s_high
        assert plan.instances * plan.ep == plan.dies == 2 * plan.npus <= 128


@pytest.mark.parametrize("slo", ["tpot=3ms", "ttft=20ms", "e2e=1s", "tpot=30ms,ttft=150ms"])
def test_an_answer_that_is_no_says_why(slo):
    result = api.plan("deepseek-r1-4k-256", npus=32, serving="colocated", slo=slo)
    assert not result.feasible
    assert result.infeasible.constraint
    assert result.infeasible.hint.startswith("try ")


def test_a_load_that_nothing_serves_is_said_as_such():
    case = load_case("deepseek-r1-4k-256")
    asked = {"npus": 32, "serving": "colocated", "slo": "tpot=10s,ttft=100s"}
    missed = api.plan(case, objective="latency", rate=1e4, **asked).infeasible
    assert missed.constraint == "rate: no colocated deployment within 32 NPUs serves 10000 requests/s"
    most = float(missed.nearest.split()[3])
    assert api.plan(case, objective="latency", rate=most * 0.99, **asked).feasible
    few = api.plan(case, max_concurrency=0.5, **asked).infeasible
    assert few.constraint.startswith("max_concurrency: 0.5 ")


@pytest.mark.parametrize(("objective", "column"), [("npus", "npus"), ("latency", "tpot_s")])
def test_plans_stand_beside_the_winner_by_the_objective(objective, column):
    plans = api.plan(
        "deepseek-r1-4k-256", npus=96, serving="colocated", objective=objective, rate=10, top=3
    ).colocated
    assert len(plans) == 3
    for plan in plans:
        assert plan.relative == getattr(plans[0], column) / getattr(plan, column) <= 1


def test_the_command_that_explains_a_plan_is_of_its_cache_and_its_reuse():
    case = load_case("deepseek-r1-4k-256")
    result = api.plan(case, npus=32, serving="colocated", reuse=0.5, kv_precisions=["int8"], top=1)
    (command,) = (b.text for b in colocated_blocks(case, result, "W") if isinstance(b, Command))
    assert command.startswith("cm384 explain W --set model.precision.kv=int8 --phase colocated --at ep=")
    assert command.endswith(",reuse=0.5")
