"""One iteration of a decode instance, as named terms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cm384model.laws.mtp import expected_tokens, time_per_output_token
from cm384model.laws.overlap import overlapped_time
from cm384model.numeric import Numeric
from cm384model.prediction.families import attention_of, feed_forward_of
from cm384model.prediction.families.interface import Flow, linear
from cm384model.prediction.memory import Memory, decode_memory
from cm384model.prediction.operators import ELEMENT_BYTES, Die, collective, gemm
from cm384model.prediction.placement import Placement
from cm384model.prediction.precision import check_precisions
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
    expert_tp : numeric
        Dies that split the columns of their experts; 1 has whole experts. [-]
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
    expert_tp: Numeric = 1.0


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
        One main layer, all microbatches. [s]
    attention_stream_time, expert_stream_time : numeric
        One microbatch of one main layer in the first and the second stream: attention and
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

    A layer runs its attention part (projections, attention core) and its feed-forward part (in
    a mixture: gate, dispatch, experts, combine). With two microbatches the parts form two streams on disjoint
    cores; the longer one sets the pace, and the streams meet once per microbatch. Where a mixture runs
    beside dense blocks of its layer, one batch hides its exchanges behind them as well.
    """
    check_precisions(system)
    d, engine = deployment, system.engine
    family = feed_forward_of(system.model)
    placement = family.place(system.hardware, system.model, d.ep, d.redundant_experts, d.expert_tp)
    tokens = d.batch_per_die * (1 + d.draft_tokens)

    layer = _main_layer(system, d, placement, tokens)
    leading = _leading_layers(system, d, placement, tokens)
    drafting = _draft_layers(system, d, placement, layer)
    head = _head(system, d, d.batch_per_die * (1 + d.draft_tokens))
    draft_head = _head(system, d, d.batch_per_die)

    main_layers = system.model.architecture.layers.si - family.leading_layers(system.model)
    constants = engine.constants
    overhead = constants.step_overhead.si + (1 + d.draft_tokens) * constants.graph_overhead.si
    terms = [
        *(term.times(main_layers * d.microbatches) for term in layer.terms),
        overhead_term("sync", main_layers * layer.sync, constants.stream_sync),
        *leading,
        drafting,
        merged("lm_head", head, draft_head.times(d.draft_tokens)),
        overhead_term("step_overhead", overhead, constants.step_overhead, constants.graph_overhead),
    ]
    hidden = main_layers * layer.hidden
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
    """One main layer: its terms per microbatch, and how the two streams combine."""

    terms: list[Term]
    attention_time: Numeric
    expert_time: Numeric
    sync: Numeric
    hidden: Numeric
    time: Numeric


def _main_layer(system: System, d: DecodeDeployment, placement: Placement, tokens: Numeric) -> _Layer:
    constants = system.engine.constants
    streams = d.microbatches - 1
    split = system.engine.decode_streams == "attention-experts"
    attention_share = 1 - streams * (1 - d.attention_aic_share) if split else 1.0
    expert_share = 1 - streams * d.attention_aic_share if split else 1.0
    attention_terms = _attention_terms(
        system,
        d,
        system.die(attention_share),
        d.batch_per_die / d.microbatches,
        tokens / d.microbatches,
    )
    feed_forward = feed_forward_of(system.model).layer_terms(
        system.die(expert_share),
        system.model,
        tokens / d.microbatches,
        placement,
        _flow(system, d),
    )
    if split:
        first = total_time([*attention_terms, *feed_forward.beside_attention])
        second = total_time(feed_forward.terms)
    else:
        first = total_time([*attention_terms, *feed_forward.compute])
        second = total_time(feed_forward.communication)
    overlap = streams * constants.stream_overlap.si
    sync = streams * d.microbatches * constants.stream_sync.si
    time = d.microbatches * overlapped_time(first, second, overlap=overlap) + sync
    hidden = d.microbatches * overlap * np.minimum(first, second)
    if feed_forward.beside_attention:
        exchanged = total_time(feed_forward.communication)
        beside = (1 - streams) * constants.stream_overlap.si * np.minimum(exchanged, first)
        time, hidden = time - beside, hidden + beside
    terms = [*attention_terms, *feed_forward.beside_attention, *feed_forward.terms]
    return _Layer(terms, first, second, sync, hidden, time)


def _attention_terms(
    system: System, d: DecodeDeployment, die: Die, requests: Numeric, tokens: Numeric
) -> list[Term]:
    """All attention blocks of one layer."""
    model = system.model
    terms = attention_of(model).decode_terms(
        die,
        model,
        requests,
        tokens,
        d.kv_len,
        tp=d.attention_tp,
        kv_precision=system.kv_precision,
        vector_efficiency=system.engine.constants.vector_efficiency.si,
    )
    blocks = feed_forward_of(model).blocks(model)
    return terms if np.all(np.equal(blocks, 1)) else [term.times(blocks) for term in terms]


def _flow(system: System, d: DecodeDeployment) -> Flow:
    constants = system.engine.constants
    return Flow(
        tp=d.attention_tp,
        imbalance=d.imbalance,
        library=system.engine.ep_library,
        message_scale_bytes=constants.dispatch_scale_bytes.si,
        copies_limit=np.inf,
        vector_efficiency=constants.vector_efficiency.si,
    )


def _leading_layers(system: System, d: DecodeDeployment, placement: Placement, tokens: Numeric) -> list[Term]:
    """The leading dense layers, if there are any: the whole batch on all cores, one part after the other."""
    family, die = feed_forward_of(system.model), system.die()
    feed_forward = family.leading_terms(die, system.model, tokens, placement, _flow(system, d))
    if not feed_forward:
        return []
    attention_terms = _attention_terms(system, d, die, d.batch_per_die, tokens)
    layer = merged("dense_layers", *attention_terms, *feed_forward)
    return [layer.times(family.leading_layers(system.model))]


def _draft_layers(system: System, d: DecodeDeployment, placement: Placement, layer: _Layer) -> Term:
    """The MTP layer: once over all verified tokens, then once per further draft token.

    The first pass has the shape of a main layer; the others carry one token per request. Each
    starts with the projection of hidden state and embedding together.
    """

    def one_pass(layer: _Layer, tokens: Numeric) -> Term:
        terms = (term.times(d.microbatches) for term in layer.terms)
        mtp_layer = merged("mtp_layer", *terms, time=layer.time)
        return merged("draft_layers", mtp_layer, _mtp_projection(system, tokens))

    first = one_pass(layer, d.batch_per_die * (1 + d.draft_tokens))
    passes = [first.times(np.minimum(d.draft_tokens, 1))]
    if np.any(np.greater(d.draft_tokens, 1)):
        later = one_pass(_main_layer(system, d, placement, d.batch_per_die), d.batch_per_die)
        passes.append(later.times(np.maximum(d.draft_tokens - 1, 0)))
    return merged("draft_layers", *passes)


def _mtp_projection(system: System, tokens: Numeric) -> Term:
    """Hidden state and next embedding, side by side, back to the hidden width."""
    hidden = system.model.architecture.hidden.si
    return linear(system.die(), system.model, "mtp_projection", tokens, hidden, 2 * hidden)


def _head(system: System, d: DecodeDeployment, tokens: Numeric) -> Term:
    """LM head, its vocabulary split over the dies of a group that share their tokens."""
    a, p = system.model.architecture, system.model.precision
    ranks = np.minimum(system.engine.layout.lm_head_tp.si, d.ep)
    die = system.die()
    gathered = collective(
        die, "all_gather", "lm_head_gather", tokens * a.hidden.si * ELEMENT_BYTES["bf16"], ranks
    )
    product = gemm(die, "lm_head", tokens * ranks, a.vocab.si / ranks, a.hidden.si, precision=p.lm_head)
    return merged("lm_head", gathered, product)
