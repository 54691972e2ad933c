"""One batch of a prefill instance, as named terms."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cm384model.laws.caching import block_transfer_time
from cm384model.laws.overlap import overlapped_time
from cm384model.laws.pipeline import pipeline_time
from cm384model.numeric import Numeric
from cm384model.prediction.families import attention_of, feed_forward_of
from cm384model.prediction.families.interface import Flow
from cm384model.prediction.memory import (
    Memory,
    kv_bytes_per_token_layer,
    prefill_memory,
    prompts_of,
    stage_share,
    usual_attention_tp,
)
from cm384model.prediction.operators import ELEMENT_BYTES, Die, gemm, operator, transfer
from cm384model.prediction.placement import Placement
from cm384model.prediction.precision import check_precisions
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
        Share of the prompt tokens whose cache is there already. [-]
    plane : str
        Network between pool and dies, ``ub`` or ``vpc``, or ``local``: the dies kept the cache.
    attention_tp : numeric or None
        Dies that share the weights of attention, and of a dense feed-forward; None takes
        `usual_attention_tp`. [-]
    expert_tp : numeric
        Dies that split the columns of their experts; 1 has whole experts. [-]
    context_parallel : numeric
        Parts of the sequence of a prompt, each on ``attention_tp`` dies that gather the keys and
        values of the others; 0 leaves it to the engine how dies share prompts. [-]
    pipeline_stages : numeric
        Stages of the layers, each on its share of the dies. [-]
    chunks : numeric
        Parts of a batch that follow each other through the stages. [-]
    balanced_chunks : numeric
        1 where parts take equal time, 0 where they have equal tokens and the last is slowest. [-]
    """

    ep: Numeric
    tokens_per_npu: Numeric
    prompt_len: Numeric
    microbatches: Numeric
    imbalance: Numeric
    redundant_experts: Numeric
    reuse: Numeric = 0.0
    plane: str = "ub"
    attention_tp: Numeric | None = None
    expert_tp: Numeric = 1.0
    context_parallel: Numeric = 0.0
    pipeline_stages: Numeric = 1.0
    chunks: Numeric = 1.0
    balanced_chunks: Numeric = 1.0


@dataclass(frozen=True)
class PrefillBatch:
    """What a prefill batch takes and holds.

    Attributes
    ----------
    batch_time : numeric
        Time from the first layer to the first tokens of all prompts. [s]
    interval : numeric
        Time after which the next batch can start: without stages and cache the same. [s]
    throughput : numeric
        Input tokens per second and NPU, batches one after the other. [tokens/s]
    layer_time : numeric
        One main layer, all microbatches. [s]
    hidden_time : numeric
        Communication that overlap hides, and storing in the cache, which no first token waits for:
        sum of terms - hidden_time = batch_time. [s]
    terms : list of Term
        Parts of one batch.
    memory : Memory
        Ledger of one die.
    placement : Placement
        Where the experts are.
    """

    batch_time: Numeric
    interval: Numeric
    throughput: Numeric
    layer_time: Numeric
    hidden_time: Numeric
    terms: list[Term]
    memory: Memory
    placement: Placement


def prefill_batch(system: System, deployment: PrefillDeployment) -> PrefillBatch:
    """Predict one prefill batch.

    Where the engine says so, attention is sequence-parallel, head-parallel and sequence-parallel
    again (SP-TP-SP) over the dies of the instance: what the heads need is exchanged before they
    work, and their outputs after. With two microbatches a share of the communication of one half
    hides behind the compute of the other. With stages, chunks of the batch follow each other; the
    stage with most layers sets the pace. Where the cache serves prompts, new blocks are stored in
    it after the first tokens are out and before the next batch.
    """
    check_precisions(system)
    d, engine, a = with_attention_tp(system, deployment), system.engine, system.model.architecture
    family = feed_forward_of(system.model)
    stages, chunks, share = d.pipeline_stages, d.chunks, stage_share(system, d.pipeline_stages)
    placement = family.place(system.hardware, system.model, d.ep / stages, d.redundant_experts, d.expert_tp)
    tokens_per_die = d.tokens_per_npu / system.hardware.npu.dies.si
    computed = tokens_per_die * stages / chunks * (1 - d.reuse)
    tokens = computed / d.microbatches

    compute, exchanged = _attention_terms(system, d, tokens)
    die, flow = _compute_die(system), _flow(system, d)
    feed_forward = family.layer_terms(die, system.model, tokens, placement, flow)
    main_layers = (a.layers.si - family.leading_layers(system.model)) * share * chunks
    leading_layers = family.leading_layers(system.model) * share * chunks
    per_layer = [*compute, *exchanged, *feed_forward.compute, *feed_forward.communication]

    overlap = (d.microbatches - 1) * engine.constants.prefill_overlap.si
    busy = total_time([*compute, *feed_forward.compute])
    waiting = total_time([*exchanged, *feed_forward.communication])
    layer_time = d.microbatches * overlapped_time(busy, waiting, overlap=overlap)
    hidden = main_layers * d.microbatches * overlap * np.minimum(busy, waiting)

    leading = family.leading_terms(die, system.model, tokens, placement, flow)
    leading = [merged("dense_layers", *compute, *exchanged, *leading)] if leading else []
    overhead = engine.constants.step_overhead.si * chunks
    plane, pooled = ("ub", 0.0) if d.plane == "local" else (d.plane, d.reuse)
    terms = [
        *(term.times(main_layers * d.microbatches) for term in per_layer),
        *(term.times(leading_layers * d.microbatches) for term in leading),
        _head(system, tokens_per_die * stages / d.prompt_len),
        cache_load(system.die(), system, tokens_per_die * pooled, plane, d.prompt_len),
        overhead_term("step_overhead", overhead, engine.constants.step_overhead),
    ]
    if not np.all(np.equal(stages, 1)):
        terms.append(_stage_transfer(system, computed).times(chunks * np.minimum(stages - 1, 1)))
    batch_time = interval = total_time(terms) - hidden
    if not np.all(np.equal(stages, 1)):
        batch_time = _through_stages(d, interval / chunks, terms)
        terms.append(overhead_term("pipeline_fill", batch_time - interval))
    stored = np.where(np.equal(pooled, 0), 0, tokens_per_die * (1 - pooled))
    store = cache_store(system.die(), system, stored, plane, d.prompt_len)
    terms.append(store)
    interval, hidden = interval + store.time, hidden + store.time
    return PrefillBatch(
        batch_time=batch_time,
        interval=interval,
        throughput=d.tokens_per_npu / interval,
        layer_time=layer_time,
        hidden_time=hidden,
        terms=terms,
        memory=prefill_memory(system, d, placement, tokens_per_die),
        placement=placement,
    )


def with_attention_tp(system: System, deployment: PrefillDeployment) -> PrefillDeployment:
    """The deployment with its attention TP filled in."""
    if deployment.attention_tp is not None:
        return deployment
    return replace(deployment, attention_tp=usual_attention_tp(system))


def _stage_transfer(system: System, tokens: Numeric) -> Term:
    """Hidden states of the tokens of a die to the next stage."""
    moved = tokens * system.model.architecture.hidden.si * ELEMENT_BYTES["bf16"]
    return transfer(system.die(), "stage_transfer", moved, plane="ub")


def _through_stages(d: PrefillDeployment, chunk_time: Numeric, terms: list[Term]) -> Numeric:
    """Time of a batch through all stages. [s]

    Chunks of equal tokens differ in what they attend to: the last of ``c`` chunks has
    ``(2 c - 1) / c`` times the mean.
    """
    core = sum(term.time for term in terms if term.name == "attention_core") / d.chunks
    last_time = chunk_time + (1 - d.balanced_chunks) * (1 - 1 / d.chunks) * core
    return pipeline_time(d.chunks, d.pipeline_stages, chunk_time=chunk_time, last_time=last_time)


def _attention_terms(system: System, d: PrefillDeployment, tokens: Numeric) -> tuple[list[Term], list[Term]]:
    """Compute and communication of all attention blocks of one layer and microbatch."""
    model, prompts = system.model, prompts_of(system, d, tokens)
    block = attention_of(model).prefill_terms(_compute_die(system), model, prompts, system.engine.constants)
    blocks = feed_forward_of(model).blocks(model)
    if np.all(np.equal(blocks, 1)):
        return block.compute, block.communication
    return [term.times(blocks) for term in block.compute], [
        term.times(blocks) for term in block.communication
    ]


def _flow(system: System, d: PrefillDeployment) -> Flow:
    return Flow(
        tp=d.attention_tp,
        imbalance=d.imbalance,
        library=system.engine.prefill_ep_library,
        message_scale_bytes=system.engine.constants.dispatch_scale_bytes.si,
        copies_limit=system.engine.layout.prefill_copies_limit.si,
        vector_efficiency=system.engine.constants.vector_efficiency.si,
    )


def _compute_die(system: System) -> Die:
    """The cores that compute in prefill; the others, if any, move data."""
    return system.die(system.engine.layout.prefill_core_share.si)


@operator
def cache_load(die: Die, system: System, tokens: Numeric, plane: str, prompt_len: Numeric = 1.0) -> Term:
    """Fetch of the cached tokens of one die from the pool, over UB or over the node's VPC card."""
    return _cache_transfer("cache_load", die, system, tokens, plane, prompt_len)


@operator
def cache_store(die: Die, system: System, tokens: Numeric, plane: str, prompt_len: Numeric = 1.0) -> Term:
    """The context that one die computed, put into the pool: a block costs what fetching it does."""
    return _cache_transfer("cache_store", die, system, tokens, plane, prompt_len)


def _cache_transfer(
    name: str, die: Die, system: System, tokens: Numeric, plane: str, prompt_len: Numeric
) -> Term:
    fabric, constants = die.hardware.fabric, system.engine.constants
    ways = {"cache_load": fabric.ub.cpu_read, "cache_store": fabric.ub.cpu_write}
    shared_card = fabric.vpc.bandwidth.si / die.hardware.dies_per_node
    bandwidth = ways[name].inter_node.bandwidth.si if plane == "ub" else shared_card
    layers = system.model.architecture.layers.si
    per_token = kv_bytes_per_token_layer(system, prompt_len)
    moved = tokens * layers * per_token
    time = block_transfer_time(
        tokens,
        layers,
        per_token,
        block_tokens=constants.cache_block_tokens.si,
        block_latency=constants[f"cache_block_latency_{plane}"].si,
        bandwidth=bandwidth,
    )
    on_the_way = moved / bandwidth
    return Term(name, time, {"bytes": moved, "fabric": on_the_way, "latency": time - on_the_way})


def _head(system: System, prompts: Numeric) -> Term:
    """LM head on the last token of every prompt of a die."""
    a = system.model.architecture
    ranks = system.engine.layout.lm_head_tp.si
    columns, precision = a.vocab.si / ranks, system.model.precision.lm_head
    return gemm(system.die(), "lm_head", prompts * ranks, columns, a.hidden.si, precision=precision)
