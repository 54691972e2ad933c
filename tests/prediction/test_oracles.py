"""Flop and bytes of the predictors against loops over layers, heads, experts and tokens.

The loops know the architecture and nothing of the laws; shapes are tiny and uneven, so that a
swapped or forgotten width shows.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from cm384model.prediction.decode import decode_step
from cm384model.prediction.memory import weight_parts
from cm384model.prediction.placement import place_experts
from cm384model.prediction.prefill import prefill_batch
from cm384model.specs.load import load_model
from cm384model.specs.overrides import replace_value
from cm384model.specs.quantity import Quantity

INT8, BF16 = 1, 2
INT8_OUTPUT, BF16_OUTPUT = 6, 2
"""Bytes that move per element of a result: the fitted traffic of the two GEMM kernels. [B]"""
SCALES = 512
"""Bytes of the slot that carries the scale of one dispatched token. [B]"""

TERM_SHAPES = {
    name
    for name, shape in load_model("deepseek-r1").architecture
    if isinstance(shape, Quantity) and name != "mtp_layers"
}
"""What the terms of a step depend on; the MTP layer is run once per draft, however many there are."""


def shape_of(model):
    """The architecture as plain integers."""
    shapes = {name: int(shape.si) for name, shape in model.architecture if isinstance(shape, Quantity)}
    return SimpleNamespace(**shapes)


def product(rows, columns, depth, *, int8):
    """Flop and bytes of one product, element by element."""
    flop = 0
    for _row in range(rows):
        for _column in range(columns):
            for _k in range(depth):
                flop += 2
    element, result = (INT8, INT8_OUTPUT) if int8 else (BF16, BF16_OUTPUT)
    read = {("activation", r, k) for r in range(rows) for k in range(depth)}
    read |= {("weight", c, k) for c in range(columns) for k in range(depth)}
    return np.array([flop, len(read) * element + rows * columns * result])


def named(terms):
    """Flop and bytes of scalar terms by name."""
    return {term.name: np.array([float(term.flop), float(term.bytes)]) for term in terms}


def serial(decode_deployment, **changes):
    """A balanced decode deployment without drafts, redundancy or overlap."""
    plain = {"microbatches": 1.0, "draft_tokens": 0.0, "imbalance": 1.0, "redundant_experts": 0.0}
    return decode_deployment(**(plain | changes))


@pytest.fixture(scope="module")
def shape(tiny):
    return shape_of(tiny.model)


@pytest.mark.parametrize(("requests", "kv_len", "drafts", "microbatches"), [(3, 7, 0, 1), (4, 5, 2, 2)])
def test_absorbed_mla_of_decode(tiny, shape, decode_deployment, requests, kv_len, drafts, microbatches):
    a = shape
    prolog, core, output = np.zeros(2), np.zeros(2), np.zeros(2)
    for _layer in range(a.dense_layers, a.layers):
        for _microbatch in range(microbatches):
            here = requests // microbatches
            tokens = here * (1 + drafts)
            prolog += product(tokens, a.q_lora_rank + a.kv_lora_rank + a.qk_rope_dim, a.hidden, int8=True)
            prolog += product(tokens, a.heads * (a.qk_nope_dim + a.qk_rope_dim), a.q_lora_rank, int8=True)
            for _head in range(a.heads):
                prolog += product(tokens, a.kv_lora_rank, a.qk_nope_dim, int8=False)
                output += product(tokens, a.v_head_dim, a.kv_lora_rank, int8=False)
            output += product(tokens, a.hidden, a.heads * a.v_head_dim, int8=True)
            for _request in range(here):
                for _position in range(kv_len):
                    core[1] += (a.kv_lora_rank + a.qk_rope_dim) * BF16
                for _token in range(1 + drafts):
                    for _head in range(a.heads):
                        core[1] += (a.kv_lora_rank + a.qk_rope_dim) * BF16  # the query
                        core[1] += a.kv_lora_rank * BF16  # the output
                        for _position in range(kv_len):
                            core[0] += 2 * (a.kv_lora_rank + a.qk_rope_dim)  # the score
                            core[0] += 2 * a.kv_lora_rank  # the average
    deployment = serial(
        decode_deployment,
        ep=16.0,
        batch_per_die=float(requests),
        kv_len=float(kv_len),
        draft_tokens=float(drafts),
        microbatches=float(microbatches),
    )
    terms = named(decode_step(tiny.system, deployment).terms)
    assert terms["mla_prolog"] == pytest.approx(prolog, rel=1e-12)
    assert terms["attention_core"] == pytest.approx(core, rel=1e-12)
    assert terms["o_proj"] == pytest.approx(output, rel=1e-12)


@pytest.mark.parametrize("ep", [1, 2, 4])
def test_naive_mla_of_prefill(tiny, shape, prefill_deployment, ep):
    """Over all dies of the instance; a die of ``ep`` has ``heads / ep`` heads of all tokens."""
    a, prompt_len, prompts = shape, 5, 8
    qk = a.qk_nope_dim + a.qk_rope_dim
    tokens = prompts * prompt_len
    prolog_flop, core, output = 0, np.zeros(2), np.zeros(2)
    for _layer in range(a.dense_layers, a.layers):
        for _die in range(ep):
            own = tokens // ep
            down = product(own, a.q_lora_rank + a.kv_lora_rank + a.qk_rope_dim, a.hidden, int8=True)
            heads = a.heads // ep
            query = product(tokens, heads * qk, a.q_lora_rank, int8=True)
            pair = product(tokens, heads * (a.qk_nope_dim + a.v_head_dim), a.kv_lora_rank, int8=False)
            prolog_flop += (down + query + pair)[0]
            output += product(own, a.hidden, a.heads * a.v_head_dim, int8=True)
        for _prompt in range(prompts):
            for _head in range(a.heads):
                for query in range(prompt_len):
                    core[1] += 2 * (qk + a.v_head_dim) * BF16
                    for _key in range(query + 1):
                        core[0] += 2 * qk + 2 * a.v_head_dim
    deployment = prefill_deployment(
        ep=float(ep),
        tokens_per_npu=2.0 * tokens / ep,
        prompt_len=float(prompt_len),
        microbatches=1.0,
        imbalance=1.0,
    )
    terms = named(prefill_batch(tiny.system, deployment).terms)
    assert terms["mla_prolog"][0] * ep == pytest.approx(prolog_flop, rel=1e-12)
    assert terms["attention_core"] * ep == pytest.approx(core, rel=1e-12)
    assert terms["o_proj"] * ep == pytest.approx(output, rel=1e-12)


def test_naive_mla_after_a_cached_prefix(tiny, shape, prefill_deployment):
    """New tokens attend to all; keys and values of the cached ones are expanded from latents again."""
    a, prompt_len, cached, prompts = shape, 8, 6, 4
    qk = a.qk_nope_dim + a.qk_rope_dim
    new = prompts * (prompt_len - cached)
    core = prolog = 0
    for _layer in range(a.dense_layers, a.layers):
        prolog += product(new, a.q_lora_rank + a.kv_lora_rank + a.qk_rope_dim, a.hidden, int8=True)[0]
        prolog += product(new, a.heads * qk, a.q_lora_rank, int8=True)[0]
        whole = prompts * prompt_len
        prolog += product(whole, a.heads * (a.qk_nope_dim + a.v_head_dim), a.kv_lora_rank, int8=False)[0]
        for _prompt in range(prompts):
            for _head in range(a.heads):
                for query in range(cached, prompt_len):
                    for _key in range(query + 1):
                        core += 2 * qk + 2 * a.v_head_dim
    deployment = prefill_deployment(
        ep=1.0,
        tokens_per_npu=2.0 * prompts * prompt_len,
        prompt_len=float(prompt_len),
        microbatches=1.0,
        reuse=cached / prompt_len,
    )
    terms = named(prefill_batch(tiny.system, deployment).terms)
    assert terms["attention_core"][0] == pytest.approx(core, rel=1e-12)
    assert terms["mla_prolog"][0] == pytest.approx(prolog, rel=1e-12)
    assert terms["cache_load"][1] == prompts * cached * a.layers * (a.kv_lora_rank + a.qk_rope_dim) * BF16


def route(tokens, top_k, experts, *, start):
    """Distinct experts of every token, as evenly as can be."""
    for token in range(tokens):
        first = start + token * top_k
        yield [(first + pick) % experts for pick in range(top_k)]


def expert_work(shape, rows):
    """Flop and bytes of the two products and SwiGLU of one expert with ``rows`` rows."""
    a, work = shape, np.zeros(2)
    work += product(rows, 2 * a.moe_intermediate, a.hidden, int8=True)
    work += product(rows, a.hidden, a.moe_intermediate, int8=True)
    for _row in range(rows):
        work[1] += a.moe_intermediate * (2 * BF16 + BF16 + BF16 + INT8)  # both halves in, out; in, out
    return work


@pytest.mark.parametrize("ep", [1, 2, 4, 8])
def test_experts_of_decode(tiny, shape, decode_deployment, ep):
    """Balanced routing of so many tokens that no expert is left out; shared expert on every die."""
    a, tokens = shape, 16 * shape.routed_experts
    rows = [[0] * (a.routed_experts // ep) for _die in range(ep)]
    for die in range(ep):
        for picks in route(tokens, a.top_k, a.routed_experts, start=die):
            for expert in picks:
                rows[expert * ep // a.routed_experts][expert % (a.routed_experts // ep)] += 1
    assert len({count for die in rows for count in die}) == 1
    work, gate_flop = np.zeros(2), 0
    for _layer in range(a.dense_layers, a.layers):
        gate_flop += product(tokens, a.routed_experts, a.hidden, int8=False)[0]
        for count in rows[0]:
            work += expert_work(a, count)
        work += expert_work(a, tokens)
    deployment = serial(decode_deployment, ep=float(ep), batch_per_die=float(tokens))
    step = decode_step(tiny.system, deployment)
    terms = named(step.terms)
    assert step.placement.slots == a.routed_experts / ep
    assert terms["experts"] == pytest.approx(work, rel=1e-6)
    assert terms["gate"][0] == gate_flop


def test_experts_with_shared_copies_of_their_own(tiny, shape, decode_deployment):
    """EP 48 of 8 experts: one node of dies for the shared expert, one expert on each of the others."""
    a, ep, tokens = shape, 48, 64
    deployment = serial(decode_deployment, ep=float(ep), batch_per_die=float(tokens))
    step = decode_step(tiny.system, deployment)
    shared, pool = int(step.placement.shared_dies), int(step.placement.pool_dies)
    assert (shared, pool, step.placement.slots) == (16, 32, 1)
    layers = a.layers - a.dense_layers
    routed = expert_work(a, ep * tokens * a.top_k // pool)
    copy = expert_work(a, ep * tokens // shared)
    assert named(step.terms)["experts"] == pytest.approx(layers * (routed + copy), rel=1e-6)


@pytest.mark.parametrize("shared", [0, 2])
def test_experts_with_another_number_of_shared_experts(tiny, shape, decode_deployment, shared):
    a, tokens = shape, 16 * shape.routed_experts
    model = replace_value(tiny.model, "architecture.shared_experts", float(shared))
    deployment = serial(decode_deployment, ep=1.0, batch_per_die=float(tokens))
    terms = named(decode_step(replace(tiny, model=model).system, deployment).terms)
    work = a.routed_experts * expert_work(a, tokens * a.top_k // a.routed_experts)
    work += shared * expert_work(a, tokens)
    assert terms["experts"] == pytest.approx((a.layers - a.dense_layers) * work, rel=1e-6)


@pytest.mark.parametrize("ep", [1, 2, 8])
@pytest.mark.parametrize("microbatches", [1, 2])
def test_exchange_of_decode(tiny, shape, decode_deployment, ep, microbatches):
    """One message per pick; a pick stays at home as often as home has experts."""
    a, tokens = shape, 6
    dispatched = combined = 0.0
    for _layer in range(a.dense_layers, a.layers):
        for _token in range(tokens):
            for _pick in range(a.top_k):
                for die in range(ep):
                    if die != 0:
                        dispatched += (a.hidden * INT8 + SCALES) / ep
                        combined += a.hidden * BF16 / ep
    deployment = serial(
        decode_deployment, ep=float(ep), batch_per_die=float(tokens), microbatches=float(microbatches)
    )
    terms = named(decode_step(tiny.system, deployment).terms)
    assert terms["dispatch"] == pytest.approx([0, dispatched], rel=1e-12)
    assert terms["combine"] == pytest.approx([0, combined], rel=1e-12)


def test_dense_layers_of_decode(tiny, shape, decode_deployment):
    a, tokens, kv_len = shape, 3, 4
    flop = 0
    for _layer in range(a.dense_layers):
        flop += product(tokens, 2 * a.dense_intermediate, a.hidden, int8=True)[0]
        flop += product(tokens, a.hidden, a.dense_intermediate, int8=True)[0]
    step = decode_step(tiny.system, serial(decode_deployment, batch_per_die=3.0, kv_len=float(kv_len)))
    terms = named(step.terms)
    per_layer = sum(terms[name][0] for name in ("mla_prolog", "attention_core", "o_proj"))
    attention = per_layer / (a.layers - a.dense_layers) * a.dense_layers
    assert terms["dense_layers"][0] == pytest.approx(flop + attention, rel=1e-12)


@pytest.mark.parametrize("drafts", [0, 1, 3])
def test_head_and_drafts_of_decode(tiny, shape, decode_deployment, drafts):
    """The head sees every verified token and one token per draft; each draft runs a MoE layer."""
    a, requests = shape, 64
    rows = requests * (1 + drafts) + requests * drafts
    flop = 0
    for _rank in range(16):  # each die computes its slice of the vocabulary for all 16
        flop += product(rows, 1, a.hidden, int8=False)[0] * a.vocab / 16
    step = decode_step(
        tiny.system,
        serial(decode_deployment, ep=8.0, batch_per_die=float(requests), draft_tokens=float(drafts)),
    )
    terms = named(step.terms)
    assert terms["lm_head"][0] == pytest.approx(flop, rel=1e-12)
    one = serial(decode_deployment, ep=8.0, batch_per_die=float(requests))
    layer = sum(
        named(decode_step(tiny.system, one).terms)[name]
        for name in ("mla_prolog", "attention_core", "o_proj", "gate", "experts")
    ) / (a.layers - a.dense_layers)
    # the first pass verifies 1 + drafts tokens per request, each later one a single token
    passes = (1 + drafts) * min(drafts, 1) + max(drafts - 1, 0)
    projection = 2 * requests * 2 * a.hidden * a.hidden
    assert terms["draft_layers"][0] == pytest.approx((layer[0] + projection) * passes, rel=1e-9)


def parameters(model, *, mtp=0):
    """Parameters of a model, tensor by tensor, as its checkpoint lists them (without norms)."""
    a, count = shape_of(model), 0
    for layer in range(a.layers + mtp):
        count += a.hidden * a.q_lora_rank
        count += a.q_lora_rank * a.heads * (a.qk_nope_dim + a.qk_rope_dim)
        count += a.hidden * (a.kv_lora_rank + a.qk_rope_dim)
        count += a.kv_lora_rank * a.heads * (a.qk_nope_dim + a.v_head_dim)
        count += a.heads * a.v_head_dim * a.hidden
        if layer < a.dense_layers:
            count += 3 * a.hidden * a.dense_intermediate
            continue
        count += a.hidden * a.routed_experts
        for _expert in range(a.routed_experts + a.shared_experts):
            count += 3 * a.hidden * a.moe_intermediate
    return count + mtp * 2 * a.hidden**2 + 2 * a.vocab * a.hidden


def test_parameters_of_deepseek_r1(case):
    assert parameters(case.model) == pytest.approx(671e9, rel=0.01)
    assert parameters(case.model) == pytest.approx(case.model.published.total_parameters.si, rel=0.01)


@pytest.mark.parametrize("ep", [16, 32, 144, 256, 288, 320, 768])
def test_an_instance_holds_the_whole_model(case, ep):
    """In bytes, at one byte a parameter and more, whatever the placement."""
    placement = place_experts(case.hardware, case.model, float(ep), 32.0)
    parts = weight_parts(case.system, placement, drafting=0.0, head_ranks=1.0)
    assert ep * sum(parts.values()) >= 671e9
    routed = 58 * 256 * 3 * 7168 * 2048
    assert placement.pool_dies * parts["routed_experts"] >= routed


@pytest.mark.parametrize("mtp", [0, 1])
def test_weights_of_a_single_die_are_the_parameters(tiny, mtp):
    """EP 1, no redundancy, every precision INT8 but the ones the paper keeps in BF16."""
    a = shape_of(tiny.model)
    placement = place_experts(tiny.hardware, tiny.model, 1.0, 0.0)
    parts = weight_parts(tiny.system, placement, drafting=float(mtp), head_ranks=1.0)
    layers, moe_layers = a.layers + mtp, a.layers + mtp - a.dense_layers
    kept = layers * a.kv_lora_rank * a.heads * (a.qk_nope_dim + a.v_head_dim)
    kept += moe_layers * a.hidden * a.routed_experts + 2 * a.vocab * a.hidden
    assert sum(parts.values()) == parameters(tiny.model, mtp=mtp) * INT8 + kept * (BF16 - INT8)


@pytest.mark.parametrize("name", sorted(TERM_SHAPES))
def test_every_width_matters(tiny, decode_deployment, name):
    """No law can drop a width unnoticed: changing it changes the flop or bytes of some term."""
    base = named(decode_step(tiny.system, decode_deployment(ep=8.0)).terms)
    value = getattr(tiny.model.architecture, name).si
    model = replace_value(tiny.model, f"architecture.{name}", value + (16 if name == "vocab" else 1))
    changed = named(decode_step(replace(tiny, model=model).system, decode_deployment(ep=8.0)).terms)
    assert any(not np.allclose(base[term], changed[term], rtol=1e-9) for term in base)
