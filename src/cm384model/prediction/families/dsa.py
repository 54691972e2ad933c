"""DeepSeek sparse attention: latent attention over the positions that a lightning indexer picks.

The indexer scores every cached position with a few small heads, so its cost grows with the
context; the attention core reads the top-k picks alone, so its cost is flat past them.
"""

from __future__ import annotations

import numpy as np

from cm384model.laws import mla as mla_laws
from cm384model.laws import sparse_attention as sparse_laws
from cm384model.laws.roofline import busy_share
from cm384model.numeric import Numeric
from cm384model.prediction.families import mla
from cm384model.prediction.families.interface import LayerTerms, Prompts, linear
from cm384model.prediction.families.mla import row_width, sizes
from cm384model.prediction.operators import ELEMENT_BYTES, Die, attention, collective, operator
from cm384model.prediction.shapes import sparse
from cm384model.prediction.terms import Term, merged
from cm384model.specs.model import Latent, Model, SparseLatent
from cm384model.specs.spec import Constants

__all__ = [
    "SPLITS_PREFILL",
    "SPLITS_UNASKED",
    "decode_terms",
    "kv_bytes_per_token",
    "parameters",
    "prefill_buffers",
    "prefill_terms",
    "row_width",
    "sizes",
    "weight_bytes",
]

SPLITS_PREFILL = False
SPLITS_UNASKED = False


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
    """Indexer over the whole cache, absorbed attention over the picks.

    Every query token has picks of its own, so nothing is read once for several tokens. A die
    of a group of ``tp`` runs the whole indexer for the tokens of all.
    """
    a = sparse(model)
    pooled, picks = tokens * tp, np.minimum(kv_len, a.index_top_k.si)
    core = core_term(die, model, pooled, picks, a.heads.si / tp, kv_precision)
    index = indexer(
        die, model, pooled, pooled * kv_len, requests * tp * kv_len, kv_len, precision=kv_precision
    )
    first = mla.prolog(die, model, tokens, tp)
    return [first, index, core, *mla.epilog(die, model, tokens, tp, vector_efficiency)]


def core_term(
    die: Die, model: Model, tokens: Numeric, positions: Numeric, heads: Numeric, precision: str
) -> Term:
    """Absorbed attention of ``tokens`` over so many picked ``positions`` each."""
    return sparse_core(die, sparse(model), tokens, positions, heads, precision, model.precision.attention)


@operator
def sparse_core(
    die: Die,
    shapes: Latent,
    tokens: Numeric,
    positions: Numeric,
    heads: Numeric,
    cache: str,
    activations: str,
) -> Term:
    """Absorbed attention over picks that are gathered one by one, with these precisions.

    A core works on one query token, so a die with fewer tokens than cores has idle ones.
    """
    widths = {"heads": heads, "latent_dim": shapes.kv_lora_rank.si, "rope_dim": shapes.qk_rope_dim.si}
    flop = mla_laws.mla_decode_flop(tokens, positions, **widths)
    moved = mla_laws.mla_decode_bytes(
        tokens,
        tokens,
        positions,
        **widths,
        kv_bytes=ELEMENT_BYTES[cache],
        activation_bytes=ELEMENT_BYTES[activations],
    )
    busy = busy_share(tokens, die.hardware.die.aic_cores.si * die.cube_share)
    return attention(
        die, "attention_core", flop, moved, positions, constants_name="sparse_attention", busy=busy
    )


def indexer(
    die: Die,
    model: Model,
    tokens: Numeric,
    pairs: Numeric,
    keys: Numeric,
    length: Numeric,
    *,
    precision: str,
) -> Term:
    """Projections and scores of the indexer, in the layers that own one.

    ``tokens`` are scored against ``pairs`` positions in total, whose ``keys`` are read once.
    """
    a = sparse(model)
    widths = {"heads": a.index_heads.si, "index_dim": a.index_dim.si}
    precisions = {"cache": precision, "activations": model.precision.attention}
    whole = merged(
        "indexer",
        linear(die, model, "index_q", tokens, a.index_heads.si * a.index_dim.si, mla.query_depth(model)),
        linear(die, model, "index_k", tokens, a.index_dim.si + a.index_heads.si, a.hidden.si),
        index_scores(die, tokens, pairs, keys, length, **widths, **precisions),
    )
    return whole.times(index_share(a))


@operator
def index_scores(
    die: Die,
    tokens: Numeric,
    pairs: Numeric,
    keys: Numeric,
    length: Numeric,
    *,
    heads: Numeric,
    index_dim: Numeric,
    cache: str,
    activations: str,
) -> Term:
    """Scores of ``tokens`` against ``pairs`` positions in total, and the choice of the best.

    At the BF16 rate in every precision: the fitted efficiency is of the whole kernel, and most of
    it goes to the sum over heads and the choice, which the vector cores do.
    """
    widths = {"heads": heads, "index_dim": index_dim}
    flop = sparse_laws.index_flop(pairs, **widths)
    moved = sparse_laws.index_bytes(
        tokens, keys, **widths, kv_bytes=ELEMENT_BYTES[cache], activation_bytes=ELEMENT_BYTES[activations]
    )
    return attention(die, "index_scores", flop, moved, length, constants_name="lightning_indexer")


def index_share(shapes: SparseLatent) -> Numeric:
    """Part of the layers that own an indexer. [-]"""
    return shapes.index_layers.si / shapes.layers.si


def prefill_terms(die: Die, model: Model, prompts: Prompts, constants: Constants) -> LayerTerms:
    """Context-parallel: a die has all heads of its own tokens, and gathers the keys of the others.

    Attention is absorbed and over the picks at every length, as Ascend engines run it; a masked
    naive form would be quicker for prompts of a few thousand tokens.
    """
    a, tokens, heads = sparse(model), prompts.tokens, sparse(model).heads.si
    length, cached = prompts.prompt_len, prompts.prompt_len * prompts.reuse
    pairs, top_k = sparse_laws.attended_pairs, a.index_top_k.si
    picked = pairs(length, top_k) - pairs(cached, top_k)
    before = pairs(length, length) - pairs(cached, cached)
    computed, precision = length - cached, model.precision.kv
    keys = tokens / (1 - prompts.reuse)
    terms = [
        mla.prolog(die, model, tokens, 1.0),
        indexer(die, model, tokens, tokens * before / computed, keys, length, precision=precision),
        core_term(die, model, tokens, picked / computed, heads, precision),
        *mla.epilog(die, model, tokens, 1.0, constants.vector_efficiency.si),
    ]
    if not prompts.shared and not prompts.gathers:
        return LayerTerms(terms)
    message = tokens * gathered(a) * ELEMENT_BYTES["bf16"]
    return LayerTerms(
        [*terms, collective(die, "all_gather", "latent_gather", message, parts(prompts))], ("latent_gather",)
    )


def parts(prompts: Prompts) -> Numeric:
    """Dies that have a part of every prompt. [-]"""
    return np.maximum(prompts.ranks, prompts.cp)


def gathered(shapes: SparseLatent) -> Numeric:
    """Numbers that every other token of a prompt needs of one: latent, rotary key, index key. [-]"""
    return shapes.kv_lora_rank.si + shapes.qk_rope_dim.si + shapes.index_dim.si


def kv_bytes_per_token(model: Model, *, kv_len: Numeric, precision: str, tp: Numeric) -> Numeric:
    """The latent, the rotary key, and an index key where the layer owns an indexer. [B/tokens]"""
    a = sparse(model)
    attention_part = mla.kv_bytes_per_token(model, kv_len=kv_len, precision=precision, tp=tp)
    return attention_part + index_share(a) * a.index_dim.si * ELEMENT_BYTES[precision]


def weight_bytes(model: Model, tp: Numeric) -> Numeric:
    """Latent attention, and the indexer whole on every die. [B]"""
    return mla.weight_bytes(model, tp) + index_parameters(model) * ELEMENT_BYTES[model.precision.weights]


def index_parameters(model: Model) -> Numeric:
    """Weights of the indexer of one layer, mean over the layers. [-]"""
    a = sparse(model)
    query = mla.query_depth(model) * a.index_heads.si * a.index_dim.si
    return index_share(a) * (query + a.hidden.si * (a.index_dim.si + a.index_heads.si))


def parameters(model: Model) -> Numeric:
    """Weights of one block. [-]"""
    return mla.parameters(model) + index_parameters(model)


def prefill_buffers(model: Model, prompts: Prompts) -> dict[str, Numeric]:
    """The gathered latents and index keys. [B]"""
    per_token = gathered(sparse(model)) * ELEMENT_BYTES["bf16"]
    return {"latent_gather": parts(prompts) * prompts.tokens * per_token}
