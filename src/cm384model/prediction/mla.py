"""The operators of a layer with multi-head latent attention, as terms."""

from __future__ import annotations

import numpy as np

from cm384model.laws import attention as laws
from cm384model.numeric import Numeric
from cm384model.prediction.operators import ELEMENT_BYTES, Die, attention, collective, gemm, vector
from cm384model.prediction.terms import Term, merged
from cm384model.specs.model import Model


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
    a, p = model.architecture, model.precision
    heads, latent, rope = a.heads.si / tp, a.kv_lora_rank.si, a.qk_rope_dim.si
    pooled, half = tokens * tp, ELEMENT_BYTES["bf16"]
    flop = laws.mla_decode_flop(pooled, kv_len, heads=heads, latent_dim=latent, rope_dim=rope)
    moved = laws.mla_decode_bytes(
        requests * tp,
        pooled,
        kv_len,
        heads=heads,
        latent_dim=latent,
        rope_dim=rope,
        kv_bytes=ELEMENT_BYTES[kv_precision],
        activation_bytes=ELEMENT_BYTES[p.attention],
    )
    terms = [
        merged(
            "mla_prolog",
            *down_and_query(die, model, pooled, heads),
            gemm(die, "k_absorb", pooled, latent, a.qk_nope_dim.si, groups=heads, precision=p.attention),
        ),
        attention(die, "attention_core", flop, moved, kv_len, constants_name="mla_decode"),
        merged(
            "o_proj",
            gemm(die, "v_absorb", pooled, a.v_head_dim.si, latent, groups=heads, precision=p.attention),
            output(die, model, pooled, heads),
        ),
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
    message = tokens * a.hidden.si * half
    exchanged = merged(
        "attention_exchange",
        collective(die, "all_gather", "token_gather", message, tp),
        collective(die, "reduce_scatter", "sum_scatter", message, tp),
    )
    return [*terms, exchanged]


def down_and_query(die: Die, model: Model, tokens: Numeric, heads: Numeric) -> tuple[Term, Term]:
    """Joint down-projection of queries and latents, and the up-projection of the queries."""
    a, weights = model.architecture, model.precision.weights
    down = a.q_lora_rank.si + a.kv_lora_rank.si + a.qk_rope_dim.si
    query = heads * (a.qk_nope_dim.si + a.qk_rope_dim.si)
    depth = query_depth(model)
    return (
        gemm(die, "down_proj", tokens, down, a.hidden.si, precision=weights),
        gemm(die, "q_up", tokens, query, depth, precision=weights),
    )


def query_depth(model: Model) -> Numeric:
    """Depth of the query projection: the low rank, or the hidden width where there is none. [-]"""
    a = model.architecture
    return a.q_lora_rank.si + (a.q_lora_rank.si == 0) * a.hidden.si


def output(die: Die, model: Model, tokens: Numeric, heads: Numeric) -> Term:
    """Output projection of ``heads`` heads."""
    a = model.architecture
    depth = heads * a.v_head_dim.si
    return gemm(die, "o_proj", tokens, a.hidden.si, depth, precision=model.precision.weights)


def mtp_projection(die: Die, model: Model, tokens: Numeric) -> Term:
    """Hidden state and next embedding, side by side, back to the hidden width."""
    hidden = model.architecture.hidden.si
    return gemm(die, "mtp_projection", tokens, hidden, 2 * hidden, precision=model.precision.weights)


VECTOR_KERNELS = 6.0
"""Norm + quantise, query norm + quantise, latent norm + cache write, rotary embedding,
quantise before the output projection, residual addition. [-]"""


def vector_row_bytes(model: Model, heads: Numeric) -> Numeric:
    """Traffic of the `VECTOR_KERNELS` of one token, read and written once each. [B]"""
    a = model.architecture
    half, byte = ELEMENT_BYTES["bf16"], ELEMENT_BYTES[model.precision.activations]
    norm = a.hidden.si * (2 * half + byte)
    query = a.q_lora_rank.si * (half + byte)
    latent = (a.kv_lora_rank.si + a.qk_rope_dim.si) * 2 * half
    rotary = heads * a.qk_rope_dim.si * 2 * half
    quantise = a.heads.si * a.v_head_dim.si * (half + byte)
    residual = a.hidden.si * 3 * half
    return norm + query + latent + rotary + quantise + residual
