"""Layouts of an instance: experts split over dies, sequences in parts, layers in stages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cm384model.prediction.decode import decode_step
from cm384model.prediction.evaluate import predict_decode, predict_prefill
from cm384model.prediction.prefill import prefill_batch
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.load import load_model
from cm384model.specs.spec import replace_node

MIXTURES = ("deepseek-r1", "qwen3-235b-a22b", "glm-4.5", "longcat-flash", "mixtral-8x22b")


def with_model(case, name):
    return replace(case, model=load_model(name))


def terms_of(found):
    return {term.name: term for term in found.terms}


# --- experts split over dies --------------------------------------------------------------------------------


@pytest.mark.parametrize("expert_tp", [2.0, 4.0, 16.0])
def test_split_experts_of_decode_by_hand(tiny, decode_deployment, expert_tp):
    """16 dies, 3 requests each, 8 experts of width 7 and a shared one; two picks a token, balanced."""
    d = decode_deployment(
        ep=16.0,
        batch_per_die=3.0,
        microbatches=1.0,
        draft_tokens=0.0,
        redundant_experts=0.0,
        imbalance=1.0,
        expert_tp=expert_tp,
    )
    step = decode_step(tiny.system, d)
    groups = 16 / expert_tp
    assert step.placement.ep == groups
    assert step.placement.slots == np.ceil(8 / groups)
    rows = 3 * expert_tp * (2 + 1)  # every token of the group, routed twice and shared once
    columns = 3 * 7 / expert_tp
    layers = 3.0
    flop = terms_of(step)["experts"].flop
    assert flop == pytest.approx(layers * 2 * rows * 12 * columns, rel=1e-12)
    expert = 3 * 12 * 7 / expert_tp
    parts = step.memory.parts
    assert parts["routed_experts"] == pytest.approx(3 * step.placement.slots * expert)
    assert parts["shared_experts"] == pytest.approx(3 * expert)
    assert parts["dense_layers"] == pytest.approx(3 * 12 * 10 / expert_tp)


def test_what_the_dies_of_a_group_exchange(tiny, decode_deployment):
    """Groups of 4: the rows that reached a die, distinct groups of each token, as they were dispatched."""
    usual = {"ep": 16.0, "batch_per_die": 3.0, "microbatches": 1.0, "draft_tokens": 0.0, "imbalance": 1.0}
    step = decode_step(tiny.system, decode_deployment(**usual, redundant_experts=0.0, expert_tp=4.0))
    rows = 3 * 4 * (1 - (1 - 1 / 4) ** 2)
    dispatched, combined = rows * (12 + 512), rows * 24
    sent = 3 * (dispatched + combined) * 3
    assert terms_of(step)["expert_exchange"].bytes == pytest.approx(sent)
    assert terms_of(step)["dispatch"].time > 0
    alone = decode_step(tiny.system, decode_deployment(**usual, redundant_experts=0.0, expert_tp=16.0))
    assert terms_of(alone)["dispatch"].time == terms_of(alone)["combine"].time == 0
    assert terms_of(alone)["expert_exchange"].bytes == pytest.approx(3 * 2 * 3 * 24 * 15)


@pytest.mark.parametrize("name", MIXTURES)
def test_one_group_has_no_imbalance_and_no_copies(case, decode_deployment, name):
    case = with_model(case, name)
    usual = {"ep": 16.0, "batch_per_die": 4.0, "draft_tokens": 0.0, "microbatches": 1.0, "expert_tp": 16.0}
    even = decode_step(case.system, decode_deployment(**usual, imbalance=1.0, redundant_experts=0.0))
    skewed = decode_step(case.system, decode_deployment(**usual, imbalance=3.0, redundant_experts=32.0))
    assert skewed.step_time == even.step_time
    assert skewed.memory.free == even.memory.free


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize("field", ["expert_tp", "attention_tp"])
def test_one_path_for_numbers_and_arrays_of_decode(case, decode_deployment, name, field):
    system = with_model(case, name).system
    usual = {"ep": 16.0, "batch_per_die": 4.0, "draft_tokens": 0.0}
    values = np.array([1.0, 2.0, 8.0, 16.0])
    grid = decode_step(system, decode_deployment(**usual, **{field: values}))
    for i, value in enumerate(values):
        one = decode_step(system, decode_deployment(**usual, **{field: value}))
        assert grid.step_time[i] == pytest.approx(one.step_time, rel=1e-12)
        assert np.broadcast_to(grid.memory.free, 4)[i] == pytest.approx(one.memory.free, rel=1e-12)


def test_key_value_heads_are_copied_where_there_are_more_dies(case):
    """Qwen3-235B has 4 of them: 16 dies hold 4 times the cache that 4 dies do, each the same."""
    case = with_model(case, "qwen3-235b-a22b")
    four, sixteen = (
        predict_decode(case, f"ep=16,batch_per_die={batch},attention_tp={tp}")
        for tp, batch in ((4, 8), (16, 8))
    )
    assert sixteen.memory.kv_cache_bytes == pytest.approx(4 * four.memory.kv_cache_bytes)


# --- prefill: weights, sequences ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["deepseek-r1", "qwen3-235b-a22b", "qwen3-32b", "kimi-k2"])
def test_parts_of_a_sequence_do_the_same_attention(case, prefill_deployment, name):
    """Twice the parts, each with half of the queries over all keys: the arithmetic of a die stays."""
    system = with_model(case, name).system
    usual = {"ep": 16.0, "prompt_len": 32768.0, "microbatches": 1.0, "imbalance": 1.0}

    def core(tp, cp):
        d = prefill_deployment(**usual, attention_tp=tp, context_parallel=cp)
        return terms_of(prefill_batch(system, d))["attention_core"].flop

    assert core(4.0, 2.0) == pytest.approx(core(4.0, 1.0))
    assert core(4.0, 4.0) == pytest.approx(core(8.0, 1.0))


def test_gathered_context_by_hand(case, prefill_deployment):
    """Latents for DeepSeek-R1; keys and values of the own heads for Qwen3-32B; BF16, of 3 other parts."""
    usual = {"ep": 16.0, "tokens_per_npu": 2048.0, "microbatches": 1.0, "context_parallel": 4.0}
    for name, tp, numbers, layers in (
        ("deepseek-r1", 2.0, 512 + 64, 58),
        ("qwen3-32b", 4.0, 2 * 2 * 128, 64),
    ):
        system = with_model(case, name).system
        batch = prefill_batch(system, prefill_deployment(**usual, attention_tp=tp))
        sent = layers * 1024 * tp * numbers * 2 * 3
        assert terms_of(batch)["context_gather"].bytes == pytest.approx(sent)
        assert batch.memory.parts["context_gather"] == pytest.approx(3 * 1024 * tp * numbers * 2)


def test_split_weights_of_latent_attention(case, prefill_deployment):
    """Heads over 8 dies: an eighth of the weights of the heads, the same attention as shared prompts."""
    system = case.system
    usual = {"ep": 8.0, "microbatches": 1.0, "imbalance": 1.0}
    whole = prefill_batch(system, prefill_deployment(**usual))
    split = prefill_batch(system, prefill_deployment(**usual, attention_tp=8.0, context_parallel=1.0))
    a, b = terms_of(whole), terms_of(split)
    assert b["attention_core"].flop == pytest.approx(a["attention_core"].flop)
    assert b["o_proj"].flop == pytest.approx(a["o_proj"].flop)
    assert split.memory.parts["attention"] < whole.memory.parts["attention"] / 3
    assert {"latent_gather", "head_exchange"} & set(b) == set()
    sent = 61 * 8192 * 7168 * 2 * 2 * 7
    exchange = b["attention_exchange"].bytes
    assert exchange == pytest.approx(sent * 58 / 61)  # of the main layers; the others are in dense_layers


def test_a_layout_of_its_own_leaves_the_engine_out(case, prefill_deployment):
    """One die per prompt is what a data-parallel engine does."""
    own = prefill_batch(case.system, prefill_deployment(context_parallel=1.0))
    engine = replace_node(case.engine, "prefill_attention", "data-parallel")
    other = prefill_batch(replace(case, engine=engine).system, prefill_deployment())
    assert own.batch_time == pytest.approx(other.batch_time)


@pytest.mark.parametrize("name", ["deepseek-r1", "qwen3-235b-a22b", "qwen3-32b", "deepseek-v3.2"])
@pytest.mark.parametrize("field", ["expert_tp", "context_parallel", "pipeline_stages", "chunks"])
def test_one_path_for_numbers_and_arrays_of_prefill(case, prefill_deployment, name, field):
    if name == "qwen3-32b" and field == "expert_tp":
        pytest.skip("no experts")
    system = with_model(case, name).system
    values = np.array([1.0, 2.0, 4.0, 8.0])
    if field == "context_parallel":
        values[0] = 0.0
    usual = {"ep": 16.0, "attention_tp": 1.0} | ({"pipeline_stages": 2.0} if field == "chunks" else {})
    grid = prefill_batch(system, prefill_deployment(**usual, **{field: values}))
    for i, value in enumerate(values):
        one = prefill_batch(system, prefill_deployment(**usual, **{field: value}))
        assert grid.batch_time[i] == pytest.approx(one.batch_time, rel=1e-12)
        assert grid.interval[i] == pytest.approx(one.interval, rel=1e-12)
        assert np.broadcast_to(grid.memory.free, 4)[i] == pytest.approx(one.memory.free, rel=1e-12)


# --- prefill: stages ----------------------------------------------------------------------------------------


def test_stages_by_hand(case, prefill_deployment):
    """Four chunks of equal time through two stages take five times a chunk, and one in every four is work."""
    usual = {"ep": 32.0, "microbatches": 1.0, "pipeline_stages": 2.0, "chunks": 4.0}
    batch = prefill_batch(case.system, prefill_deployment(**usual))
    assert batch.batch_time == pytest.approx(batch.interval * 5 / 4)
    assert batch.throughput == pytest.approx(16384 / batch.interval)
    equal = prefill_batch(case.system, prefill_deployment(**usual, balanced_chunks=0.0))
    core = terms_of(equal)["attention_core"].time / 4
    assert equal.batch_time - batch.batch_time == pytest.approx(core * 3 / 4)
    assert equal.interval == batch.interval


def test_a_stage_has_the_dies_of_its_layers(case, prefill_deployment):
    """A chunk in a stage of 16 dies has the terms of a layer of an instance of 16 dies with its tokens."""
    usual = {"microbatches": 1.0, "imbalance": 1.0}
    staged = prefill_batch(case.system, prefill_deployment(ep=32.0, pipeline_stages=2.0, chunks=4.0, **usual))
    alone = prefill_batch(case.system, prefill_deployment(ep=16.0, tokens_per_npu=8192.0, **usual))
    a, b = terms_of(staged), terms_of(alone)
    for name in ("attention_core", "experts", "dispatch", "mla_prolog"):
        assert a[name].time == pytest.approx(b[name].time * 4 * 31 / 61), name
    sent = 4 * 4096 * 7168 * 2
    assert a["stage_transfer"].bytes == pytest.approx(sent)
    assert staged.memory.parts["attention"] == pytest.approx(alone.memory.parts["attention"] * 31 / 61)


@pytest.mark.parametrize("name", ["deepseek-r1", "qwen3-32b", "deepseek-v3.2", "longcat-flash", "glm-4.5"])
@pytest.mark.parametrize(
    "layout",
    [
        {"pipeline_stages": 2.0},
        {"pipeline_stages": 4.0, "chunks": 8.0, "balanced_chunks": 0.0},
        {"context_parallel": 2.0},
        {"context_parallel": 2.0, "pipeline_stages": 2.0, "chunks": 3.0, "microbatches": 2.0},
    ],
)
def test_terms_add_up_and_the_memory_closes(case, prefill_deployment, name, layout):
    batch = prefill_batch(with_model(case, name).system, prefill_deployment(**layout))
    assert sum(t.time for t in batch.terms) - batch.hidden_time == pytest.approx(batch.batch_time)
    assert batch.interval <= batch.batch_time
    m = batch.memory
    assert m.weights + m.kv_cache + m.buffers + m.reserve + m.free == pytest.approx(m.capacity)


@pytest.mark.parametrize(
    ("predict", "at", "message"),
    [
        (predict_decode, "ep=16,batch_per_die=4,expert_tp=3", "expert_tp = 3 does not divide"),
        (predict_decode, "ep=16,batch_per_die=4,expert_tp=32", "expert_tp = 32 does not divide"),
        (predict_decode, "ep=16,batch_per_die=4,expert_pt=2", "Did you mean"),
        (predict_prefill, "ep=16,tokens_per_npu=4096,context_parallel=3", "does not divide ep"),
        (predict_prefill, "ep=16,tokens_per_npu=4096,pipeline_stages=32", "does not divide ep"),
        (predict_prefill, "ep=128,tokens_per_npu=4096,pipeline_stages=64", "more than the 61 layers"),
        (predict_prefill, "ep=16,tokens_per_npu=4096,chunks=0", "out of bounds"),
    ],
)
def test_bad_layouts_are_refused(case, predict, at, message):
    with pytest.raises(SpecError, match=message) as raised:
        predict(case, at)
    assert raised.value.problems


def test_a_model_without_experts_has_none_to_split(case):
    with pytest.raises(SpecError, match="no experts to split"):
        predict_decode(with_model(case, "qwen3-32b"), "ep=16,batch_per_die=4,expert_tp=2")
