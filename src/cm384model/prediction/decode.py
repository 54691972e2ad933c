"""One iteration of a decode instance, as named terms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cm384model.laws.mtp import expected_tokens, time_per_output_token
from cm384model.laws.overlap import overlapped_time
from cm384model.numeric import Numeric
from cm384model.prediction import mla, moe
from cm384model.prediction.memory import Memory, decode_memory
from cm384model.prediction.operators import ELEMENT_BYTES, collective, gemm
from cm384model.prediction.placement import Placement, place_experts
from cm384model.prediction.system import System
from cm384model.prediction.terms import Term, merged, overhead_term, total_time


@dataclass(frozen=True)
class DecodeDeployment:
    """One decode instance and its load; every field is a number or an array that broadcasts.

    Attributes
    ----------
    ep : numeric
        Dies of the instance; attention is data-parallel over them. [-]
    batch_per_die : numeric
        Requests that each die decodes at once. [-]
    kv_len : numeric
        Mean context of a request. [tokens]
    microbatches : numeric
        1 runs a layer's operators one after the other, 2 interleaves two halves of the
        batch on two streams. [-]
    attention_aic_share : numeric
        Share of the cores that the attention stream gets; no effect with one microbatch. [-]
    draft_tokens : numeric
        Draft tokens verified per iteration. [-]
    acceptance : numeric
        Probability that a draft is accepted. [-]
    imbalance : numeric
        Load of the busiest die over the mean. [-]
    redundant_experts : numeric
        Extra copies of popular experts. [-]
    attention_tp : numeric
        Dies that share the heads of their requests; 1 is data-parallel attention. [-]
    """

    ep: Numeric
    batch_per_die: Numeric
    kv_len: Numeric
    microbatches: Numeric
    attention_aic_share: Numeric
    draft_tokens: Numeric
    acceptance: Numeric
    imbalance: Numeric
    redundant_experts: Numeric
    attention_tp: Numeric = 1.0


@dataclass(frozen=True)
class DecodeStep:
    """What a decode iteration takes and holds.

    Attributes
    ----------
    tpot : numeric
        Time per output token after the first. [s]
    step_time : numeric
        Duration of one iteration. [s]
    layer_time : numeric
        One MoE layer, all microbatches. [s]
    attention_stream_time, expert_stream_time : numeric
        One microbatch of one MoE layer in the first and the second stream: attention and
        experts, or compute and communication, as the engine interleaves. [s]
    hidden_time : numeric
        Time of the terms that overlap hides: sum of terms - hidden_time = step_time. [s]
    throughput : numeric
        Output tokens per second and NPU. [tokens/s]
    tokens_per_step : numeric
        Expected tokens per iteration and request. [-]
    terms : list of Term
        Parts of one iteration.
    memory : Memory
        Ledger of one die.
    placement : Placement
        Where the experts are.
    """

    tpot: Numeric
    step_time: Numeric
    layer_time: Numeric
    attention_stream_time: Numeric
    expert_stream_time: Numeric
    hidden_time: Numeric
    throughput: Numeric
    tokens_per_step: Numeric
    terms: list[Term]
    memory: Memory
    placement: Placement


def decode_step(system: System, deployment: DecodeDeployment) -> DecodeStep:
    """Predict one decode iteration.

    A layer runs its attention part (projections, attention core) and its expert part (gate,
    dispatch, experts, combine). With two microbatches the parts form two streams on disjoint
    cores; the longer one sets the pace, and the streams meet once per microbatch.
    """
    d, engine = deployment, system.engine
    architecture = system.model.architecture
    placement = place_experts(system.hardware, system.model, d.ep, d.redundant_experts)
    tokens = d.batch_per_die * (1 + d.draft_tokens)

    layer = _moe_layer(system, d, placement, tokens)
    dense = _dense_layer(system, d, tokens)
    drafting = _draft_layers(system, d, placement, layer)
    head = _head(system, d.batch_per_die * (1 + d.draft_tokens))
    draft_head = _head(system, d.batch_per_die)

    moe_layers = architecture.layers.si - architecture.dense_layers.si
    constants = engine.constants
    overhead = constants.step_overhead.si + (1 + d.draft_tokens) * constants.graph_overhead.si
    terms = [
        *(term.times(moe_layers * d.microbatches) for term in layer.terms),
        overhead_term("sync", moe_layers * layer.sync, constants.stream_sync),
        dense.times(architecture.dense_layers.si),
        drafting,
        merged("lm_head", head, draft_head.times(d.draft_tokens)),
        overhead_term("step_overhead", overhead, constants.step_overhead, constants.graph_overhead),
    ]
    hidden = moe_layers * layer.hidden
    step_time = total_time(terms) - hidden
    tokens_per_step = expected_tokens(d.draft_tokens, d.acceptance)
    tpot = time_per_output_token(step_time, tokens_per_step)
    return DecodeStep(
        tpot=tpot,
        step_time=step_time,
        layer_time=layer.time,
        attention_stream_time=layer.attention_time,
        expert_stream_time=layer.expert_time,
        hidden_time=hidden,
        throughput=d.batch_per_die * system.hardware.npu.dies.si / tpot,
        tokens_per_step=tokens_per_step,
        terms=terms,
        memory=decode_memory(system, d, placement),
        placement=placement,
    )


@dataclass(frozen=True)
class _Layer:
    """One MoE layer: its terms per microbatch, and how the two streams combine."""

    terms: list[Term]
    attention_time: Numeric
    expert_time: Numeric
    sync: Numeric
    hidden: Numeric
    time: Numeric


def _moe_layer(system: System, d: DecodeDeployment, placement: Placement, tokens: Numeric) -> _Layer:
    constants = system.engine.constants
    streams = d.microbatches - 1
    split = system.engine.decode_streams == "attention-experts"
    attention_share = 1 - streams * (1 - d.attention_aic_share) if split else 1.0
    expert_share = 1 - streams * d.attention_aic_share if split else 1.0
    contention = 1 + constants.stream_contention.si * streams
    attention_terms = mla.decode_terms(
        system.die(attention_share, contention),
        system.model,
        d.batch_per_die / d.microbatches,
        tokens / d.microbatches,
        d.kv_len,
        tp=d.attention_tp,
        kv_precision=system.kv_precision,
        vector_efficiency=constants.vector_efficiency.si,
    )
    gate, dispatch, experts, combine = moe.moe_terms(
        system.die(expert_share, contention),
        system.model,
        tokens / d.microbatches,
        placement,
        imbalance=d.imbalance,
        library=system.engine.ep_library,
        message_scale_bytes=constants.dispatch_scale_bytes.si,
        copies_limit=np.inf,
        vector_efficiency=constants.vector_efficiency.si,
    )
    first = total_time(attention_terms) if split else total_time([*attention_terms, gate, experts])
    second = total_time([gate, dispatch, experts, combine] if split else [dispatch, combine])
    overlap = streams * constants.stream_overlap.si
    sync = streams * d.microbatches * constants.stream_sync.si
    time = d.microbatches * overlapped_time(first, second, overlap=overlap) + sync
    hidden = d.microbatches * overlap * np.minimum(first, second)
    return _Layer([*attention_terms, gate, dispatch, experts, combine], first, second, sync, hidden, time)


def _dense_layer(system: System, d: DecodeDeployment, tokens: Numeric) -> Term:
    """A dense layer: the whole batch on all cores, attention and then feed-forward."""
    constants = system.engine.constants
    die = system.die(1.0, 1.0)
    attention_terms = mla.decode_terms(
        die,
        system.model,
        d.batch_per_die,
        tokens,
        d.kv_len,
        tp=d.attention_tp,
        kv_precision=system.kv_precision,
        vector_efficiency=constants.vector_efficiency.si,
    )
    ffn = moe.feed_forward(
        die,
        system.model,
        tokens,
        system.model.architecture.dense_intermediate.si,
        groups=1.0,
        vector_efficiency=constants.vector_efficiency.si,
    )
    return merged("dense_layers", *attention_terms, ffn)


def _draft_layers(system: System, d: DecodeDeployment, placement: Placement, layer: _Layer) -> Term:
    """The MTP layer: once over all verified tokens, then once per further draft token.

    The first pass has the shape of a main layer; the others carry one token per request. Each
    starts with the projection of hidden state and embedding together.
    """
    later_layer = _moe_layer(system, d, placement, d.batch_per_die)
    first, later = (
        merged(
            "draft_layers",
            merged("mtp_layer", *(t.times(d.microbatches) for t in pass_.terms), time=pass_.time),
            mla.mtp_projection(system.die(1.0, 1.0), system.model, tokens),
        )
        for pass_, tokens in (
            (layer, d.batch_per_die * (1 + d.draft_tokens)),
            (later_layer, d.batch_per_die),
        )
    )
    return merged(
        "draft_layers",
        first.times(np.minimum(d.draft_tokens, 1)),
        later.times(np.maximum(d.draft_tokens - 1, 0)),
    )


def _head(system: System, tokens: Numeric) -> Term:
    """LM head, its vocabulary split over the dies of a group that share their tokens."""
    a, p = system.model.architecture, system.model.precision
    ranks = system.engine.layout.lm_head_tp.si
    die = system.die(1.0, 1.0)
    gathered = collective(
        die, "all_gather", "lm_head_gather", tokens * a.hidden.si * ELEMENT_BYTES["bf16"], ranks
    )
    product = gemm(die, "lm_head", tokens * ranks, a.vocab.si / ranks, a.hidden.si, precision=p.lm_head)
    return merged("lm_head", gathered, product)
