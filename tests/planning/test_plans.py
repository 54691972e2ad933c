"""What holds for every plan: limits, whole nodes, Little's law, balanced pools; and for every refusal."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cm384model import api
from cm384model.planning import search
from cm384model.planning.pairs import SAME_RATE
from cm384model.planning.request import Request, Slo
from cm384model.planning.search import plan_case
from cm384model.prediction.case import load_case

NPUS_PER_NODE, DIES_PER_NPU = 8, 2
INFINITE = float("inf")
SEARCH = settings(
    max_examples=15,
    phases=[Phase.generate],  # plans take long to shrink, and say enough as they are
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

NPUS = st.integers(16, 128)
SLOS = st.builds(Slo, st.floats(0.008, 0.1), st.floats(0.2, 8.0), st.sampled_from([INFINITE, 10.0, 30.0]))
SPARE = st.sampled_from([0, 0, 1, 2])


@st.composite
def requests(draw):
    objective = draw(st.sampled_from(["throughput", "npus", "latency"]))
    return Request(
        npus=draw(NPUS),
        slo=draw(SLOS),
        objective=objective,
        rate=None if objective == "throughput" else draw(st.floats(0.5, 120.0)),
        max_concurrency=draw(st.sampled_from([INFINITE, 100.0, 1000.0])),
        spare_nodes=draw(SPARE),
        reuse=draw(st.sampled_from([0.0, 0.5])),
        kv_precisions=draw(st.sampled_from([(), ("int8",), ("bf16", "int8")])),
    )


@pytest.fixture
def plain(monkeypatch):
    """Plans without marginal values, which take longer than the plan."""
    monkeypatch.setattr(search, "marginals", lambda *operands: ("", ()))


def check_plan(case, request, plan):
    d, p = plan.decode, plan.prefill
    output_len = float(case.workload.traffic.output_len.si)
    assert plan.npus == d.npus + p.npus <= request.npus - request.spare_nodes * NPUS_PER_NODE
    assert plan.dies == d.dies + p.dies == plan.npus * DIES_PER_NPU
    for pool in (d, p):
        assert pool.instances >= 1
        assert pool.dies == pool.ep * pool.instances == pool.npus * DIES_PER_NPU
        assert pool.ep % (NPUS_PER_NODE * DIES_PER_NPU) == 0
        assert pool.free_bytes >= 0
        assert plan.requests_per_s <= pool.capacity_requests_per_s * (1 + 1e-9)
        assert 0 < pool.utilisation <= 1 + 1e-9
        assert pool.utilisation == pytest.approx(
            plan.requests_per_s / pool.capacity_requests_per_s, rel=1e-12
        )
    # limits, with their slack
    assert plan.tpot_slack_s == pytest.approx(request.slo.tpot - plan.tpot_s, abs=1e-15)
    assert plan.ttft_slack_s == pytest.approx(request.slo.ttft - plan.ttft_s, abs=1e-15)
    assert plan.tpot_slack_s >= 0
    assert plan.ttft_slack_s >= -1e-9
    assert plan.e2e_s <= request.slo.e2e * (1 + 1e-9)
    assert plan.e2e_s == pytest.approx(plan.ttft_s + (output_len - 1) * plan.tpot_s, rel=1e-12)
    # the parts of TTFT
    assert plan.ttft_s > plan.kv_transfer_s + d.step_time_s
    assert p.queue_time_s >= 0
    # Little's law: requests that decode = arrivals x time they decode, and no more than there is room for
    assert plan.concurrency == pytest.approx(plan.requests_per_s * output_len * plan.tpot_s, rel=1e-12)
    assert plan.concurrency <= d.dies * d.batch_per_die * (1 + 1e-9)
    assert plan.concurrency <= request.max_concurrency * (1 + 1e-9)
    assert d.capacity_requests_per_s * output_len * plan.tpot_s == pytest.approx(
        d.dies * d.batch_per_die, rel=1e-9
    )
    # tokens
    assert plan.throughput_tokens_per_s == pytest.approx(plan.requests_per_s * output_len, rel=1e-12)
    per_npu = plan.throughput_tokens_per_s_per_npu
    assert per_npu * plan.npus == pytest.approx(plan.throughput_tokens_per_s, rel=1e-12)
    assert plan.bound_by.startswith(("decode: ", "prefill: "))
    assert d.microbatches == (1 if d.attention_aic_share == 1 else 2)
    for value in (*_numbers(plan), *_numbers(d), *_numbers(p)):
        assert np.isfinite(value)


def _numbers(record):
    return [value for value in vars(record).values() if isinstance(value, int | float)]


def check_refusal(request, result):
    assert not result.feasible
    assert result.plans == result.marginals == result.frontier == result.weakest_inputs == ()
    assert (result.binding, result.runner_up, result.mixed) == ("", "", None)
    for text in (result.infeasible.constraint, result.infeasible.nearest, result.infeasible.hint):
        assert text.strip()
        assert not re.search(r"\b(nan|inf)\b", text), text
    assert result.reasons == (result.infeasible.constraint,)
    assert result.npus == request.npus


@SEARCH
@given(request=requests())
def test_every_plan_keeps_every_limit_and_law(case, coarse, request):
    result = plan_case(case, request)
    if not result.feasible:
        check_refusal(request, result)
        return
    assert [plan.rank for plan in result.plans] == list(range(1, len(result.plans) + 1))
    assert len({plan.decode.npus // plan.decode.instances for plan in result.plans}) == len(result.plans)
    assert result.infeasible is None
    assert result.plans[0].relative == 1
    for plan in result.plans:
        check_plan(case, request, plan)
        assert plan.relative <= 1 / (1 - SAME_RATE)
        if request.rate is not None:
            assert plan.requests_per_s == request.rate
    first = result.plans[0]
    objective = {"npus": lambda p: p.npus, "latency": lambda p: p.tpot_s}.get(request.objective)
    if objective is not None:
        assert min(map(objective, result.plans)) == objective(first)


@SEARCH
@given(npus=NPUS, slo=SLOS, data=st.data())
def test_more_npus_and_looser_limits_never_serve_less(case, coarse, plain, npus, slo, data):
    def served(npus, slo):
        plans = plan_case(case, Request(npus, slo, top=1)).plans
        return plans[0].requests_per_s if plans else 0.0

    rate = served(npus, slo) * (1 - SAME_RATE) * (1 - 1e-9)
    assert served(npus + data.draw(st.integers(0, 16)), slo) >= rate
    assert served(npus, replace(slo, tpot=slo.tpot * data.draw(st.floats(1, 3)))) >= rate
    assert served(npus, replace(slo, ttft=slo.ttft * data.draw(st.floats(1, 3)))) >= rate


@SEARCH
@given(slo=SLOS, rate=st.floats(1.0, 80.0))
def test_the_objectives_agree_with_each_other(case, coarse, plain, slo, rate):
    """The fewest NPUs for a rate serve it, one node less does not; nor a lower TPOT than the lowest."""
    few = plan_case(case, Request(128, slo, "npus", rate, top=1))
    if not few.feasible:
        return
    npus = few.plans[0].npus
    best = plan_case(case, Request(npus, slo, top=1))
    assert best.plans[0].requests_per_s >= rate * (1 - SAME_RATE)
    less = plan_case(case, Request(npus - NPUS_PER_NODE, slo, top=1))
    assert not less.feasible or less.plans[0].requests_per_s < rate
    quick = plan_case(case, Request(npus, slo, "latency", rate, top=1)).plans[0]
    tight = Request(npus, replace(slo, tpot=quick.tpot_s * (1 - 1e-6)), "latency", rate, top=1)
    assert not plan_case(case, tight).feasible


@SEARCH
@given(npus=NPUS, slo=SLOS, spare=st.integers(1, 3))
def test_spare_nodes_are_npus_that_are_not_there(case, coarse, plain, npus, slo, spare):
    given_ = plan_case(case, Request(npus, slo))
    kept = plan_case(case, Request(npus + spare * NPUS_PER_NODE, slo, spare_nodes=spare))
    assert kept.plans == given_.plans
    assert kept.npus == npus + spare * NPUS_PER_NODE


# --- mixed decode sizes -------------------------------------------------------------------------------------


@SEARCH
@given(npus=st.integers(32, 128), slo=st.builds(Slo, st.floats(0.02, 0.1), st.floats(1.0, 8.0)))
def test_a_mix_of_decode_sizes_is_no_worse_and_fits(case, coarse, plain, npus, slo):
    result = plan_case(case, Request(npus, slo, top=1), mixed=True)
    if not result.feasible:
        return
    (winner,), mix = result.plans, result.mixed
    assert mix is not None
    assert mix.npus <= npus
    assert mix.requests_per_s >= winner.requests_per_s * (1 - 1e-9)
    assert mix.requests_per_s_change == pytest.approx(
        mix.requests_per_s / winner.requests_per_s - 1, abs=1e-12
    )
    used = sum(
        int(re.match(r"EP(\d+)", name)[1]) // DIES_PER_NPU * n for name, n in mix.decode_instances.items()
    )
    prefill = winner.prefill.npus // winner.prefill.instances * mix.prefill_instances
    assert mix.npus == used + prefill


# --- long prompts and other precisions ----------------------------------------------------------------------


def test_a_batch_smaller_than_a_prompt_is_a_chunk_of_it(coarse):
    case = load_case("deepseek-r1-4k-256").replaced("workload.traffic.prompt_len", 131072.0)
    request = Request(192, Slo(0.2, 120.0), top=3)
    result = plan_case(case, request)
    assert result.feasible
    for plan in result.plans:
        check_plan(case, request, plan)


@pytest.mark.parametrize("reuse", [0.0, 0.5, 0.9])
def test_a_cache_that_is_hit_more_serves_more(case, coarse, reuse):
    def rate(reuse, **options):
        return plan_case(case, Request(64, Slo(0.05, 2.0), reuse=reuse, **options)).plans[0].requests_per_s

    assert rate(reuse) >= rate(0.0) * (1 - SAME_RATE)
    assert rate(reuse, without=frozenset({"caching"})) == rate(0.0)


def test_a_smaller_cache_is_chosen_where_it_serves_more(case, coarse):
    slo = Slo(0.05, 2.0)
    own, both, small = (
        plan_case(case, Request(64, slo, kv_precisions=words)).plans[0]
        for words in ((), ("bf16", "int8"), ("int8",))
    )
    assert own.decode.kv_precision == case.model.precision.kv
    assert small.decode.kv_precision == "int8"
    best = max(own.requests_per_s, small.requests_per_s)
    assert both.requests_per_s >= best * (1 - SAME_RATE)


# --- no plan ------------------------------------------------------------------------------------------------

OPTION = re.compile(r"--(slo|npus|rate) (\S+?)(?:/s)?(?= |$)")


def followed(request, hint):
    """The request with everything that a hint names."""
    words = dict(OPTION.findall(hint))
    assert words, hint
    if "npus" in words:
        request = replace(request, npus=int(words["npus"]))
    if "rate" in words:
        request = replace(request, rate=float(words["rate"]))
    for part in words.get("slo", "").split(",") if "slo" in words else ():
        name, _, value = part.partition("=")
        assert value.endswith("ms")
        request = replace(request, slo=replace(request.slo, **{name: float(value[:-2]) / 1e3}))
    return request


def check_hint(case, request):
    """Whether there is no plan; if so the hint leads to one."""
    result = plan_case(case, request)
    if result.feasible:
        return False
    check_refusal(request, result)
    better = followed(request, result.infeasible.hint)
    assert better != request
    assert plan_case(case, better).feasible, (result.infeasible, better)
    return True


@settings(SEARCH, max_examples=60)
@given(
    npus=st.integers(24, 128),
    tpot=st.floats(0.001, 0.06),
    ttft=st.floats(0.05, 2.0),
    e2e=st.sampled_from([INFINITE, 2.0, 6.0]),
    spare=SPARE,
    objective=st.sampled_from(["throughput", "npus", "latency"]),
    rate=st.floats(0.05, 2000.0),
    concurrency=st.sampled_from([INFINITE, 10.0]),
)
def test_the_hint_leads_to_a_plan(
    case, coarse, plain, npus, tpot, ttft, e2e, spare, objective, rate, concurrency
):
    check_hint(
        case,
        Request(
            npus=npus + NPUS_PER_NODE * spare,
            slo=Slo(tpot, ttft, e2e),
            objective=objective,
            rate=None if objective == "throughput" else rate,
            top=1,
            spare_nodes=spare,
            max_concurrency=concurrency,
        ),
    )


@pytest.mark.parametrize(
    ("slo", "constraint"),
    [
        (Slo(1e-3, 60.0), "tpot"),
        (Slo(1.0, 1e-3), "ttft"),
        (Slo(1.0, 0.15), "ttft"),
        (Slo(1.0, 60.0, 0.5), "e2e"),
        (Slo(1e-3, 1e-3), "tpot and ttft"),
    ],
)
@pytest.mark.parametrize("npus", [48, 96])
def test_the_refusal_names_the_limit(case, coarse, plain, npus, slo, constraint):
    request = Request(npus, slo, top=1)
    assert check_hint(case, request)
    assert plan_case(case, request).infeasible.constraint.startswith(f"{constraint}: ")


@pytest.mark.parametrize("npus", [1, 7, 8, 15, 16])
@pytest.mark.parametrize("spare", [0, 1, 3])
def test_too_few_npus(case, coarse, plain, npus, spare):
    assert check_hint(case, Request(npus + NPUS_PER_NODE * spare, Slo(1.0, 60.0), spare_nodes=spare))


@pytest.mark.parametrize("rate", [0.05, 5.0, 1e5])
@pytest.mark.parametrize("objective", ["npus", "latency"])
def test_too_high_a_rate(case, coarse, plain, rate, objective):
    for npus, slo in ((32, Slo(0.05, 2.0)), (32, Slo(0.05, 0.5)), (32, Slo(0.001, 2.0))):
        check_hint(case, Request(npus, slo, objective, rate))


def test_too_little_memory():
    case = load_case("deepseek-r1-4k-256", settings=["hardware.die.hbm_capacity=8GB"])
    request = Request(48, Slo(1.0, 60.0))
    result = plan_case(case, request)
    check_refusal(request, result)
    assert result.infeasible.constraint.startswith("hbm:")


@pytest.mark.parametrize(
    "asked", [{}, {"reuse": 0.9}, {"max_concurrency": 50.0}], ids=["usual", "reuse", "concurrency"]
)
def test_the_interval_holds_the_value(case, coarse, asked):
    plan = api.plan(case, npus=64, slo="tpot=50ms,ttft=2s", top=1, **asked).plans[0]
    for name in ("tpot_s", "ttft_s", "requests_per_s"):
        low, value, high = (getattr(plan, name + end) for end in ("_low", "", "_high"))
        assert low <= value <= high, name


def test_a_mix_keeps_the_limit_on_concurrency(case, coarse):
    request = Request(96, Slo(0.05, 2.0), max_concurrency=300.0, top=1)
    result = plan_case(case, request, mixed=True)
    (winner,), mix = result.plans, result.mixed
    assert winner.concurrency == pytest.approx(300.0)
    assert mix.requests_per_s <= winner.requests_per_s * (1 + 1e-9)
