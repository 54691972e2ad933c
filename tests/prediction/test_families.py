"""Each family against loops, limits and published sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cm384model.prediction.decode import decode_step
from cm384model.prediction.evaluate import predict_prefill
from cm384model.prediction.families import ATTENTION, FEED_FORWARD, feed_forward_of, model_parameters
from cm384model.prediction.families.interface import compute_precision
from cm384model.prediction.memory import kv_bytes_per_token_layer, usual_attention_tp, weight_parts
from cm384model.prediction.prefill import prefill_batch
from cm384model.prediction.single import OPERATORS
from cm384model.prediction.sizes import model_sizes
from cm384model.specs import model as specs
from cm384model.specs.catalogue import names
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.load import load_model
from cm384model.specs.overrides import replace_value
from cm384model.specs.spec import replace_node

MODELS = names("model")
EVERY_MODEL = pytest.mark.parametrize("name", MODELS)
BYTES = {"int4": 0.5, "int8": 1, "fp8": 1, "bf16": 2}


def with_model(case, name, **shapes):
    """The case with another model, some of its shapes changed."""
    model = load_model(name)
    for shape, value in shapes.items():
        model = replace_value(model, f"architecture.{shape}", float(value))
    return replace(case, model=model)


def plain(decode_deployment, **changes):
    usual = {"microbatches": 1.0, "draft_tokens": 0.0, "imbalance": 1.0, "redundant_experts": 0.0}
    return decode_deployment(**(usual | changes))


def named(terms):
    return {term.name: term for term in terms}


TINY = {"hidden": 12, "vocab": 32, "layers": 3, "heads": 8, "kv_heads": 2, "head_dim": 4}


# --- sizes ----------------------------------------------------------------------------------------------


def agree(ours: float, published: float) -> bool:
    """Within 1 %, or the same number once rounded or cut to the digits that are published."""
    if abs(ours / published - 1) <= 0.01:
        return True
    text = f"{published / 1e9:g}"
    digits = len(text.partition(".")[2])
    unit = 10.0**-digits if digits or not text.endswith("000") else 1000.0
    value = ours / 1e9
    return published / 1e9 in (round(value / unit) * unit, pytest.approx(np.floor(value / unit) * unit))


@EVERY_MODEL
def test_parameters_are_the_published_ones(name):
    """Publishers count both embedding tables, the head alone, or neither among the active weights."""
    model = load_model(name)
    ours, published = model_parameters(model), model.published
    table = model.architecture.vocab.si * model.architecture.hidden.si
    assert agree(float(ours.total), published.total_parameters.si)
    actives = [float(ours.active) + tables * table for tables in (-1, 0, 1)]
    assert any(agree(active, published.active_parameters.si) for active in actives), actives


def test_the_rule_of_agreement():
    assert agree(671.9e9, 671e9)
    assert agree(1026.4e9, 1000e9)
    assert agree(3.353e9, 3.3e9)
    assert not agree(38.5e9, 37e9)
    assert not agree(3.45e9, 3.3e9)
    assert not agree(690e9, 671e9)


@pytest.mark.parametrize(
    ("name", "token_bytes"),
    [
        ("deepseek-r1", 61 * (512 + 64) * 2),
        ("deepseek-v3.2", 61 * (512 + 64 + 128) * 2),
        ("longcat-flash", 28 * 2 * (512 + 64) * 2),
        ("qwen3-235b-a22b", 94 * 2 * 4 * 128 * 2),
        ("qwen3-32b", 64 * 2 * 8 * 128 * 2),
        ("llama-3.1-70b", 80 * 2 * 8 * 128 * 2),
    ],
)
def test_cache_of_a_token(case, name, token_bytes):
    sizes = model_sizes(with_model(case, name).system)
    assert sizes.kv_bytes_per_token == token_bytes
    int8 = with_model(case, name)
    int8 = replace(int8, model=replace_node(int8.model, "precision.kv", "int8"))
    assert model_sizes(int8.system).kv_bytes_per_token == token_bytes / 2


@EVERY_MODEL
def test_a_die_that_holds_everything_holds_the_parameters(case, name):
    """At one byte a weight; what is kept in two is counted apart."""
    system = with_model(case, name).system
    model, family = system.model, feed_forward_of(system.model)
    for part in ("weights", "activations", "attention", "embedding", "lm_head"):
        model = replace_node(model, f"precision.{part}", "int8")
    model = replace_node(model, "precision.experts", None)
    parts = weight_parts(
        replace(system, model=model),
        family.place(system.hardware, model, 1.0, 0.0),
        drafting=0.0,
        head_ranks=1.0,
    )
    router = parts.get("router", 0.0) / 2
    assert sum(parts.values()) - router == pytest.approx(model_parameters(model).total, rel=1e-12)


@EVERY_MODEL
def test_the_smallest_deployment_is_the_smallest(case, name):
    sizes = model_sizes(with_model(case, name).system)
    assert sizes.smallest_npus is not None
    model = load_model(name)
    stored = BYTES[model.precision.experts or model.precision.weights] * sizes.total_parameters
    assert sizes.smallest_npus * 2 * 64e9 > stored
    assert sizes.smallest_npus * 2 * 64e9 < 2.2 * stored + 128e9


# --- grouped-query attention ----------------------------------------------------------------------------


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_grouped_query_attention_of_decode(case, decode_deployment, tp):
    """With 2 key-value heads and 4 dies, each die holds a copy of one."""
    tiny = with_model(case, "qwen3-32b", **TINY, dense_intermediate=20)
    requests, kv_len = 3, 7
    step = decode_step(
        tiny.system,
        plain(decode_deployment, ep=16.0, batch_per_die=3.0, kv_len=7.0, attention_tp=float(tp)),
    )
    flop = moved = projections = 0
    heads, kv_heads = TINY["heads"] // tp, max(TINY["kv_heads"] // tp, 1)
    for _layer in range(TINY["layers"]):
        for _request in range(requests * tp):
            moved += kv_len * kv_heads * 2 * TINY["head_dim"] * 2
            for _head in range(heads):
                flop += kv_len * TINY["head_dim"] * 2 * 2
                moved += 2 * TINY["head_dim"] * 2
            projections += 2 * TINY["hidden"] * (heads + 2 * kv_heads) * TINY["head_dim"]
    terms = named(step.terms)
    assert terms["attention_core"].flop == flop
    assert terms["attention_core"].bytes == moved
    assert terms["qkv_proj"].flop == projections
    assert ("attention_exchange" in terms) == (tp > 1)
    assert terms["feed_forward"].flop == TINY["layers"] * requests * 3 * 2 * 12 * 20
    cache = kv_bytes_per_token_layer(tiny.system, 7.0, float(tp))
    assert cache == 2 * kv_heads * TINY["head_dim"] * 2


@pytest.mark.parametrize(("ep", "tp"), [(2, 1), (4, 1), (4, 2), (8, 8), (16, 4)])
def test_grouped_query_attention_of_prefill(case, prefill_deployment, ep, tp):
    """Over all dies of the instance; queries and outputs once each, whatever the split."""
    tiny = with_model(case, "qwen3-32b", **TINY, dense_intermediate=24)
    prompt_len, prompts = 5, 16
    tokens, flop = prompt_len * prompts, 0
    for _layer in range(TINY["layers"]):
        for _head in range(TINY["heads"]):
            flop += prompts * sum(4 * TINY["head_dim"] * (query + 1) for query in range(prompt_len))
    deployment = prefill_deployment(
        ep=float(ep),
        tokens_per_npu=2.0 * tokens / ep,
        prompt_len=float(prompt_len),
        microbatches=1.0,
        imbalance=1.0,
    )
    terms = named(prefill_batch(tiny.system, replace(deployment, attention_tp=float(tp))).terms)
    assert terms["attention_core"].flop * ep == pytest.approx(flop)
    assert terms["o_proj"].flop * ep == TINY["layers"] * tokens * 2 * TINY["heads"] * 4 * TINY["hidden"]
    assert terms["feed_forward"].flop * ep == TINY["layers"] * tokens * 3 * 2 * 12 * 24


def test_a_sliding_window_forgets(case, decode_deployment):
    base = with_model(case, "qwen3-32b")
    window = base.model.architecture.layers.model_copy(update={"value": 128.0})
    half = base.model.architecture.layers.model_copy(update={"value": 32.0})
    for shape in (window, half):
        shape.__dict__.pop("_si", None)
    model = replace_node(base.model, "architecture.window", window)
    model = replace_node(model, "architecture.window_layers", half)
    near = replace(base, model=model)
    full, some = (kv_bytes_per_token_layer(c.system, 8192.0) * 64 * 8192 for c in (base, near))
    assert some == pytest.approx(full * (32 * 8192 + 32 * 128) / (64 * 8192))
    times = [
        named(decode_step(c.system, plain(decode_deployment, kv_len=8192.0)).terms)["attention_core"].bytes
        for c in (base, near)
    ]
    assert 0.5 < times[1] / times[0] < 0.52
    flops = [named(prefill_batch(c.system, _prefill(c)).terms)["attention_core"].flop for c in (base, near)]
    assert 0.5 < flops[1] / flops[0] < 0.55


def _prefill(case, **changes):
    from cm384model.prediction.evaluate import prefill_deployment

    at = {"ep": 32, "tokens_per_npu": 16384, "prompt_len": 8192} | changes
    return prefill_deployment(case, at)


# --- sparse attention -----------------------------------------------------------------------------------


def test_sparse_attention_is_flat_past_its_picks_and_the_indexer_grows(case, decode_deployment):
    sparse = with_model(case, "deepseek-v3.2")
    core, index = [], []
    for kv_len in (1024.0, 2048.0, 4096.0, 65536.0):
        terms = named(decode_step(sparse.system, plain(decode_deployment, kv_len=kv_len)).terms)
        core.append(terms["attention_core"].time)
        index.append(terms["indexer"].time)
    assert core[0] < core[1] == core[2] == core[3]
    assert index == sorted(index)
    assert index[3] > 3 * index[2]


def test_indexer_of_decode(case, decode_deployment):
    sparse = with_model(case, "deepseek-v3.2", layers=3, index_layers=3, dense_layers=0)
    step = decode_step(sparse.system, plain(decode_deployment, batch_per_die=2.0, kv_len=5.0))
    flop = 0
    for _layer in range(3):
        for _request in range(2):
            flop += 2 * 1536 * 64 * 128 + 2 * 7168 * (128 + 64)
            for _position in range(5):
                flop += 2 * 64 * 128
    assert named(step.terms)["indexer"].flop == flop


def test_indexed_attention_is_the_indexer_and_then_its_picks(case):
    sizes = {"tokens_per_die": 256.0, "batch_per_die": 1.0, "kv_len": 1500.0}
    index = {"index_heads": 32.0, "index_dim": 128.0}
    core = {"positions": 2048.0, "heads": 64.0}
    die = case.system.die()
    scores = OPERATORS["lightning_indexer"](die, case, sizes | index)
    picks = OPERATORS["sparse_attention"](die, case, sizes | core | {"positions": 1500.0})
    both = OPERATORS["indexed_attention"](die, case, sizes | index | core)
    assert both.time == pytest.approx(scores.time + picks.time)
    assert scores.flop == 2 * 256 * 1500 * 32 * 128


def test_the_busiest_die_has_at_most_all_rows(case, decode_deployment):
    def experts(ep, imbalance):
        d = decode_deployment(
            ep=ep, imbalance=imbalance, redundant_experts=0.0, microbatches=1.0, attention_aic_share=1.0
        )
        return named(decode_step(case.system, d).terms)["experts"].time

    assert experts(1.0, 2.0) == experts(1.0, 1.0)
    assert experts(2.0, 3.0) == experts(2.0, 2.0) > experts(2.0, 1.0)


def test_sparse_prefill_is_cheaper_than_dense_for_long_prompts_only(case):
    dense, sparse = with_model(case, "deepseek-v3"), with_model(case, "deepseek-v3.2")

    def core(c, length):
        batch = prefill_batch(c.system, _prefill(c, tokens_per_npu=131072, prompt_len=length))
        return sum(t.time for t in batch.terms if t.name in ("attention_core", "indexer"))

    assert core(sparse, 4096) > core(dense, 4096)
    assert core(sparse, 131072) < core(dense, 131072)


# --- experts --------------------------------------------------------------------------------------------


def test_zero_experts_draw_picks_and_cost_nothing(case, decode_deployment):
    """12 picks of 512 + 256 are 8 that compute: the work of 8 of 512."""
    zeros = with_model(case, "longcat-flash")
    without = with_model(case, "longcat-flash", zero_experts=0, top_k=8)
    a, b = (
        named(decode_step(c.system, plain(decode_deployment, ep=64.0, batch_per_die=64.0)).terms)
        for c in (zeros, without)
    )
    for name in ("dispatch", "experts", "combine"):
        assert a[name].time == b[name].time
    assert a["gate"].flop == b["gate"].flop * (512 + 256) / 512


def test_a_layer_with_a_shortcut_has_two_attention_blocks(case, decode_deployment):
    two, one = with_model(case, "longcat-flash"), with_model(case, "longcat-flash", blocks=1)
    a, b = (named(decode_step(c.system, plain(decode_deployment, ep=64.0)).terms) for c in (two, one))
    for name in ("mla_prolog", "attention_core", "o_proj", "dense_blocks"):
        assert a[name].time == pytest.approx(2 * b[name].time)
    assert a["experts"].time == b["experts"].time


def test_four_bit_experts_take_half_the_memory_and_two_thirds_of_the_traffic_that_unpacks_them(
    case, decode_deployment
):
    whole = with_model(case, "deepseek-r1")
    half = replace(whole, model=replace_node(whole.model, "precision.experts", "int4"))
    a, b = (
        named(decode_step(c.system, plain(decode_deployment, ep=32.0, batch_per_die=4.0)).terms)["experts"]
        for c in (whole, half)
    )
    assert a.flop == b.flop
    assert 1 / 1.48 < b.bytes / a.bytes < 0.75
    parts = [
        weight_parts(
            c.system,
            feed_forward_of(c.model).place(c.hardware, c.model, 32.0, 0.0),
            drafting=0.0,
            head_ranks=1.0,
        )
        for c in (whole, half)
    ]
    assert parts[1]["routed_experts"] == parts[0]["routed_experts"] / 2
    assert parts[1]["shared_experts"] == parts[0]["shared_experts"]


@pytest.mark.parametrize(
    ("stored", "activations", "computed"),
    [("int8", "int8", "int8"), ("int4", "int8", "int8"), ("int4", "bf16", "bf16"), ("bf16", "int8", "bf16")],
)
def test_a_product_runs_in_the_wider_format(stored, activations, computed):
    assert compute_precision(stored, activations) == computed


# --- what is refused, and what is chosen ----------------------------------------------------------------


def test_every_family_has_its_numbers_and_its_terms():
    assert set(ATTENTION) == set(specs.ATTENTION)
    assert set(FEED_FORWARD) == set(specs.FEED_FORWARD)


def test_a_machine_without_fp8_says_so(case, decode_deployment):
    model = replace_node(case.model, "precision.weights", "fp8")
    model = replace_node(model, "precision.activations", "fp8")
    with pytest.raises(SpecError, match="cloudmatrix384 has no product in fp8"):
        decode_step(replace(case, model=model).system, decode_deployment())


def test_sparse_attention_is_not_split_in_prefill(case):
    with pytest.raises(SpecError, match=r"attention weights of deepseek-v3\.2 are not split in prefill"):
        predict_prefill(with_model(case, "deepseek-v3.2"), "ep=32,tokens_per_npu=16384,attention_tp=2")


@pytest.mark.parametrize(
    ("name", "tp"),
    [("deepseek-r1", 1), ("qwen3-8b", 1), ("qwen3-32b", 2), ("llama-3.1-70b", 8), ("glm-4.5", 1)],
)
def test_split_weights_leave_half_of_the_memory(case, name, tp):
    assert usual_attention_tp(with_model(case, name).system) == tp
