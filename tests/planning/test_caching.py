"""A context cache with a size: what each hit rate takes, the smallest pool, and what a user gives."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cm384model import api
from cm384model.planning import caching
from cm384model.planning.caching import cache_levels
from cm384model.planning.pairs import SAME_RATE
from cm384model.planning.request import Request, Slo, plan_request
from cm384model.prediction.caching import pool_node
from cm384model.prediction.case import load_case
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.reuse import ReuseCurve, read_reuse_curve

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
TRACE, TABLE = EXAMPLES / "conversations.jsonl", EXAMPLES / "hit-rates.csv"
SHARED = Path(__file__).parents[3] / "shared" / "traces" / "mooncake_conversation.jsonl"
TOKEN = 61 * 576 * 2.0
NODE = 1.5e12 * 0.5
ASKED = {"npus": 64, "slo": "tpot=50ms,ttft=2s", "top": 1}


def sized(curve, nodes=8, **options):
    return Request(64, Slo(0.05, 2.0), cache_curve=curve, cache_nodes=nodes, **options)


# --- what each hit rate takes -------------------------------------------------------------------------------


def test_a_node_counted_by_hand(case):
    ub, vpc = pool_node(case, "ub"), pool_node(case, "vpc")
    assert ub.capacity_bytes == NODE
    assert ub.capacity_tokens == pytest.approx(NODE / TOKEN)
    assert (ub.load_rate, vpc.load_rate, ub.dram_rate) == (4 * 160e9, 50e9, 0.75e12)


@pytest.mark.parametrize("unit", ["bytes", "tokens", "blocks"])
def test_sizes_for_any_rate_give_the_hit_rate_of_every_number_of_nodes(case, unit):
    each = {"bytes": NODE, "tokens": NODE / TOKEN, "blocks": NODE / TOKEN / 128}[unit]
    curve = ReuseCurve(unit, np.array([2.5, 5.0]) * each, np.array([0.25, 0.4]))
    levels = cache_levels(case, sized(curve))
    assert levels.reuse == pytest.approx([0, 0.1, 0.2, 0.28, 0.34, 0.4])
    assert levels.fixed.tolist() == [0, 1, 2, 3, 4, 5]  # more nodes find no more
    assert not levels.per_rate.any()
    assert levels.nodes(np.arange(6), 1.0).tolist() == [0, 1, 2, 3, 4, 5]


def test_sizes_of_a_rate_grow_with_it(case):
    each = NODE / TOKEN
    curve = ReuseCurve("tokens", np.array([each]), np.array([0.4])).for_requests(10.0)
    levels = cache_levels(case, sized(curve))
    assert levels.reuse[:3] == pytest.approx([0, 0.01, 0.02])
    assert levels.reuse[-1] == 0.4
    last = len(levels.reuse) - 1
    assert [float(levels.nodes(last, rate)) for rate in (5.0, 10.0, 10.1, 40.0)] == [1, 1, 2, 4]
    assert levels.most_rate[-1] == pytest.approx(80.0)
    other = replace(curve, token_rate=10.0 * 4096, requests_per_s=None)
    assert cache_levels(case, sized(other)).most_rate == pytest.approx(levels.most_rate)


def test_bandwidth_takes_nodes_too(case):
    narrow = case.replaced("hardware.node.dram_bandwidth", 1e9)
    curve = ReuseCurve("tokens", np.array([1e3]), np.array([0.5]))
    rate = 20.0
    by_dram = np.ceil(rate * 4096 * TOKEN / 1e9)
    assert cache_levels(narrow, sized(curve)).nodes(1, rate) == by_dram
    by_card = cache_levels(case, sized(curve, cache_plane="vpc"))
    assert by_card.load[1] == pytest.approx(4096 * 0.5 * TOKEN / 50e9)


def test_without_a_size_there_is_one_hit_rate_that_any_rate_has(case):
    for request, reuse in ((Request(64, Slo(1, 1), reuse=0.3), 0.3), (Request(64, Slo(1, 1)), 0.0)):
        levels = cache_levels(case, request)
        assert (levels.reuse.tolist(), levels.most_rate.tolist(), levels.node) == ([reuse], [np.inf], None)
    levels = cache_levels(case, sized(read_reuse_curve(TABLE), without=frozenset({"caching"})))
    assert levels.reuse.tolist() == [0.0]
    assert cache_levels(case, sized(read_reuse_curve(TABLE), nodes=0)).reuse.tolist() == [0.0]


def test_a_machine_without_dram_cannot_size_a_cache():
    case = load_case("deepseek-r1-4k-256", hardware="h800", engine="deepseek-h800")
    with pytest.raises(
        SpecError, match=r"h800 with deepseek-h800 does not state hardware\.node\.dram_capacity"
    ):
        cache_levels(case, sized(read_reuse_curve(TABLE)))


# --- plans --------------------------------------------------------------------------------------------------


def test_the_pool_of_a_plan_holds_what_its_hit_rate_takes(case, coarse):
    (plan,) = api.plan(case, **ASKED, reuse_curve=TRACE).plans
    cache, curve, rate = plan.cache, read_reuse_curve(TRACE), plan.requests_per_s
    asked = float(curve.size_for(plan.prefill.reuse)) * rate * 4096 / curve.token_rate
    assert 0 < cache.hit_rate == plan.prefill.reuse
    assert asked <= cache.capacity_tokens < asked + NODE / TOKEN
    assert cache.capacity_bytes == pytest.approx(cache.capacity_tokens * TOKEN)
    assert cache.capacity_blocks == pytest.approx(cache.capacity_tokens / 128)
    assert cache.load_bytes_per_s == pytest.approx(rate * 4096 * cache.hit_rate * TOKEN)
    assert cache.retention_s == pytest.approx(cache.capacity_tokens / (rate * 4096 * (1 - cache.hit_rate)))
    assert (cache.limit_nodes, cache.bound_by) == (8, "capacity")


def test_a_share_kept_for_a_time_is_a_pool_of_littles_law(case, coarse):
    (plan,) = api.plan(case, **ASKED, reuse=0.5, cache_retention="2min").plans
    assert plan.cache.hit_rate == 0.5
    held = plan.requests_per_s * 4096 * 0.5 * 120
    assert plan.cache.nodes == np.ceil(held * TOKEN / NODE)
    assert plan.cache.retention_s >= 120
    short = api.plan(case, **ASKED, reuse=0.5, cache_retention="2min", cache_nodes=1).plans[0]
    assert 0 < short.cache.hit_rate < 0.5  # the pool serves as many users as it has room for
    share = short.cache.hit_rate / 0.5
    assert short.requests_per_s * share * 4096 * 0.5 * 120 <= NODE / TOKEN * (1 + 1e-9)
    assert plan.requests_per_s >= short.requests_per_s


def test_the_plan_is_that_of_its_hit_rate(case, coarse):
    """The same share given plainly serves as much, and a smaller pool less or as much."""
    (plan,) = api.plan(case, **ASKED, reuse_curve=TABLE).plans
    plain = api.plan(case, **ASKED, reuse=plan.prefill.reuse).plans[0]
    assert plan.requests_per_s == pytest.approx(plain.requests_per_s, rel=SAME_RATE)
    rates = [one.result.plans[0].requests_per_s for one in vary(case, "cache_nodes=0:8:1", TABLE)]
    assert rates[0] == api.plan(case, **ASKED).plans[0].requests_per_s
    assert all(after >= before * (1 - SAME_RATE) for before, after in itertools.pairwise(rates))
    assert rates[plan.cache.nodes] == pytest.approx(plan.requests_per_s, rel=1e-9)
    assert rates[plan.cache.nodes - 1] < plan.requests_per_s


def vary(case, text, curve):
    return api.vary_plan(case, text, **ASKED, reuse_curve=str(curve))


def test_a_finer_look_never_loses(case, coarse, monkeypatch):
    fine = api.plan(case, **ASKED, reuse_curve=TRACE, cache_nodes=1).plans[0]
    monkeypatch.setattr(caching, "FINE_STEP", caching.LEVEL_STEP)
    rough = api.plan(case, **ASKED, reuse_curve=TRACE, cache_nodes=1).plans[0]
    assert fine.requests_per_s >= rough.requests_per_s * (1 - SAME_RATE)


def test_what_a_node_of_the_pool_is_worth(case, coarse):
    result = api.plan(case, **ASKED, reuse_curve=TABLE, cache_nodes=4)
    worth = {m.change: m.requests_per_s_change for m in result.marginals}
    assert worth["cache node -1"] < 0 < worth["cache node +1"]
    assert not any(m.change.startswith("cache") for m in api.plan(case, **ASKED, reuse=0.3).marginals)


def test_the_cheapest_way_to_load_is_taken(case, coarse):
    """Fetches that cost more than prefill leave the cache unused."""
    slow = case.replaced("engine.constants.cache_block_latency_vpc", 0.1)
    (plan,) = api.plan(slow, **ASKED, reuse_curve=TABLE, cache_plane="vpc").plans
    assert (plan.cache.nodes, plan.cache.hit_rate, plan.prefill.plane) == (0, 0.0, "vpc")
    assert plan.requests_per_s == api.plan(case, **ASKED).plans[0].requests_per_s


def test_objectives_at_a_rate(case, coarse):
    for objective in ("npus", "latency"):
        asked = ASKED | {"objective": objective, "rate": "60/s"}
        (plan,) = api.plan(case, **asked, reuse_curve=TRACE).plans
        without = api.plan(case, **asked).plans[0]
        assert plan.requests_per_s == 60.0
        assert (plan.npus, plan.tpot_s) <= (without.npus, without.tpot_s) or objective == "latency"
        assert plan.tpot_s <= without.tpot_s or objective == "npus"


def test_no_plan_with_a_cache_is_an_answer(case, coarse):
    result = api.plan(case, npus=64, slo="tpot=1ms", reuse_curve=TRACE)
    assert not result.feasible
    assert result.infeasible.constraint.startswith("tpot")
    result = api.plan(case, npus=64, objective="npus", rate="500/s", reuse_curve=TRACE)
    assert result.infeasible.constraint.startswith("rate")


def test_a_trace_of_the_rate_asked_for_is_taken_as_it_is(case):
    """Without the growth of the working set every repeated block is found with a few nodes."""
    curve = read_reuse_curve(TRACE)
    asked = {"reuse_curve": curve, "reuse_rate": "100/s", "npus": 64}
    request = plan_request(case, **DEFAULTS | asked)
    assert (request.cache_curve.requests_per_s, request.cache_curve.token_rate) == (100.0, None)


# --- requests -----------------------------------------------------------------------------------------------

DEFAULTS = {
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


def test_the_nodes_of_the_npus_lend_their_dram_by_default(case):
    asked = DEFAULTS | {"reuse_curve": TABLE, "npus": 71}
    assert plan_request(case, **asked).cache_nodes == 8
    assert plan_request(case, **asked | {"cache_nodes": 48}).cache_nodes == 48
    assert plan_request(case, **DEFAULTS).cache_nodes == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"reuse_curve": TABLE, "reuse": 0.5}, "reuse_curve goes with neither reuse nor cache_retention"),
        ({"cache_retention": "10min"}, "cache_retention needs reuse"),
        ({"reuse": 0.5, "cache_retention": "10"}, "cache_retention: '10' needs a unit"),
        ({"reuse": 0.5, "cache_retention": "0s"}, "cache_retention = 0s is out of bounds"),
        ({"reuse_rate": "3/s"}, "reuse_rate needs reuse_curve"),
        ({"reuse_curve": TABLE, "reuse_rate": "3 GB"}, "reuse_rate: '3 GB' measures bytes"),
        ({"cache_nodes": 4}, "cache_nodes needs reuse_curve"),
        ({"reuse_curve": TABLE, "cache_nodes": 49}, "cache_nodes = 49 is out of bounds"),
        ({"reuse_curve": TABLE, "cache_nodes": -1}, "cache_nodes = -1 is out of bounds"),
        ({"reuse_curve": TABLE, "cache_nodes": 1.5}, "cache_nodes = 1.5 is out of bounds"),
        ({"cache_plane": "vcp"}, "Did you mean 'vpc'?"),
        ({"npus": 65, "spare_nodes": 8}, "spare_nodes = 8 is out of bounds"),
        ({"npus": 64.5}, "npus = 64.5 is out of bounds"),
    ],
)
def test_a_faulty_request_is_one_error(case, given, said):
    with pytest.raises(SpecError) as error:
        plan_request(case, **DEFAULTS | given)
    (problem,) = error.value.problems
    assert said in problem.message
    assert problem.hint or "needs a unit" in problem.message


@pytest.mark.parametrize("name", ["npus", "spare_nodes", "cache_nodes"])
def test_vary_takes_whole_numbers_where_they_are_counts(case, name):
    with pytest.raises(SpecError, match=rf"{name} = 1\.5 is no whole number"):
        api.vary_plan(case, f"{name}=1:3:0.5", reuse_curve=TABLE)


# --- the published trace ------------------------------------------------------------------------------------


def test_the_published_trace_hardly_pays_for_a_pool(case, coarse):
    """As docs/caching.md tells: moving its blocks costs what it saves, unless no user is added."""
    if not SHARED.exists():
        pytest.skip(f"no trace at {SHARED}: it is published by others and not part of the repository")
    curve = read_reuse_curve(SHARED)
    grown = api.plan(case, **ASKED, reuse_curve=curve).plans[0]
    as_it_is = api.plan(case, **ASKED, reuse_curve=curve, reuse_rate="60/s").plans[0]
    without = api.plan(case, **ASKED).plans[0]
    assert 1 <= grown.requests_per_s / without.requests_per_s < 1.04
    assert 0.3 < as_it_is.cache.hit_rate < 0.374
    assert 0 < as_it_is.cache.nodes <= 8
    assert as_it_is.requests_per_s > grown.requests_per_s
