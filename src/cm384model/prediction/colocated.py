"""An instance whose dies prefill and decode: continuous batching in its steady state."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cm384model.laws import memory as memory_laws
from cm384model.laws.colocated import colocated_decode_time, request_rate, wave_ttft, waves_time
from cm384model.laws.mtp import expected_tokens
from cm384model.numeric import Numeric
from cm384model.prediction.decode import DecodeDeployment, DecodeStep, decode_step
from cm384model.prediction.memory import Memory, prompt_dies
from cm384model.prediction.prefill import PrefillBatch, PrefillDeployment, prefill_batch
from cm384model.prediction.system import System
from cm384model.prediction.terms import Term, merged

ROUNDING = 1e-9
"""Part of a chunk that is rounding of a number and no chunk. [-]"""


@dataclass(frozen=True)
class ColocatedDeployment:
    """One instance that prefills and decodes; every number may be an array that broadcasts.

    Attributes
    ----------
    decode : DecodeDeployment
        Its decode step; the batch counts the requests in decode.
    prefill : PrefillDeployment
        Its prefill batch, on the same dies; one that holds less than a prompt is a chunk of it.
    output_len : numeric
        Tokens of one output, the first included; at least 2. [-]
    mixed_overlap : numeric
        Share of the shorter of prefill and decode that iterations hide which mix both; 0 where
        prefill stops decode. [-]
    """

    decode: DecodeDeployment
    prefill: PrefillDeployment
    output_len: Numeric
    mixed_overlap: Numeric = 0.0


@dataclass(frozen=True)
class Colocated:
    """What an instance does and holds that prefills and decodes, in its steady state.

    Attributes
    ----------
    tpot : numeric
        Time per output token after the first, stalls by prefill included. [s]
    ttft : numeric
        Time to first token of a request that is prefilled when it comes. [s]
    e2e : numeric
        Time to the last token; sum of terms - hidden_time = e2e. [s]
    rate : numeric
        Requests per second of the instance. [1/s]
    throughput : numeric
        Output tokens per second and NPU. [tokens/s]
    concurrency : numeric
        Requests in the instance at once, in decode or prefill. [-]
    prefill_time : numeric
        Time of the whole instance for one prompt. [s]
    prefill_share : numeric
        Share of the time that prefill takes. [-]
    longest_gap : numeric
        Longest time between two deliveries to a request: a step, and a prefill before it. [s]
    hidden_time : numeric
        Time of the terms that overlap hides. [s]
    terms : list of Term
        What the instance does while it serves one request, and every other once.
    memory : Memory
        Ledger of one die.
    step : DecodeStep
        A decode iteration alone.
    batch : PrefillBatch
        A prefill batch alone.
    """

    tpot: Numeric
    ttft: Numeric
    e2e: Numeric
    rate: Numeric
    throughput: Numeric
    concurrency: Numeric
    prefill_time: Numeric
    prefill_share: Numeric
    longest_gap: Numeric
    hidden_time: Numeric
    terms: list[Term]
    memory: Memory
    step: DecodeStep
    batch: PrefillBatch


def colocated_serving(system: System, deployment: ColocatedDeployment) -> Colocated:
    """Predict the steady state of an instance that keeps its batch full.

    A request that ends is followed by another at once, so while one is served the instance prefills
    as many prompts as it holds requests. A prompt in several chunks has a decode step after each
    but the last. By Little's law the request rate is the requests over the time of one.
    """
    d = deployment
    step, batch = decode_step(system, d.decode), prefill_batch(system, d.prefill)
    npus = d.decode.ep / system.hardware.npu.dies.si
    chunks, steps = chunks_of(system, d), (d.output_len - 1) / step.tokens_per_step
    concurrency = d.decode.batch_per_die * d.decode.ep * (1 + (chunks - 1) / steps)
    held = np.maximum(prompts_at_once(system, d.prefill), 1.0) * prompt_groups(system, d.prefill)
    together = np.minimum(held, concurrency)
    prefill_time = chunks * batch.batch_time / together
    ttft = chunks * batch.batch_time + (chunks - 1) * step.step_time
    decode_time = colocated_decode_time(
        concurrency - together,
        steps,
        prefill_time=prefill_time,
        step_time=step.step_time,
        overlap=d.mixed_overlap,
    )
    rate = request_rate(concurrency, ttft + decode_time)
    batches, iterations = concurrency * chunks / together, steps + chunks - 1
    mixed = steps * step.step_time + (concurrency - together) * prefill_time - decode_time
    return Colocated(
        tpot=decode_time / (d.output_len - 1),
        ttft=ttft,
        e2e=ttft + decode_time,
        rate=rate,
        throughput=rate * d.output_len / npus,
        concurrency=concurrency,
        prefill_time=prefill_time,
        prefill_share=concurrency * prefill_time / (ttft + decode_time),
        longest_gap=step.step_time + batch.batch_time,
        hidden_time=iterations * step.hidden_time + batches * batch.hidden_time + mixed,
        terms=[
            *(merged(f"prefill_{t.name}", t.times(batches)) for t in batch.terms),
            *(merged(f"decode_{t.name}", t.times(iterations)) for t in step.terms),
        ],
        memory=_memory(step.memory, batch.memory, chunks),
        step=step,
        batch=batch,
    )


def prompts_at_once(system: System, prefill: PrefillDeployment) -> Numeric:
    """Prompts in a batch of one group of dies; a chunk is a part of one. [-]"""
    npus = prompt_dies(system, prefill) / system.hardware.npu.dies.si
    return prefill.tokens_per_npu * npus / prefill.prompt_len


def chunks_of(system: System, deployment: ColocatedDeployment) -> Numeric:
    """Prefill batches that a prompt takes; 1 where a batch holds a prompt or more. [-]"""
    return np.maximum(np.ceil(1 / prompts_at_once(system, deployment.prefill) - ROUNDING), 1.0)


def prompt_groups(system: System, prefill: PrefillDeployment) -> Numeric:
    """Groups of dies that have prompts of their own, each busy with one at least. [-]"""
    return prefill.ep / prompt_dies(system, prefill)


def with_concurrency(
    system: System, deployment: ColocatedDeployment, concurrency: Numeric
) -> ColocatedDeployment:
    """The deployment with the decode batch that so many requests at once keep.

    While the chunks of its prompt are computed a request is not in the batch.
    """
    d = deployment.decode
    steps = (deployment.output_len - 1) / expected_tokens(d.draft_tokens, d.acceptance)
    in_decode = steps / (steps + chunks_of(system, deployment) - 1)
    return replace(deployment, decode=replace(d, batch_per_die=concurrency * in_decode / d.ep))


@dataclass(frozen=True)
class Run:
    """A fixed number of requests served to the end, as a benchmark reports it.

    Attributes
    ----------
    time : numeric
        Time of the run. [s]
    throughput : numeric
        Output tokens of the run over its time, per NPU. [tokens/s]
    tpot, ttft : numeric
        Of the requests of a full wave, mean. [s]
    """

    time: Numeric
    throughput: Numeric
    tpot: Numeric
    ttft: Numeric


def closed_loop_run(
    system: System, deployment: ColocatedDeployment, *, prompts: Numeric, concurrency: Numeric
) -> Run:
    """Predict a run of ``prompts`` equal requests, at most ``concurrency`` at once, to the very end.

    They run in waves; a prefill batch is that of the steady state.
    """
    output_len, npus = deployment.output_len, deployment.decode.ep / system.hardware.npu.dies.si
    together = np.minimum(prompts, concurrency)
    left = np.mod(prompts, together)
    full = last = colocated_serving(system, with_concurrency(system, deployment, together))
    if np.any(left):
        last = colocated_serving(system, with_concurrency(system, deployment, np.maximum(left, 1.0)))
    time = waves_time(prompts, together, full_time=full.e2e, last_time=last.e2e)
    ttft = wave_ttft(together, full.prefill_time)
    return Run(
        time=time,
        throughput=prompts * output_len / (time * npus),
        tpot=(full.e2e - ttft) / (output_len - 1),
        ttft=ttft,
    )


def _memory(decode: Memory, prefill: Memory, chunks: Numeric) -> Memory:
    """One ledger of two: the larger of each part of the weights and buffers, the caches of both."""
    names = [*decode.parts, *(name for name in prefill.parts if name not in decode.parts)]
    parts = {name: np.maximum(decode.parts.get(name, 0.0), prefill.parts.get(name, 0.0)) for name in names}
    weights, kv_cache = (
        np.maximum(decode.weights, prefill.weights),
        decode.kv_cache + chunks * prefill.kv_cache,
    )
    buffers = sum(parts.values()) - weights
    free = memory_laws.free_bytes(decode.capacity, weights, kv_cache, buffers, decode.reserve)
    return Memory(decode.capacity, weights, kv_cache, buffers, decode.reserve, free, parts)
