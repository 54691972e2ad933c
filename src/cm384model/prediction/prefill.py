"""One batch of a prefill instance, as named terms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cm384model.laws import attention as attention_laws
from cm384model.laws.caching import cache_load_time
from cm384model.laws.overlap import overlapped_time
from cm384model.numeric import Numeric, ceil_div
from cm384model.prediction import mla, moe
from cm384model.prediction.memory import (
    Memory,
    attention_ranks,
    kv_bytes_per_token_layer,
    prefill_memory,
)
from cm384model.prediction.operators import ELEMENT_BYTES, Die, attention, collective, gemm, operator, vector
from cm384model.prediction.placement import Placement, place_experts
from cm384model.prediction.system import System
from cm384model.prediction.terms import Term, merged, overhead_term, total_time


@dataclass(frozen=True)
class PrefillDeployment:
    """One prefill instance and its batch; every field is a number or an array that broadcasts.

    Attributes
    ----------
    ep : numeric
        Dies of the instance. [-]
    tokens_per_npu : numeric
        Prompt tokens that one NPU contributes to a batch. [tokens]
    prompt_len : numeric
        Tokens of one prompt. [tokens]
    microbatches : numeric
        1 runs operators one after the other, 2 hides communication behind the compute of
        the other half. [-]
    imbalance : numeric
        Load of the busiest die over the mean. [-]
    redundant_experts : numeric
        Extra copies of popular experts. [-]
    reuse : numeric
        Share of the prompt tokens whose cache is fetched from the pool. [-]
    plane : str
        Network between pool and dies: ``ub`` or ``vpc``.
    """

    ep: Numeric
    tokens_per_npu: Numeric
    prompt_len: Numeric
    microbatches: Numeric
    imbalance: Numeric
    redundant_experts: Numeric
    reuse: Numeric = 0.0
    plane: str = "ub"


@dataclass(frozen=True)
class PrefillBatch:
    """What a prefill batch takes and holds.

    Attributes
    ----------
    batch_time : numeric
        Time from the first layer to the first tokens of all prompts. [s]
    throughput : numeric
        Input tokens per second and NPU. [tokens/s]
    layer_time : numeric
        One MoE layer, all microbatches. [s]
    hidden_time : numeric
        Communication that overlap hides: sum of terms - hidden_time = batch_time. [s]
    terms : list of Term
        Parts of one batch.
    memory : Memory
        Ledger of one die.
    placement : Placement
        Where the experts are.
    """

    batch_time: Numeric
    throughput: Numeric
    layer_time: Numeric
    hidden_time: Numeric
    terms: list[Term]
    memory: Memory
    placement: Placement


def prefill_batch(system: System, deployment: PrefillDeployment) -> PrefillBatch:
    """Predict one prefill batch.

    Attention is sequence-parallel, head-parallel and sequence-parallel again (SP-TP-SP) over
    the dies of the instance: latents are gathered before the heads work and head outputs
    are exchanged after. With two microbatches a share of the communication of one half
    hides behind the compute of the other.
    """
    d, engine, a = deployment, system.engine, system.model.architecture
    placement = place_experts(system.hardware, system.model, d.ep, d.redundant_experts)
    tokens_per_die = d.tokens_per_npu / system.hardware.npu.dies.si
    computed = tokens_per_die * (1 - d.reuse)
    tokens = computed / d.microbatches

    compute, exchanged = _attention_terms(system, d, tokens)
    moe_compute, moe_exchanged = _expert_terms(system, d, placement, tokens)
    moe_layers = a.layers.si - a.dense_layers.si
    per_layer = [*compute, *exchanged, *moe_compute, *moe_exchanged]

    overlap = (d.microbatches - 1) * engine.constants.prefill_overlap.si
    busy, waiting = total_time([*compute, *moe_compute]), total_time([*exchanged, *moe_exchanged])
    layer_time = d.microbatches * overlapped_time(busy, waiting, overlap=overlap)
    hidden = moe_layers * d.microbatches * overlap * np.minimum(busy, waiting)

    ffn = moe.feed_forward(
        _compute_die(system),
        system.model,
        tokens,
        a.dense_intermediate.si,
        groups=1.0,
        vector_efficiency=engine.constants.vector_efficiency.si,
    )
    dense = merged("dense_layers", *compute, *exchanged, ffn)
    overhead = engine.constants.step_overhead.si
    terms = [
        *(term.times(moe_layers * d.microbatches) for term in per_layer),
        dense.times(a.dense_layers.si * d.microbatches),
        _head(system, tokens_per_die / d.prompt_len),
        cache_load(system.die(1.0, 1.0), system, tokens_per_die * d.reuse, d.plane),
        overhead_term("step_overhead", overhead, engine.constants.step_overhead),
    ]
    batch_time = total_time(terms) - hidden
    return PrefillBatch(
        batch_time=batch_time,
        throughput=d.tokens_per_npu / batch_time,
        layer_time=layer_time,
        hidden_time=hidden,
        terms=terms,
        memory=prefill_memory(system, d, placement, tokens_per_die),
        placement=placement,
    )


def _attention_terms(system: System, d: PrefillDeployment, tokens: Numeric) -> tuple[list[Term], list[Term]]:
    """Compute and communication of naive MLA of one layer and microbatch.

    ``tokens`` are computed; keys and values of the cached ones are expanded from their latents
    again, and the computed ones attend to all of them.
    """
    a, p = system.model.architecture, system.model.precision
    die = _compute_die(system)
    half = ELEMENT_BYTES["bf16"]
    ranks = attention_ranks(system, d.ep)
    heads = ceil_div(a.heads.si, ranks)
    gathered = tokens * ranks
    whole = gathered / (1 - d.reuse)
    qk_nope, v = a.qk_nope_dim.si, a.v_head_dim.si
    qk = qk_nope + a.qk_rope_dim.si
    widths = {"heads": heads, "qk_dim": qk, "v_dim": v}
    cached = attention_laws.mla_prefill_flop(whole * d.reuse, d.prompt_len * d.reuse, **widths)
    flop = attention_laws.mla_prefill_flop(whole, d.prompt_len, **widths) - cached
    moved = attention_laws.mla_prefill_bytes(whole, **widths, activation_bytes=half)
    latents = a.q_lora_rank.si + a.kv_lora_rank.si + a.qk_rope_dim.si
    compute = [
        merged(
            "mla_prolog",
            gemm(die, "down_proj", tokens, latents, a.hidden.si, precision=p.weights),
            gemm(die, "q_up", gathered, heads * qk, mla.query_depth(system.model), precision=p.weights),
            gemm(die, "kv_up", whole, heads * (qk_nope + v), a.kv_lora_rank.si, precision=p.attention),
        ),
        attention(die, "attention_core", flop, moved, d.prompt_len, constants_name="mla_prefill"),
        mla.output(die, system.model, tokens, a.heads.si),
        vector(
            die,
            "attention_vector",
            tokens,
            mla.vector_row_bytes(system.model, a.heads.si),
            mla.VECTOR_KERNELS,
            efficiency=system.engine.constants.vector_efficiency.si,
        ),
    ]
    if system.engine.prefill_attention == "data-parallel":
        return compute, []
    exchanged = [
        collective(die, "all_gather", "latent_gather", tokens * latents * half, ranks),
        collective(die, "all_to_all", "head_exchange", tokens * a.heads.si * v * half, ranks),
    ]
    return compute, exchanged


def _expert_terms(
    system: System, d: PrefillDeployment, placement: Placement, tokens: Numeric
) -> tuple[list[Term], list[Term]]:
    """Compute and communication of the experts of one layer and microbatch."""
    gate, dispatch, experts, combine = moe.moe_terms(
        _compute_die(system),
        system.model,
        tokens,
        placement,
        imbalance=d.imbalance,
        library=system.engine.prefill_ep_library,
        message_scale_bytes=system.engine.constants.dispatch_scale_bytes.si,
        copies_limit=system.engine.layout.prefill_copies_limit.si,
        vector_efficiency=system.engine.constants.vector_efficiency.si,
    )
    return [gate, experts], [dispatch, combine]


def _compute_die(system: System) -> Die:
    """The cores that compute in prefill; the others, if any, move data."""
    return system.die(system.engine.layout.prefill_core_share.si, 1.0)


@operator
def cache_load(die: Die, system: System, tokens: Numeric, plane: str) -> Term:
    """Fetch of the cached tokens of one die from the pool, over UB or over the node's VPC card."""
    fabric, constants = die.hardware.fabric, system.engine.constants
    shared_card = fabric.vpc.bandwidth.si / die.hardware.dies_per_node
    bandwidth = fabric.ub.cpu_read.inter_node.bandwidth.si if plane == "ub" else shared_card
    layers = system.model.architecture.layers.si
    per_token = kv_bytes_per_token_layer(system)
    moved = tokens * layers * per_token
    time = cache_load_time(
        tokens,
        layers,
        per_token,
        block_tokens=constants.cache_block_tokens.si,
        block_latency=constants[f"cache_block_latency_{plane}"].si,
        bandwidth=bandwidth,
    )
    fetched = moved / bandwidth
    return Term("cache_load", time, {"bytes": moved, "fabric": fetched, "latency": time - fetched})


def _head(system: System, prompts: Numeric) -> Term:
    """LM head on the last token of every prompt of a die."""
    a = system.model.architecture
    ranks = system.engine.layout.lm_head_tp.si
    columns, precision = a.vocab.si / ranks, system.model.precision.lm_head
    return gemm(system.die(1.0, 1.0), "lm_head", prompts * ranks, columns, a.hidden.si, precision=precision)
