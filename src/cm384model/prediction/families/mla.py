"""Multi-head latent attention: absorbed in decode, naive in prefill."""

from __future__ import annotations

import numpy as np

from cm384model.laws import mla as mla_laws
from cm384model.numeric import Numeric, ceil_div
from cm384model.prediction.families.interface import LayerTerms, Prompts, linear
from cm384model.prediction.operators import ELEMENT_BYTES, Die, attention, collective, gemm, vector
from cm384model.prediction.shapes import latent
from cm384model.prediction.terms import Term, merged
from cm384model.specs.model import Model
from cm384model.specs.spec import Constants

SPLITS_PREFILL = True
SPLITS_UNASKED = False
"""The weights of attention are small beside those of the experts."""


def decode_terms(
    die: Die,
    model: Model,
    requests: Numeric,
    tokens: Numeric,
    kv_len: Numeric,
    *,
    tp: Numeric,
    kv_precision: str,
    vector_efficiency: Numeric,
) -> list[Term]:
    """Absorbed MLA of one layer in decode: projections, attention core, output projection.

    ``tp`` dies pool their requests and split the heads: each reads a share of the weights and
    the caches of all, gathers the tokens before and scatters the sums after.
    """
    a, p = latent(model), model.precision
    heads, rank, rope = a.heads.si / tp, a.kv_lora_rank.si, a.qk_rope_dim.si
    pooled, first = tokens * tp, prolog(die, model, tokens, tp)
    flop = mla_laws.mla_decode_flop(pooled, kv_len, heads=heads, latent_dim=rank, rope_dim=rope)
    moved = mla_laws.mla_decode_bytes(
        requests * tp,
        pooled,
        kv_len,
        heads=heads,
        latent_dim=rank,
        rope_dim=rope,
        kv_bytes=ELEMENT_BYTES[kv_precision],
        activation_bytes=ELEMENT_BYTES[p.attention],
    )
    core = attention(die, "attention_core", flop, moved, kv_len, constants_name="mla_decode")
    return [first, core, *epilog(die, model, tokens, tp, vector_efficiency)]


def prolog(die: Die, model: Model, tokens: Numeric, tp: Numeric) -> Term:
    """The absorbed projections before the attention core."""
    heads, pooled = latent(model).heads.si / tp, tokens * tp
    projections = down_and_query(die, model, pooled, heads)
    return merged("mla_prolog", *projections, absorbed_key(die, model, pooled, heads))


def epilog(die: Die, model: Model, tokens: Numeric, tp: Numeric, vector_efficiency: Numeric) -> list[Term]:
    """What follows the attention core: projections, vector work, the exchange among ``tp`` dies."""
    a = latent(model)
    heads, pooled = a.heads.si / tp, tokens * tp
    terms = [
        merged("o_proj", absorbed_value(die, model, pooled, heads), output(die, model, pooled, heads)),
        vector(
            die,
            "attention_vector",
            tokens,
            vector_row_bytes(model, a.heads.si),
            VECTOR_KERNELS,
            efficiency=vector_efficiency,
        ),
    ]
    if np.all(np.equal(tp, 1)):
        return terms
    return [*terms, weight_exchange(die, model, tokens, tp)]


def weight_exchange(die: Die, model: Model, tokens: Numeric, tp: Numeric) -> Term:
    """Tokens to all dies that share the weights, partial sums back."""
    message = tokens * latent(model).hidden.si * ELEMENT_BYTES["bf16"]
    return merged(
        "attention_exchange",
        collective(die, "all_gather", "token_gather", message, tp),
        collective(die, "reduce_scatter", "sum_scatter", message, tp),
    )


def absorbed_key(die: Die, model: Model, tokens: Numeric, heads: Numeric) -> Term:
    """Queries of ``heads`` heads into the latent space."""
    a, precision = latent(model), model.precision.attention
    rank, depth = a.kv_lora_rank.si, a.qk_nope_dim.si
    return gemm(die, "k_absorb", tokens, rank, depth, groups=heads, precision=precision)


def absorbed_value(die: Die, model: Model, tokens: Numeric, heads: Numeric) -> Term:
    """Averaged latents of ``heads`` heads to values."""
    a, precision = latent(model), model.precision.attention
    width, rank = a.v_head_dim.si, a.kv_lora_rank.si
    return gemm(die, "v_absorb", tokens, width, rank, groups=heads, precision=precision)


def prefill_terms(die: Die, model: Model, prompts: Prompts, constants: Constants) -> LayerTerms:
    """Compute and communication of naive MLA of one layer and microbatch.

    The tokens of ``prompts`` are computed; keys and values of the cached ones are expanded from
    their latents again, and the computed ones attend to all of them. Dies that share the weights
    compute the down-projections of their tokens all alike; parts of a sequence gather its latents.
    """
    a, p, tp = latent(model), model.precision, prompts.tp
    half = ELEMENT_BYTES["bf16"]
    heads = ceil_div(a.heads.si, prompts.together)
    pooled, gathered = prompts.tokens * tp, prompts.tokens * prompts.together
    whole = gathered * prompts.cp / (1 - prompts.reuse)
    qk_nope, v = a.qk_nope_dim.si, a.v_head_dim.si
    qk = qk_nope + a.qk_rope_dim.si
    widths = {"heads": heads, "qk_dim": qk, "v_dim": v}
    cached = mla_laws.mla_prefill_flop(whole * prompts.reuse, prompts.prompt_len * prompts.reuse, **widths)
    flop = (mla_laws.mla_prefill_flop(whole, prompts.prompt_len, **widths) - cached) / prompts.cp
    read = whole * (1 + 1 / prompts.cp) / 2  # all keys and values, the queries and outputs of a part
    moved = mla_laws.mla_prefill_bytes(read, **widths, activation_bytes=half)
    compute = [
        merged(
            "mla_prolog",
            linear(die, model, "down_proj", pooled, latents(model), a.hidden.si),
            linear(die, model, "q_up", gathered, heads * qk, query_depth(model)),
            gemm(die, "kv_up", whole, heads * (qk_nope + v), a.kv_lora_rank.si, precision=p.attention),
        ),
        attention(die, "attention_core", flop, moved, prompts.prompt_len, constants_name="mla_prefill"),
        output(die, model, pooled, a.heads.si / tp),
        vector(
            die,
            "attention_vector",
            prompts.tokens,
            vector_row_bytes(model, a.heads.si),
            VECTOR_KERNELS,
            efficiency=constants.vector_efficiency.si,
        ),
    ]
    exchanged = []
    if prompts.shared:
        sharers, outputs = np.maximum(prompts.ranks / tp, 1), prompts.tokens * a.heads.si * v * half
        exchanged += [
            collective(die, "all_gather", "latent_gather", pooled * latents(model) * half, sharers),
            collective(die, "all_to_all", "head_exchange", outputs, sharers),
        ]
    if prompts.gathers:
        message = pooled * (a.kv_lora_rank.si + a.qk_rope_dim.si) * half
        exchanged.append(collective(die, "all_gather", "context_gather", message, prompts.cp))
    if not np.all(np.equal(tp, 1)):
        exchanged.append(weight_exchange(die, model, prompts.tokens, tp))
    return LayerTerms([*compute, *exchanged], EXCHANGED)


EXCHANGED = ("latent_gather", "head_exchange", "context_gather", "attention_exchange")


def kv_bytes_per_token(model: Model, *, kv_len: Numeric, precision: str, tp: Numeric) -> Numeric:
    """One latent and one rotary key, whatever the context and the split. [B/tokens]"""
    a = latent(model)
    return mla_laws.kv_cache_bytes_per_token_mla(
        1.0, latent_dim=a.kv_lora_rank.si, rope_dim=a.qk_rope_dim.si, kv_bytes=ELEMENT_BYTES[precision]
    )


def weight_bytes(model: Model, tp: Numeric) -> Numeric:
    """Down-projections whole, the projections of the heads split over ``tp`` dies. [B]"""
    a, p = latent(model), model.precision
    byte = ELEMENT_BYTES[p.weights]
    hidden, heads = a.hidden.si, a.heads.si
    down = hidden * latents(model)
    query = query_depth(model) * heads * (a.qk_nope_dim.si + a.qk_rope_dim.si)
    output = heads * a.v_head_dim.si * hidden
    latent_up = a.kv_lora_rank.si * heads * (a.qk_nope_dim.si + a.v_head_dim.si)
    split = (query + output) * byte + latent_up * ELEMENT_BYTES[p.attention]
    return down * byte + split / tp


def parameters(model: Model) -> Numeric:
    """Weights of one block. [-]"""
    a = latent(model)
    per_head = query_depth(model) * (a.qk_nope_dim.si + a.qk_rope_dim.si)
    per_head = per_head + a.kv_lora_rank.si * (a.qk_nope_dim.si + a.v_head_dim.si)
    per_head = per_head + a.v_head_dim.si * a.hidden.si
    return a.hidden.si * latents(model) + a.heads.si * per_head


def row_width(model: Model) -> Numeric:
    """Latent queries and values of all heads. [-]"""
    a = latent(model)
    return a.heads.si * (a.kv_lora_rank.si + a.v_head_dim.si)


def prefill_buffers(model: Model, prompts: Prompts) -> dict[str, Numeric]:
    """The gathered latents, and the gathered tokens of a weight group. [B]"""
    a, half = latent(model), ELEMENT_BYTES["bf16"]
    buffers = {"latent_gather": prompts.ranks * prompts.tokens * latents(model) * half}
    if prompts.gathers:
        others = (prompts.cp - 1) * prompts.tp * prompts.tokens
        buffers["context_gather"] = others * (a.kv_lora_rank.si + a.qk_rope_dim.si) * half
    if not np.all(np.equal(prompts.tp, 1)):
        buffers["token_gather"] = (prompts.tp - 1) * prompts.tokens * a.hidden.si * half
    return buffers


def sizes(model: Model) -> dict[str, float]:
    """Single operators of latent attention take their widths from the model. [-]"""
    return {}


def latents(model: Model) -> Numeric:
    """Width of the joint down-projection of queries, latent and rotary key. [-]"""
    a = latent(model)
    return a.q_lora_rank.si + a.kv_lora_rank.si + a.qk_rope_dim.si


def down_and_query(die: Die, model: Model, tokens: Numeric, heads: Numeric) -> tuple[Term, Term]:
    """Joint down-projection of queries and latents, and the up-projection of the queries."""
    a = latent(model)
    query = heads * (a.qk_nope_dim.si + a.qk_rope_dim.si)
    return (
        linear(die, model, "down_proj", tokens, latents(model), a.hidden.si),
        linear(die, model, "q_up", tokens, query, query_depth(model)),
    )


def query_depth(model: Model) -> Numeric:
    """Depth of the query projection: the low rank, or the hidden width where there is none. [-]"""
    a = latent(model)
    return a.q_lora_rank.si + (a.q_lora_rank.si == 0) * a.hidden.si


def output(die: Die, model: Model, tokens: Numeric, heads: Numeric) -> Term:
    """Output projection of ``heads`` heads."""
    a = latent(model)
    return linear(die, model, "o_proj", tokens, a.hidden.si, heads * a.v_head_dim.si)


VECTOR_KERNELS = 6.0
"""Norm + quantise, query norm + quantise, latent norm + cache write, rotary embedding,
quantise before the output projection, residual addition. [-]"""


def vector_row_bytes(model: Model, heads: Numeric) -> Numeric:
    """Traffic of the `VECTOR_KERNELS` of one token, read and written once each. [B]"""
    a = latent(model)
    half, byte = ELEMENT_BYTES["bf16"], ELEMENT_BYTES[model.precision.activations]
    norm = a.hidden.si * (2 * half + byte)
    query = a.q_lora_rank.si * (half + byte)
    cache = (a.kv_lora_rank.si + a.qk_rope_dim.si) * 2 * half
    rotary = heads * a.qk_rope_dim.si * 2 * half
    quantise = a.heads.si * a.v_head_dim.si * (half + byte)
    residual = a.hidden.si * 3 * half
    return norm + query + cache + rotary + quantise + residual
