"""The memory ledger of one die."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cm384model.laws import memory as laws
from cm384model.numeric import Numeric, ceil_div
from cm384model.prediction.families import attention_of, feed_forward_of
from cm384model.prediction.families.interface import Prompts
from cm384model.prediction.operators import ELEMENT_BYTES
from cm384model.prediction.placement import Placement
from cm384model.prediction.system import System
from cm384model.specs.model import Model

if TYPE_CHECKING:
    from cm384model.prediction.decode import DecodeDeployment
    from cm384model.prediction.prefill import PrefillDeployment


@dataclass(frozen=True)
class Memory:
    """Where the device memory of one die goes. [B]

    ``parts`` splits weights and buffers by what they hold.
    """

    capacity: Numeric
    weights: Numeric
    kv_cache: Numeric
    buffers: Numeric
    reserve: Numeric
    free: Numeric
    parts: dict[str, Numeric] = field(default_factory=dict)


def weight_parts(
    system: System,
    placement: Placement,
    *,
    drafting: Numeric,
    head_ranks: Numeric,
    tp: Numeric = 1.0,
    share: Numeric = 1.0,
) -> dict[str, Numeric]:
    """Weights of one die by part; it has a ``share`` of the layers, and both tables. [B]"""
    model, p = system.model, system.model.precision
    a, family = model.architecture, feed_forward_of(model)
    layers = a.layers.si + drafting * a.mtp_layers.si
    vocabulary = a.vocab.si * a.hidden.si
    projection = 2 * a.hidden.si * a.hidden.si * ELEMENT_BYTES[p.weights]
    head = 0.0 if a.tied_embeddings else vocabulary * ELEMENT_BYTES[p.lm_head] / head_ranks
    return {
        "attention": share * layers * family.blocks(model) * attention_of(model).weight_bytes(model, tp),
        **{name: share * size for name, size in family.weight_bytes(model, placement, layers, tp).items()},
        "mtp_projection": drafting * a.mtp_layers.si * projection,
        "embedding": vocabulary * ELEMENT_BYTES[p.embedding],
        "lm_head": head,
    }


ATTENTION_TP = (1.0, 2.0, 4.0, 8.0, 16.0)
USUAL_SHARE = 0.5
"""Of a die's memory, what weights that can be split take at most by default. [-]"""


def usual_attention_tp(system: System) -> float:
    """Fewest dies to share the split weights of a model so that half of the memory is left to the rest. [-]

    1 for a family whose attention is whole on every die unless asked.
    """
    model, family = system.model, attention_of(system.model)
    if not family.SPLITS_UNASKED:
        return 1.0
    ffn, heads = feed_forward_of(model), float(np.max(model.architecture.heads.si))
    limit = USUAL_SHARE * float(np.min(system.hardware.die.hbm_capacity.si))
    fitting = [tp for tp in ATTENTION_TP if heads % tp == 0]
    for tp in fitting:
        blocks = model.architecture.layers.si * ffn.blocks(model) * family.weight_bytes(model, tp)
        if np.max(blocks + ffn.split_bytes(model, tp)) <= limit:
            return tp
    return fitting[-1]


def decode_memory(system: System, d: DecodeDeployment, placement: Placement) -> Memory:
    """Ledger of a decode die: weights, KV cache of the requests in flight, buffers, reserve."""
    tokens = d.batch_per_die * (1 + d.draft_tokens)
    drafting = np.minimum(d.draft_tokens, 1)
    weights = weight_parts(
        system,
        placement,
        drafting=drafting,
        head_ranks=system.engine.layout.lm_head_tp.si,
        tp=d.attention_tp,
    )
    layers = system.model.architecture.layers.si + drafting * system.model.architecture.mtp_layers.si
    kv_cache = laws.kv_cache_bytes(
        d.batch_per_die * d.attention_tp,
        d.kv_len,
        layers,
        bytes_per_token_layer=kv_bytes_per_token_layer(system, d.kv_len, d.attention_tp),
    )
    copies = feed_forward_of(system.model).copies(system.model, placement.slots)
    buffers = {"exchange_buffers": exchange_buffers(system, d.ep, tokens, copies)}
    return ledger(system, weights, kv_cache, buffers, tokens)


def prefill_memory(system: System, d: PrefillDeployment, placement: Placement, tokens: Numeric) -> Memory:
    """Ledger of a prefill die: weights, KV cache of the batch until it is sent, buffers, reserve."""
    model: Model = system.model
    tp: Numeric = d.attention_tp
    weights = weight_parts(
        system,
        placement,
        drafting=1.0,
        head_ranks=system.engine.layout.lm_head_tp.si,
        tp=tp,
        share=stage_share(system, d.pipeline_stages),
    )
    kv_cache = laws.kv_cache_bytes(
        1.0 * tp,
        tokens,
        model.architecture.layers.si,
        bytes_per_token_layer=kv_bytes_per_token_layer(system, d.prompt_len, tp),
    )
    tokens_at_once = tokens * d.pipeline_stages / d.chunks / d.microbatches
    copies = feed_forward_of(model).copies(model, np.inf)
    received = tokens_at_once * placement.busiest(d.imbalance)
    buffers = {
        "exchange_buffers": exchange_buffers(system, 1.0, received, copies),
        **attention_of(model).prefill_buffers(model, prompts_of(system, d, tokens_at_once)),
    }
    return ledger(system, weights, kv_cache, buffers, tokens_at_once)


def stage_share(system: System, stages: Numeric) -> Numeric:
    """Share of the layers that the stage with most of them has. [-]"""
    layers = system.model.architecture.layers.si
    return 1.0 if np.all(np.equal(stages, 1)) else ceil_div(layers, stages) / layers


def prompts_of(system: System, d: PrefillDeployment, tokens: Numeric) -> Prompts:
    """How ``tokens`` of each die meet the attention of a layer."""
    own = np.equal(d.context_parallel, 0)
    shared = system.engine.prefill_attention == "sp-tp-sp" and bool(np.any(own))
    ranks = attention_ranks(system, d.ep / d.pipeline_stages)
    if not np.all(own):
        ranks = np.where(own, ranks, 1.0)
    parts = np.maximum(d.context_parallel, 1.0)
    return Prompts(tokens, d.prompt_len, d.reuse, shared, ranks, d.attention_tp, parts)


def prompt_dies(system: System, d: PrefillDeployment) -> Numeric:
    """Dies of an instance that share a prompt, in all stages. [-]"""
    tp: Numeric = 1.0 if d.attention_tp is None else d.attention_tp
    engine = attention_ranks(system, d.ep / d.pipeline_stages)
    shared = np.where(np.equal(d.context_parallel, 0), np.maximum(engine, tp), tp * d.context_parallel)
    return shared * d.pipeline_stages


def attention_ranks(system: System, dies: Numeric) -> Numeric:
    """Dies that share the heads of a prompt by the engine: all of a stage, no more than heads. [-]"""
    shared = system.engine.prefill_attention == "sp-tp-sp"
    return np.minimum(dies, system.model.architecture.heads.si) if shared else 1.0


def kv_bytes_per_token_layer(system: System, kv_len: Numeric = 1.0, tp: Numeric = 1.0) -> Numeric:
    """Bytes of the cache of one token in one layer on one of ``tp`` dies. [B/tokens]

    The mean over a context of ``kv_len``, which matters where some layers forget.
    """
    model = system.model
    block = attention_of(model).kv_bytes_per_token(model, kv_len=kv_len, precision=system.kv_precision, tp=tp)
    return feed_forward_of(model).blocks(model) * block


def exchange_buffers(system: System, ranks: Numeric, tokens: Numeric, copies: Numeric) -> Numeric:
    """Receive buffers of dispatch and combine. [B]

    Decode allocates for the worst case, all tokens of all ranks; prefill, where that would be
    tens of gigabytes, for the rows that arrive (``ranks`` 1).
    """
    a, constants = system.model.architecture, system.engine.constants
    activation = a.hidden.si * ELEMENT_BYTES[system.model.precision.activations]
    return laws.exchange_buffer_bytes(
        ranks,
        tokens,
        copies=copies,
        dispatch_message_bytes=activation + constants.dispatch_scale_bytes.si,
        combine_message_bytes=a.hidden.si * ELEMENT_BYTES["bf16"],
    )


def ledger(
    system: System,
    weights: dict[str, Numeric],
    kv_cache: Numeric,
    buffers: dict[str, Numeric],
    tokens: Numeric,
) -> Memory:
    """Close the ledger: activations of ``tokens``, the engine's reserve, and what is left."""
    model, hidden = system.model, system.model.architecture.hidden.si
    widest = np.maximum(attention_of(model).row_width(model), feed_forward_of(model).row_width(model))
    activations = {"activations": tokens * (4 * hidden + widest) * ELEMENT_BYTES["bf16"]}
    capacity = system.hardware.die.hbm_capacity.si
    reserve = capacity * system.engine.memory.reserve_share.si + system.engine.memory.runtime.si
    total_weights = sum(weights.values())
    total_buffers = sum((buffers | activations).values())
    free = laws.free_bytes(capacity, total_weights, kv_cache, total_buffers, reserve)
    return Memory(
        capacity, total_weights, kv_cache, total_buffers, reserve, free, weights | buffers | activations
    )
