from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm384model.prediction.capacity import CONTEXTS, REFERENCE_EP, fit_case
from cm384model.prediction.evaluate import predict_decode, predict_prefill
from cm384model.prediction.question import largest, memory_of, read_question
from cm384model.specs.diagnostics import SpecError

# DeepSeek-R1 by hand, bytes; INT8 weights, the latent up-projections in BF16
ATTENTION = 7168 * (1536 + 512 + 64) + 1536 * 128 * 192 + 128 * 128 * 7168 + 2 * 512 * 128 * 256
EXPERT = 3 * 7168 * 2048
ROUTER = 2 * 7168 * 256
CACHE = 2 * (512 + 64)
ACTIVATION = 2 * (4 * 7168 + 128 * (512 + 128))
MESSAGE = (7168 + 512) + 2 * 7168
EVERYWHERE = {
    "attention": 61 * ATTENTION,
    "router": 58 * ROUTER,
    "dense_layers": 3 * 3 * 7168 * 18432,
    "embedding": 2 * 129280 * 7168,
    "lm_head": 2 * 129280 * 7168 / 16,
    "reserve": 0.1 * 64e9 + 1e9,
}
EP32 = EVERYWHERE | {
    "routed_experts": 58 * 8 * EXPERT,
    "redundant_experts": 58 * EXPERT,
    "shared_experts": 58 * EXPERT,
    "mtp_layers": 0,
    "kv_cache": 4223.5 * 61 * CACHE,
    "exchange_buffers": 32 * 1 * 8 * MESSAGE,
    "activations": ACTIVATION,
}
EP320 = EVERYWHERE | {
    "routed_experts": 58 * EXPERT,
    "redundant_experts": 0,
    "shared_experts": 0,
    "mtp_layers": ATTENTION + EXPERT + ROUTER + 2 * 7168 * 7168,
    "kv_cache": 48 * 4223.5 * 62 * CACHE,
    "exchange_buffers": 320 * 96 * 1 * MESSAGE,
    "activations": 96 * ACTIVATION,
}


@pytest.mark.parametrize(
    ("at", "expected"), [("ep=32", EP32), ("ep=320,batch_per_die=48,draft_tokens=1", EP320)]
)
def test_the_ledger_by_hand(case, at, expected):
    (instance,) = fit_case(case, "decode", at).instances
    ledger = {part.name: part.size_bytes for part in instance.ledger}
    assert ledger.pop("free") == pytest.approx(64e9 - sum(expected.values()), abs=1)
    assert ledger == pytest.approx(expected, abs=1e-3)


def test_the_papers_exchange_buffers(case):
    (instance,) = fit_case(case, "decode", "ep=320,batch_per_die=48,draft_tokens=1").instances
    (buffers,) = [part for part in instance.ledger if part.name == "exchange_buffers"]
    assert buffers.size_bytes / 2**20 == 645


@pytest.mark.parametrize(
    ("phase", "at"),
    [
        ("decode", "ep=32"),
        ("decode", "ep=320,batch_per_die=48,draft_tokens=2"),
        ("decode", "ep=64,attention_tp=4,kv_len=9000"),
        ("prefill", "ep=32,tokens_per_npu=16384"),
    ],
)
def test_the_ledger_is_that_of_predict_and_closes(case, phase, at):
    (instance,) = fit_case(case, phase, at).instances
    items = at if "batch_per_die" in at or phase == "prefill" else f"{at},batch_per_die=1"
    memory = (predict_decode if phase == "decode" else predict_prefill)(case, items).memory
    ledger = {part.name: part.size_bytes for part in instance.ledger}
    assert sum(ledger.values()) == pytest.approx(memory.capacity_bytes, abs=1)
    assert sum(part.share for part in instance.ledger) == pytest.approx(1)
    assert instance.free_bytes == memory.free_bytes
    assert ledger["kv_cache"] == memory.kv_cache_bytes
    buffers = ledger["exchange_buffers"] + ledger["activations"] + ledger.get("latent_gather", 0)
    assert buffers == pytest.approx(memory.buffers_bytes)


def test_16_dies_do_not_hold_r1_and_the_answer_says_why(case):
    result = fit_case(case, "decode", "ep=16")
    assert not result.feasible
    assert result.instances[0].largest_batch == result.instances[0].longest_context == 0
    assert result.infeasible is not None
    assert "8 NPUs (16 dies)" in result.infeasible.constraint
    assert "routed_experts" in result.infeasible.nearest
    assert result.infeasible.hint == "try --at ep=22"
    assert result.instances[1].ep == 22
    assert result.instances[1].feasible


def test_the_smallest_instances(case):
    result = fit_case(case, "decode")
    assert (result.smallest.dies, result.smallest.npus) == (22, 11)
    assert (result.smallest_of_nodes.dies, result.smallest_of_nodes.npus, result.smallest_of_nodes.nodes) == (
        32,
        16,
        2,
    )
    assert [instance.ep for instance in result.instances] == [22, 32, REFERENCE_EP]
    fitting = [ep for ep in range(2, 769, 2) if predict_decode(case, {"ep": ep, "batch_per_die": 1}).feasible]
    assert fitting[0] == 22


def test_128k_contexts(case):
    for ep in (32, 320):
        (instance,) = fit_case(case, "decode", {"ep": ep, "kv_len": 131072}).instances
        assert instance.feasible
        assert (
            instance.largest_batch
            == {p.context: p.batch for p in instance.by_context}[131072]
            == {32: 1, 320: 4}[ep]
        )


@pytest.mark.parametrize(
    "at", ["ep=22", "ep=32,redundant_experts=0", "ep=320,draft_tokens=1", "ep=96,attention_tp=2"]
)
def test_the_frontier_equals_brute_force_on_predict(case, at):
    (instance,) = fit_case(case, "decode", at).instances

    def fits(batch: int, context: int) -> bool:
        return predict_decode(case, f"{at},batch_per_die={batch},kv_len={context}").feasible

    assert [point.context for point in instance.by_context] == list(CONTEXTS)
    for point in instance.by_context:
        count = next(n for n in itertools.count(1) if not fits(n, point.context)) - 1
        assert point.batch == count
        assert point.requests == count * instance.ep
    assert [point.batch for point in instance.by_batch] == [2**i for i in range(len(instance.by_batch))]
    for point in instance.by_batch:
        assert fits(point.batch, point.context)
        assert not fits(point.batch, point.context + 1)


@pytest.mark.parametrize("ep", [24, 32, 128])
def test_the_prefill_frontier_equals_predict(case, ep):
    (instance,) = fit_case(case, "prefill", {"ep": ep}).instances
    npus = ep // 2
    for point in instance.by_context:
        for prompts, expected in ((point.batch, True), (point.batch + 1, False)):
            if prompts:
                at = {
                    "ep": ep,
                    "tokens_per_npu": math.ceil(prompts * point.context / npus),
                    "prompt_len": point.context,
                }
                assert predict_prefill(case, at).feasible == expected


@given(
    ep=st.integers(1, 384).map(lambda npus: 2 * npus),
    draft_tokens=st.integers(0, 3),
    redundant_experts=st.integers(0, 256),
    context=st.integers(1, 200_000),
)
def test_largest_and_longest_are_exact(case, ep, draft_tokens, redundant_experts, context):
    at = {"draft_tokens": draft_tokens, "redundant_experts": redundant_experts, "kv_len": context}
    question, _ = read_question(case, "decode", at)
    batch = int(question.largest_batch(ep, context))
    for requests, fits in ((batch, True), (batch + 1, False)):
        if requests:
            assert predict_decode(case, at | {"ep": ep, "batch_per_die": requests}).feasible == fits
    if batch:
        assert int(question.longest_context(ep, batch)) >= context


@given(
    ep=st.integers(1, 384).map(lambda npus: 2.0 * npus),
    first=st.integers(1, 10**6),
    more=st.integers(0, 10**6),
)
def test_more_context_is_no_larger_batch_and_more_batch_no_longer_context(case, ep, first, more):
    question, _ = read_question(case, "decode", "draft_tokens=1")
    for answer in (question.largest_batch, question.longest_context):
        low, high = answer(ep, np.array([first, first + more], dtype=float))
        assert high <= low


@given(limits=st.lists(st.integers(0, 2**31), min_size=1, max_size=5))
def test_the_search_finds_any_limit(limits):
    expected = np.array(limits)
    assert (largest(lambda x: x <= expected, expected.shape) == expected).all()


def test_every_what_if_is_what_its_option_gives(case):
    at = {"ep": 32, "batch_per_die": 24, "draft_tokens": 1}
    (instance,) = fit_case(case, "decode", at).instances
    kinds = [what_if.change for what_if in instance.what_ifs]
    assert {"--at redundant_experts=0", "--at draft_tokens=0", "--at batch_per_die=12"} <= set(kinds)
    assert {"--set model.precision.kv=int8", "--set engine.memory.reserve_share=0.05"} <= set(kinds)
    for what_if in instance.what_ifs:
        option, _, text = what_if.change.partition(" ")
        name, _, value = text.partition("=")
        question, _ = read_question(case, "decode", at)
        changed = question.with_setting(text).case if option == "--set" else case
        own = {name: float(value)} if option == "--at" else {}
        result = fit_case(changed, "decode", at | own)
        assert (what_if.largest_batch, what_if.longest_context, what_if.free_bytes) == (
            result.instances[0].largest_batch,
            result.instances[0].longest_context,
            pytest.approx(result.instances[0].free_bytes),
        )
        assert what_if.smallest == result.smallest


def test_the_lever_gives_the_largest_batch(case):
    for instance in fit_case(case, "decode").instances:
        best = max(what_if.largest_batch for what_if in instance.what_ifs if what_if.change == instance.lever)
        settings = [w for w in instance.what_ifs if "ep=" not in w.change and "kv_len" not in w.change]
        assert best == max(what_if.largest_batch for what_if in settings)
        assert best > instance.largest_batch


def test_a_limit_of_npus_is_kept(case):
    assert [i.ep for i in fit_case(case, "decode", npus=40).instances] == [22, 32, 80]
    short = fit_case(case, "decode", npus=8)
    assert (short.feasible, short.infeasible.hint) == (False, "try --npus 11")
    assert [i.ep for i in short.instances] == [16, 22]


def test_too_large_a_batch_names_the_largest_that_fits(case):
    result = fit_case(case, "decode", "ep=32,batch_per_die=60")
    assert "50 requests per die fit" in result.infeasible.nearest
    assert "--at batch_per_die=50" in result.infeasible.hint
    for change in ("--at redundant_experts=0", "--set model.precision.kv=int8"):
        fits = next(w.feasible for w in result.instances[0].what_ifs if w.change == change)
        assert (change in result.infeasible.hint) == fits


def test_where_nothing_holds_it_the_hint_is_another_machine(case):
    small = case.replaced("hardware.die.hbm_capacity", 12e9)
    result = fit_case(small, "decode")
    assert not result.feasible
    assert result.smallest is None
    assert result.smallest_of_nodes is None
    assert "more memory per die" in result.infeasible.hint


def test_sizes_are_whole_groups_of_attention_tp(case):
    for instance in fit_case(case, "decode", "attention_tp=8").instances:
        assert instance.ep % 8 == 0


@pytest.mark.parametrize(
    ("at", "npus", "said"),
    [
        ("ep=33", None, "no whole number of NPUs"),
        ("ep=64", 16, "more than the 32 dies of 16 NPUs"),
        ((), 385, "npus = 385 is out of bounds"),
        ((), 0, "npus = 0 is out of bounds"),
        ("tokens_per_npu=4096", None, "a decode deployment has no 'tokens_per_npu'"),
        ("batch_per_die=4,batch_per_npu=8", None, "set the same thing"),
        ("attention_tp=3", None, "does not divide"),
    ],
)
def test_bad_questions(case, at, npus, said):
    with pytest.raises(SpecError, match=said.replace("(", r"\(")):
        fit_case(case, "decode", at, npus)


@pytest.mark.parametrize(
    ("phase", "at", "step"),
    [
        ("decode", "expert_tp=16", 16),
        ("decode", "attention_tp=4,expert_tp=8", 8),
        ("prefill", "attention_tp=4,context_parallel=2,pipeline_stages=2", 16),
        ("prefill", "expert_tp=4,pipeline_stages=4,chunks=4", 16),
    ],
)
def test_sizes_are_whole_groups_of_the_layout(case, phase, at, step):
    """And the smallest instance is one that prediction takes, with the ledger that it shows."""
    question, _ = read_question(case, phase, at)
    assert question.step == step
    found = fit_case(case, phase, at)
    assert found.feasible
    size = found.smallest.dies
    assert size % step == 0
    load = {"batch_per_die": 1} if phase == "decode" else {"tokens_per_npu": 4096 * 2 / size * 4}
    words = dict(word.split("=") for word in at.split(","))
    predict = predict_decode if phase == "decode" else predict_prefill
    memory = predict(case, {"ep": size, **load, **words}).memory
    fitted = memory_of(case, question.at(float(size), question.batch(float(size)), question.context))
    assert fitted.weights == pytest.approx(memory.weights_bytes)
