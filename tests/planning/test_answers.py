"""Marginal values, the throughput-TPOT frontier, a plan as a function of one input, and bad requests."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from cm384model import api
from cm384model.planning import marginal
from cm384model.planning.pairs import SAME_RATE, Staircase
from cm384model.planning.request import ABLATIONS, Request, Slo
from cm384model.planning.search import plan_case
from cm384model.planning.vary import MOST_VALUES, steps
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.traces import RequestTrace

REQUESTS = {
    "64 NPUs": Request(64, Slo(0.05, 2.0)),
    "128 NPUs, tight TPOT": Request(128, Slo(0.015, 4.0)),
    "96 NPUs, tight TTFT": Request(96, Slo(0.1, 0.8)),
    "few requests at once": Request(64, Slo(0.05, 2.0), max_concurrency=200.0),
    "tight end to end": Request(64, Slo(0.05, 2.0, 5.0)),
    "a cache": Request(64, Slo(0.05, 2.0), reuse=0.5),
    "int8": Request(64, Slo(0.05, 2.0), kv_precisions=("bf16", "int8")),
}
EVERY = pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)


# --- marginal values ----------------------------------------------------------------------------------------


@EVERY
def test_more_of_anything_never_serves_less(case, coarse, request_):
    result = plan_case(case, request_)
    names = list(marginal.changes(case, request_))
    more = {m.change: m.requests_per_s_change for m in result.marginals if m.change != "no context cache"}
    assert sorted(more) == sorted(names)
    assert {name: change for name, change in more.items() if change < -1e-6} == {}
    changes = [m.requests_per_s_change for m in result.marginals]
    assert changes == sorted(changes, reverse=True)
    assert result.binding in {"npus", "tpot", "ttft", "e2e", "concurrency", "hbm"}


def test_a_share_of_reuse_that_costs_more_than_it_saves_is_told(case, coarse):
    for reuse, pays in ((0.05, False), (0.8, True)):
        result = plan_case(case, Request(64, Slo(0.05, 5.0), reuse=reuse))
        (without,) = [m for m in result.marginals if m.change == "no context cache"]
        assert (without.requests_per_s_change < 0) == pays


def test_a_limit_that_was_asked_for_can_bind(case, coarse):
    few_at_once = replace(REQUESTS["few requests at once"], max_concurrency=300.0)
    assert plan_case(case, few_at_once).binding == "concurrency"
    assert plan_case(case, REQUESTS["tight end to end"]).binding == "e2e"


def test_the_marginals_of_a_rate_are_those_of_the_npus_that_it_takes(case, coarse):
    request_ = Request(96, Slo(0.05, 5.0), objective="npus", rate=20.0)
    at_rate = plan_case(case, request_)
    plan = at_rate.plans[0]
    assert plan.npus < request_.npus
    full = marginal.marginals(case, replace(request_, objective="throughput", rate=None), plan.npus, plan)
    assert (at_rate.binding, at_rate.marginals) == full


@EVERY
def test_the_base_of_the_marginals_is_the_winner(case, coarse, request_):
    plan = plan_case(case, request_).plans[0]
    base = marginal._rate(case, request_, request_.npus, plan)
    assert base == pytest.approx(plan.requests_per_s, rel=SAME_RATE)


@pytest.mark.parametrize("word", ABLATIONS)
def test_a_choice_less_never_serves_more(case, coarse, word):
    full = Request(64, Slo(0.05, 2.0), reuse=0.5)
    less = replace(full, without=frozenset({word}))
    with_it, without = (plan_case(case, r).plans[0] for r in (full, less))
    assert without.requests_per_s <= with_it.requests_per_s * (1 + SAME_RATE)
    taken = {
        "microbatch": (without.decode.microbatches, without.prefill.microbatches) == (1, 1),
        "mtp": without.decode.draft_tokens == 0,
        "attention-tp": without.decode.attention_tp == 1,
        "expert-tp": (without.decode.expert_tp, without.prefill.expert_tp) == (1, 1),
        "redundancy": (without.decode.redundant_experts, without.prefill.redundant_experts) == (0, 0),
        "caching": without.requests_per_s < with_it.requests_per_s,
    }
    assert taken[word]


def test_the_runner_up_is_said_in_the_winners_terms(case, coarse):
    result = plan_case(case, REQUESTS["64 NPUs"])
    first, second = result.plans[:2]
    assert result.runner_up.startswith(f"decode EP{second.decode.ep} for EP{first.decode.ep}: ")
    assert plan_case(case, replace(REQUESTS["64 NPUs"], top=1)).runner_up == ""


# --- the frontier -------------------------------------------------------------------------------------------


@EVERY
def test_the_frontier_rises_in_both(case, coarse, request_):
    result = plan_case(case, request_, frontier=True)
    points = result.frontier
    assert len(points) >= 2
    for before, after in itertools.pairwise(points):
        assert after.requests_per_s > before.requests_per_s
        assert after.tpot_s > before.tpot_s
    assert points[-1].tpot_s <= request_.slo.tpot
    assert points[-1].requests_per_s == pytest.approx(result.plans[0].requests_per_s, rel=SAME_RATE)
    output_len = float(case.workload.traffic.output_len.si)
    for point in points:
        assert point.ttft_s <= request_.slo.ttft * (1 + 1e-9)
        assert point.throughput_tokens_per_s == pytest.approx(point.requests_per_s * output_len, rel=1e-12)
        assert point.decode_npus + point.prefill_npus <= request_.npus
    assert plan_case(case, request_).frontier == ()


def test_a_point_of_the_frontier_is_the_plan_at_its_tpot(case, coarse):
    request = REQUESTS["64 NPUs"]
    for point in plan_case(case, request, frontier=True).frontier[::4]:
        limit = Slo(point.tpot_s * (1 + 1e-9), request.slo.ttft)
        plan = plan_case(case, replace(request, slo=limit, top=1)).plans[0]
        assert plan.requests_per_s == pytest.approx(point.requests_per_s, rel=SAME_RATE)


# --- as a function of one input -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "dimension", "values"),
    [
        ("10ms:50ms:10ms", "time", ["10ms", "20ms", "30ms", "40ms", "50ms"]),
        ("10ms:0.03s:10ms", "time", ["10ms", "20ms", "30ms"]),
        ("1s:2s:300ms", "time", ["1s", "1.3s", "1.6s", "1.9s"]),
        ("0.1:0.3:0.1", "number", ["0.1", "0.2", "0.3"]),
        ("10%:30%:10%", "number", ["10%", "20%", "30%"]),
        ("32:32:8", "number", ["32"]),
        ("1K:4K:1K", "tokens", ["1024", "2048", "3072", "4096"]),
        ("20/s:60/s:20/s", "request_rate", ["20/s", "40/s", "60/s"]),
        ("20ms,50ms,0.2s", "time", ["20ms", "50ms", "0.2s"]),
    ],
)
def test_a_range_is_its_values_with_both_ends(text, dimension, values):
    assert steps(text, dimension) == values


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("10ms:50ms", "is no range"),
        ("10ms:50ms:5ms:1ms", "is no range"),
        ("50ms:10ms:5ms", "is an empty range"),
        ("10ms:50ms:0ms", "is an empty range"),
        (f"1ms:{MOST_VALUES + 1}ms:1ms", f"has {MOST_VALUES + 1} values"),
        ("10:50:5", "needs a unit"),
        ("10ms:50GB:5ms", "measures bytes"),
        ("a:b:c", "is not a value"),
        ("10ms,20", "needs a unit"),
    ],
)
def test_a_faulty_range_is_one_error(text, said):
    with pytest.raises(SpecError, match=said) as error:
        steps(text, "time")
    assert len(error.value.problems) == 1


@pytest.mark.parametrize(
    ("vary", "values", "field"),
    [
        ("tpot=20ms:60ms:20ms", ["20ms", "40ms", "60ms"], lambda r: r.slo["tpot_s"] * 1e3),
        ("ttft=1s:3s:1s", ["1s", "2s", "3s"], lambda r: r.slo["ttft_s"]),
        ("e2e=10s:30s:10s", ["10s", "20s", "30s"], lambda r: r.slo["e2e_s"]),
        ("npus=32:64:16", ["32", "48", "64"], lambda r: r.npus),
        ("spare_nodes=0:2:1", ["0", "1", "2"], None),
        ("reuse=0:0.8:0.4", ["0", "0.4", "0.8"], None),
        ("max_concurrency=100:300:100", ["100", "200", "300"], None),
        ("die.hbm_bandwidth=1TB/s:3TB/s:1TB/s", ["1TB/s", "2TB/s", "3TB/s"], None),
        ("workload.traffic.output_len=128:384:128", ["128", "256", "384"], None),
    ],
)
def test_vary_plans_once_per_value(case, coarse, vary, values, field):
    falls = vary.startswith(("spare_nodes", "workload"))
    varied = api.vary_plan(
        case, vary, **({} if vary.startswith("npus") else {"npus": 64}), slo="tpot=50ms,ttft=2s"
    )
    assert [one.value for one in varied] == values
    assert {one.name for one in varied} == {vary.partition("=")[0]}
    if field is not None:
        assert [float(v.rstrip("ms")) for v in values] == pytest.approx([field(one.result) for one in varied])
    rates = [one.result.plans[0].requests_per_s if one.result.plans else 0.0 for one in varied]
    rates = rates[::-1] if falls else rates
    for before, after in itertools.pairwise(rates):
        assert after >= before * (1 - SAME_RATE)
    assert rates[0] != rates[-1]


def test_vary_the_rate(case, coarse):
    varied = api.vary_plan(case, "rate=20/s:60/s:20/s", objective="npus", npus=96)
    npus = [one.result.plans[0].npus for one in varied]
    assert npus == sorted(npus)
    assert [one.result.plans[0].requests_per_s for one in varied] == [20.0, 40.0, 60.0]


def test_one_value_of_vary_is_the_plan(case, coarse):
    (one,) = api.vary_plan(case, "tpot=30ms:30ms:1ms", npus=64, slo="ttft=2s")
    assert one.result.plans == api.plan(case, npus=64, slo="tpot=30ms,ttft=2s").plans


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        ("tpot", "is not NAME=START:STOP:STEP"),
        ("tpto=10ms:50ms:5ms", "unknown path 'tpto'"),
        ("tpot=10:50:5", "needs a unit"),
        ("npus=500:600:50", "npus = 500 is out of bounds"),
        ("reuse=0:2:1", "reuse = 1 is out of bounds"),
        ("model.precision.kv=1:2:1", "is a word and no number"),
    ],
)
def test_a_faulty_vary_is_one_error(case, coarse, vary, said):
    with pytest.raises(SpecError, match=said) as error:
        api.vary_plan(case, vary, **({} if vary.startswith("npus") else {"npus": 64}))
    assert len(error.value.problems) == 1


# --- requests -----------------------------------------------------------------------------------------------

FINE = {
    "npus": 64,
    "slo": None,
    "objective": "throughput",
    "rate": None,
    "top": 5,
    "max_concurrency": None,
    "spare_nodes": 0,
    "reuse": 0.0,
    "without": (),
    "kv_precisions": (),
}
FAULTS = {
    "npus": (385, "npus = 385 is out of bounds"),
    "objective": ("throughptu", "Did you mean 'throughput'?"),
    "top": (0, "top = 0 is out of bounds"),
    "max_concurrency": (0, "max_concurrency = 0 is out of bounds"),
    "spare_nodes": (-1, "spare_nodes = -1 is out of bounds"),
    "reuse": (1.0, "reuse = 1 is out of bounds"),
    "without": (("mpt",), "Did you mean 'mtp'?"),
    "kv_precisions": (("int4",), "'int4' is not known"),
}


def test_a_fine_request(case):
    request = api.plan_request(case, **FINE)
    assert request == Request(64, Slo(0.05, float(case.workload.slo.ttft.si)))
    asked = FINE | {"objective": "npus", "rate": "120/s", "without": ["mtp", "mtp"], "max_concurrency": 7}
    request = api.plan_request(case, **asked)
    assert (request.rate, request.without, request.max_concurrency) == (120.0, frozenset({"mtp"}), 7)


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_said(case, name):
    value, said = FAULTS[name]
    with pytest.raises(SpecError) as error:
        api.plan_request(case, **FINE | {name: value})
    assert any(said in problem.message for problem in error.value.problems)
    assert all(problem.hint for problem in error.value.problems)


def test_all_faults_at_once(case):
    with pytest.raises(SpecError) as error:
        api.plan_request(
            case, **FINE | {name: value for name, (value, _) in FAULTS.items()} | {"rate": "5GB"}
        )
    messages = [problem.message for problem in error.value.problems]
    for _, said in FAULTS.values():
        assert sum(said in message for message in messages) == 1, said
    assert sum(message.startswith("rate: ") for message in messages) == 1


@pytest.mark.parametrize(
    ("objective", "rate", "said"),
    [
        ("npus", None, "objective npus needs a rate"),
        ("latency", None, "objective latency needs a rate"),
        ("throughput", "120/s", "objective throughput takes no rate"),
        ("npus", 0.0, "rate = 0.0 is out of bounds"),
        ("npus", float("inf"), "rate = inf is out of bounds"),
        ("npus", "120", "needs a unit"),
    ],
)
def test_a_rate_goes_with_its_objectives(case, objective, rate, said):
    with pytest.raises(SpecError) as error:
        api.plan_request(case, **FINE | {"objective": objective, "rate": rate})
    assert [said in problem.message for problem in error.value.problems] == [True]


def test_spare_nodes_leave_at_least_one_node(case):
    for npus, spare, fine in ((64, 7, True), (64, 8, False), (16, 1, True), (16, 2, False)):
        asked = FINE | {"npus": npus, "spare_nodes": spare}
        if fine:
            assert api.plan_request(case, **asked).spare_nodes == spare
        else:
            with pytest.raises(SpecError, match="spare_nodes"):
                api.plan_request(case, **asked)


@pytest.mark.parametrize("slo", ["tpot=50", "tpot=0ms", "tpto=50ms", {"tpot": -1.0}, "e2e=0s"])
def test_faulty_limits(case, slo):
    with pytest.raises(SpecError):
        api.plan_request(case, **FINE | {"slo": slo})


def trace_of(counts, interval=20.0):
    """Requests spread evenly over intervals, so many in each."""
    times = np.concatenate([interval * (i + (np.arange(n) + 0.5) / n) for i, n in enumerate(counts)])
    ones = np.ones(len(times), dtype=int)
    times = np.concatenate([times, [interval * len(counts)]]) - times[0]
    ones = np.append(ones, 1)
    return RequestTrace(times, ones, ones, np.zeros(0, dtype=int), np.zeros(0, dtype=int))


def test_arrivals_that_do_not_drift_change_little_and_those_that_do_wait(case, coarse):
    request_ = Request(64, Slo(0.1, 2.0), objective="npus", rate=20.0)
    steady, drifting = (
        plan_case(case, replace(request_, arrivals=trace_of(counts))).plans[0]
        for counts in ([100] * 30, [60, 140] * 15)
    )
    assert steady.ttft_arrivals_s == pytest.approx(steady.ttft_s, rel=0.10)
    assert drifting.ttft_arrivals_s > 1.2 * drifting.ttft_s
    assert plan_case(case, request_).plans[0].ttft_arrivals_s is None


def test_a_pool_keeps_a_budget_that_was_rounded_down():
    """A rate is halved for one instance and its delay taken for several: the last digit may differ."""
    nothing = np.zeros(2)
    stairs = Staircase(np.array([16.0, 32.0]), np.array([2.0, 1.0]), nothing, nothing)
    budgets = np.array([2.0, np.nextafter(2.0, 0), 1.5, np.nextafter(1.0, 0), 0.999])
    assert stairs.smallest_within(budgets).tolist() == [0, 0, 1, 1, 2]
