"""The memory ledger of one die."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cm384model.laws import memory as laws
from cm384model.laws.attention import kv_cache_bytes_per_token_mla
from cm384model.numeric import Numeric
from cm384model.prediction.operators import ELEMENT_BYTES
from cm384model.prediction.placement import Placement
from cm384model.prediction.system import System

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
    system: System, placement: Placement, *, drafting: Numeric, head_ranks: Numeric, tp: Numeric = 1.0
) -> dict[str, Numeric]:
    """Weights of one die by part. [B]"""
    a, p = system.model.architecture, system.model.precision
    byte = ELEMENT_BYTES[p.weights]
    hidden, heads = a.hidden.si, a.heads.si
    down = hidden * (a.q_lora_rank.si + a.kv_lora_rank.si + a.qk_rope_dim.si)
    query = a.q_lora_rank.si * heads * (a.qk_nope_dim.si + a.qk_rope_dim.si)
    output = heads * a.v_head_dim.si * hidden
    latent_up = a.kv_lora_rank.si * heads * (a.qk_nope_dim.si + a.v_head_dim.si)
    split = (query + output) * byte + latent_up * ELEMENT_BYTES[p.attention]
    attention = down * byte + split / tp
    expert = 3 * hidden * a.moe_intermediate.si * byte
    on_every_die = 1 - placement.dedicated
    layers = a.layers.si + drafting * a.mtp_layers.si
    moe_layers = layers - a.dense_layers.si
    vocabulary = a.vocab.si * hidden
    return {
        "attention": layers * attention,
        "routed_experts": moe_layers * placement.slots * expert,
        "shared_experts": moe_layers * on_every_die * a.shared_experts.si * expert,
        "router": moe_layers * hidden * a.routed_experts.si * ELEMENT_BYTES["bf16"],
        "dense_layers": a.dense_layers.si * 3 * hidden * a.dense_intermediate.si * byte,
        "mtp_projection": drafting * a.mtp_layers.si * 2 * hidden * hidden * byte,
        "embedding": vocabulary * ELEMENT_BYTES[p.embedding],
        "lm_head": vocabulary * ELEMENT_BYTES[p.lm_head] / head_ranks,
    }


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
        bytes_per_token_layer=kv_bytes_per_token_layer(system),
    )
    copies = np.minimum(system.model.architecture.top_k.si, placement.slots)
    buffers = {"exchange_buffers": exchange_buffers(system, placement.ep, tokens, copies)}
    return ledger(system, weights, kv_cache, buffers, tokens)


def prefill_memory(system: System, d: PrefillDeployment, placement: Placement, tokens: Numeric) -> Memory:
    """Ledger of a prefill die: weights, KV cache of the batch until it is sent, buffers, reserve."""
    weights = weight_parts(system, placement, drafting=1.0, head_ranks=system.engine.layout.lm_head_tp.si)
    a = system.model.architecture
    kv_cache = laws.kv_cache_bytes(
        1.0, tokens, a.layers.si, bytes_per_token_layer=kv_bytes_per_token_layer(system)
    )
    latents = (a.q_lora_rank.si + a.kv_lora_rank.si + a.qk_rope_dim.si) * ELEMENT_BYTES["bf16"]
    tokens_at_once = tokens / d.microbatches
    buffers = {
        "exchange_buffers": exchange_buffers(system, 1.0, tokens_at_once * d.imbalance, a.top_k.si),
        "latent_gather": attention_ranks(system, placement.ep) * tokens_at_once * latents,
    }
    return ledger(system, weights, kv_cache, buffers, tokens_at_once)


def attention_ranks(system: System, ep: Numeric) -> Numeric:
    """Dies that share the heads of a prompt in prefill: all of an instance, but no more than heads. [-]"""
    shared = system.engine.prefill_attention == "sp-tp-sp"
    return np.minimum(ep, system.model.architecture.heads.si) if shared else 1.0


def kv_bytes_per_token_layer(system: System) -> Numeric:
    """Bytes of the cache of one token in one layer. [B/tokens]"""
    a = system.model.architecture
    return kv_cache_bytes_per_token_mla(
        1.0,
        latent_dim=a.kv_lora_rank.si,
        rope_dim=a.qk_rope_dim.si,
        kv_bytes=ELEMENT_BYTES[system.kv_precision],
    )


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
    a = system.model.architecture
    widest = a.heads.si * (a.kv_lora_rank.si + a.v_head_dim.si)
    activations = {"activations": tokens * (4 * a.hidden.si + widest) * ELEMENT_BYTES["bf16"]}
    capacity = system.hardware.die.hbm_capacity.si
    reserve = capacity * system.engine.memory.reserve_share.si + system.engine.memory.runtime.si
    total_weights = sum(weights.values())
    total_buffers = sum((buffers | activations).values())
    free = laws.free_bytes(capacity, total_weights, kv_cache, total_buffers, reserve)
    return Memory(
        capacity, total_weights, kv_cache, total_buffers, reserve, free, weights | buffers | activations
    )
