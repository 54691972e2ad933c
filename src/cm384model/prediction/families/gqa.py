"""Grouped-query and multi-head attention, in full or with a sliding window in some layers.

A die of a group of ``tp`` has its share of the query heads and the key-value heads they use;
with more dies than key-value heads each die holds a copy of one.
"""

from __future__ import annotations

import numpy as np

from cm384model.laws import attention as laws
from cm384model.laws import sparse_attention as sparse_laws
from cm384model.numeric import Numeric, ceil_div
from cm384model.prediction.families.interface import LayerTerms, Prompts, linear
from cm384model.prediction.operators import ELEMENT_BYTES, Die, attention, collective, vector
from cm384model.prediction.shapes import grouped
from cm384model.prediction.terms import Term, merged
from cm384model.specs.model import GroupedQuery, Model
from cm384model.specs.spec import Constants

SPLITS_PREFILL = True
SPLITS_UNASKED = True
EXCHANGED = ("attention_exchange", "head_exchange", "context_gather")


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
    """Projections, attention over the cache, output projection."""
    a, p = grouped(model), model.precision
    pooled, attended = tokens * tp, mean_context(a, kv_len)
    heads, width = a.heads.si / tp, a.head_dim.si
    flop = laws.attention_decode_flop(pooled, attended, heads=heads, head_dim=width)
    moved = laws.attention_decode_bytes(
        requests * tp,
        pooled,
        attended,
        heads=heads,
        kv_heads=kv_heads_per_die(a, tp),
        head_dim=width,
        kv_bytes=ELEMENT_BYTES[kv_precision],
        activation_bytes=ELEMENT_BYTES[p.attention],
    )
    terms = [
        qkv(die, model, pooled, tp),
        attention(die, "attention_core", flop, moved, kv_len, constants_name="gqa_decode"),
        output(die, model, pooled, tp),
        vector_work(die, model, tokens, tp, vector_efficiency),
    ]
    return [*terms, *weight_exchange(die, model, tokens, tp)]


def prefill_terms(die: Die, model: Model, prompts: Prompts, constants: Constants) -> LayerTerms:
    """Projections of the own tokens, attention of the own heads over whole prompts, output projection.

    Where the dies of an instance share prompts, queries, keys and values of all tokens go to
    the die that has their heads, and the head outputs come back.
    """
    a, half = grouped(model), ELEMENT_BYTES["bf16"]
    tokens, tp, together = prompts.tokens, prompts.tp, prompts.together
    pooled, whole = tokens * tp, tokens * together * prompts.cp / (1 - prompts.reuse)
    heads, kv_heads, width = ceil_div(a.heads.si, together), kv_heads_per_die(a, together), a.head_dim.si
    widths = {"heads": heads, "head_dim": width}
    flop = prefill_flop(a, whole, prompts, **widths) / prompts.cp
    moved = laws.attention_prefill_bytes(
        whole, heads=heads / prompts.cp, kv_heads=kv_heads, head_dim=width, activation_bytes=half
    )
    sharers = np.maximum(prompts.ranks / tp, 1)
    sent = pooled * sharers * (heads + 2 * kv_heads) * width * half
    returned = pooled * sharers * heads * width * half
    exchange = merged(
        "head_exchange",
        collective(die, "all_to_all", "heads_out", sent, sharers),
        collective(die, "all_to_all", "heads_back", returned, sharers),
    )
    terms = [
        qkv(die, model, pooled, tp),
        attention(die, "attention_core", flop, moved, prompts.prompt_len, constants_name="gqa_prefill"),
        output(die, model, pooled, tp),
        vector_work(die, model, tokens, tp, constants.vector_efficiency.si),
        *([exchange] if prompts.shared else []),
        *([context_gather(die, model, prompts)] if prompts.gathers else []),
        *weight_exchange(die, model, tokens, tp),
    ]
    return LayerTerms(terms, EXCHANGED)


def prefill_flop(
    shapes: GroupedQuery, whole: Numeric, prompts: Prompts, *, heads: Numeric, head_dim: Numeric
) -> Numeric:
    """Arithmetic of the computed tokens over all positions before them, layers with a window apart. [FLOP]"""
    length, cached = prompts.prompt_len, prompts.prompt_len * prompts.reuse
    full = laws.attention_prefill_flop(whole, length, heads=heads, head_dim=head_dim)
    full = full - laws.attention_prefill_flop(whole * prompts.reuse, cached, heads=heads, head_dim=head_dim)
    if shapes.window is None:
        return full
    window, share = shapes.window.si, window_share(shapes)
    pairs = sparse_laws.attended_pairs(length, window) - sparse_laws.attended_pairs(cached, window)
    near = laws.attention_decode_flop(whole, pairs / length, heads=heads, head_dim=head_dim)
    return (1 - share) * full + share * near


def context_gather(die: Die, model: Model, prompts: Prompts) -> Term:
    """Keys and values of the own heads, from all parts of the sequence."""
    a, tp = grouped(model), prompts.tp
    per_token = 2 * kv_heads_per_die(a, tp) * a.head_dim.si * ELEMENT_BYTES["bf16"]
    return collective(die, "all_gather", "context_gather", prompts.tokens * tp * per_token, prompts.cp)


def qkv(die: Die, model: Model, tokens: Numeric, tp: Numeric) -> Term:
    """Queries of the own heads, keys and values of their groups."""
    a = grouped(model)
    columns = (a.heads.si / tp + 2 * kv_heads_per_die(a, tp)) * a.head_dim.si
    return linear(die, model, "qkv_proj", tokens, columns, a.hidden.si)


def output(die: Die, model: Model, tokens: Numeric, tp: Numeric) -> Term:
    """Output projection of the own heads."""
    a = grouped(model)
    return linear(die, model, "o_proj", tokens, a.hidden.si, a.heads.si / tp * a.head_dim.si)


def vector_work(die: Die, model: Model, tokens: Numeric, tp: Numeric, efficiency: Numeric) -> Term:
    """The streaming work of one token: `vector_row_bytes`."""
    return vector(
        die, "attention_vector", tokens, vector_row_bytes(model, tp), VECTOR_KERNELS, efficiency=efficiency
    )


VECTOR_KERNELS = 5.0
"""Norm + quantise, query and key norm with rotary embedding, cache write, quantise before the
output projection, residual addition. [-]"""


def vector_row_bytes(model: Model, tp: Numeric) -> Numeric:
    """Traffic of the `VECTOR_KERNELS` of one own token, read and written once each. [B]

    A die works on its heads of the tokens of the whole group, so only copied key-value heads cost more.
    """
    a = grouped(model)
    half, byte = ELEMENT_BYTES["bf16"], ELEMENT_BYTES[model.precision.activations]
    kv_heads = kv_heads_per_die(a, tp) * tp
    norm = a.hidden.si * (2 * half + byte)
    rotary = (a.heads.si + kv_heads) * a.head_dim.si * 2 * half
    cache = 2 * kv_heads * a.head_dim.si * 2 * half
    quantise = a.heads.si * a.head_dim.si * (half + byte)
    residual = a.hidden.si * 3 * half
    return norm + rotary + cache + quantise + residual


def weight_exchange(die: Die, model: Model, tokens: Numeric, tp: Numeric) -> list[Term]:
    """Tokens to all dies that share the weights, partial sums back; nothing for a die alone."""
    if np.all(np.equal(tp, 1)):
        return []
    message = tokens * grouped(model).hidden.si * ELEMENT_BYTES["bf16"]
    return [
        merged(
            "attention_exchange",
            collective(die, "all_gather", "token_gather", message, tp),
            collective(die, "reduce_scatter", "sum_scatter", message, tp),
        )
    ]


def kv_heads_per_die(shapes: GroupedQuery, tp: Numeric) -> Numeric:
    """Key-value heads on a die: a share of them, and never less than one. [-]"""
    return ceil_div(shapes.kv_heads.si, tp)


def window_share(shapes: GroupedQuery) -> Numeric:
    """Part of the layers that attend to a window only. [-]"""
    return 0.0 if shapes.window_layers is None else shapes.window_layers.si / shapes.layers.si


def mean_context(shapes: GroupedQuery, kv_len: Numeric) -> Numeric:
    """Positions that a layer keeps and attends to in decode, mean over the layers. [-]"""
    if shapes.window is None:
        return kv_len
    share = window_share(shapes)
    return (1 - share) * kv_len + share * np.minimum(kv_len, shapes.window.si)


def kv_bytes_per_token(model: Model, *, kv_len: Numeric, precision: str, tp: Numeric) -> Numeric:
    """A key and a value of every key-value head of the die; less where a window forgets. [B/tokens]"""
    a = grouped(model)
    per_position = laws.kv_cache_bytes_per_token_gqa(
        1.0, kv_heads=kv_heads_per_die(a, tp), head_dim=a.head_dim.si, kv_bytes=ELEMENT_BYTES[precision]
    )
    return per_position if a.window is None else per_position * mean_context(a, kv_len) / kv_len


def weight_bytes(model: Model, tp: Numeric) -> Numeric:
    """The projections of the own heads and of their key-value heads. [B]"""
    a = grouped(model)
    heads = 2 * a.heads.si / tp + 2 * kv_heads_per_die(a, tp)
    return a.hidden.si * heads * a.head_dim.si * ELEMENT_BYTES[model.precision.weights]


def parameters(model: Model) -> Numeric:
    """Weights of one block. [-]"""
    a = grouped(model)
    return a.hidden.si * (2 * a.heads.si + 2 * a.kv_heads.si) * a.head_dim.si


def row_width(model: Model) -> Numeric:
    """Queries, keys and values. [-]"""
    a = grouped(model)
    return (a.heads.si + 2 * a.kv_heads.si) * a.head_dim.si


def prefill_buffers(model: Model, prompts: Prompts) -> dict[str, Numeric]:
    """Gathered tokens of a weight group; queries, keys and values of the own heads. [B]"""
    a, half = grouped(model), ELEMENT_BYTES["bf16"]
    together = prompts.together
    own = (ceil_div(a.heads.si, together) + 2 * kv_heads_per_die(a, together)) * a.head_dim.si
    buffers = {
        "token_gather": (prompts.tp - 1) * prompts.tokens * a.hidden.si * half,
        "head_exchange": together * prompts.tokens * own * half,
    }
    if prompts.gathers:
        keys = 2 * kv_heads_per_die(a, prompts.tp) * a.head_dim.si * half
        buffers["context_gather"] = (prompts.cp - 1) * prompts.tp * prompts.tokens * keys
    return buffers


def sizes(model: Model) -> dict[str, float]:
    """Operand sizes for single operators. [-]"""
    a = grouped(model)
    names = {"heads": a.heads, "kv_heads": a.kv_heads, "head_dim": a.head_dim}
    return {name: float(quantity.si) for name, quantity in names.items()}
