"""A run of a benchmark on a prefill and a decode pool, ramp and tail included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from cm384model.laws.disaggregated import two_pool_run_time
from cm384model.numeric import Numeric
from cm384model.prediction.case import Case
from cm384model.prediction.decode import DecodeDeployment, decode_step
from cm384model.prediction.evaluate import At, check_ep, check_tp, filled_decode, filled_prefill, require
from cm384model.prediction.evaluate_colocated import case_of_lengths
from cm384model.prediction.families import attention_of
from cm384model.prediction.memory import attention_ranks
from cm384model.prediction.prefill import prefill_batch
from cm384model.prediction.serving import kv_transfer_time
from cm384model.specs.deployment import DISAGGREGATED_FIELDS, read_at

ROUNDS = 4
"""Repetitions that find the batch of the decode pool; what they leave is within 1 % of the rate. [-]"""


def read_run(case: Case, at: At) -> dict[str, Any]:
    """What ``at`` says about a run, checked, in SI units.

    Parameters
    ----------
    case : Case
        Machine, engine, model and workload of both pools.
    at : mapping or iterable of str
        One decode instance (``ep`` and the names of decode), the prefill pool (``prefill_ep``,
        ``prefill_tp``, ``prefill_instances``) and the load (``concurrency``, ``prompts``, lengths).

    Raises
    ------
    SpecError
        For unknown names, values out of bounds, sizes that are no whole number of NPUs.
    """
    given = read_at(at, DISAGGREGATED_FIELDS, "a disaggregated run")
    require(
        given, ("ep", "prefill_ep", "concurrency", "prompts"), "disaggregated", "--at ep=32,prefill_ep=16"
    )
    check_ep(case, given["ep"])
    check_ep(case, given["prefill_ep"])
    check_tp(case, given)
    return given


def disaggregated_run(case: Case, given: Mapping[str, Any]) -> dict[str, Numeric]:
    """Predict a run from values that `read_run` checked; they may be arrays.

    Returns
    -------
    dict of str to numeric
        ``tpot_s``, ``step_time_s``, ``run_time_s`` and ``run_tokens_per_s_per_npu``, the output tokens of
        the run over its time and the NPUs of both pools.
    """
    case = case_of_lengths(case, given)
    traffic, instances = case.workload.traffic, given.get("prefill_instances", 1.0)
    prompt_len, output_len = traffic.prompt_len.si, traffic.output_len.si
    interval, latency = _prefill(case, given, instances, prompt_len)
    latency = latency + kv_transfer_time(case)
    concurrency = np.minimum(given["concurrency"], given["prompts"])
    decode = filled_decode(case, {**given, "batch_per_die": concurrency / given["ep"]})
    for _ in range(ROUNDS):
        step = decode_step(case.system, decode)
        decode_time = (output_len - 1) / step.tokens_per_step * step.step_time
        running = _running(concurrency, decode_time, interval, latency, given)
        decode = _with_running(decode, running)
    rate = given.get("arrivals_per_s", np.inf)
    time = two_pool_run_time(
        given["prompts"],
        np.minimum(concurrency, given.get("most_running", np.inf)),
        prefill_interval=interval,
        prefill_latency=latency,
        decode_time=decode_time,
        arrival_interval=1 / rate,
    )
    npus = (given["ep"] + given["prefill_ep"] * instances) / case.hardware.dies_per_npu
    return {
        "tpot_s": step.tpot,
        "step_time_s": step.step_time,
        "run_time_s": time,
        "run_tokens_per_s_per_npu": given["prompts"] * output_len / (time * npus),
    }


def _prefill(
    case: Case, given: Mapping[str, Any], instances: Numeric, prompt_len: Numeric
) -> tuple[Numeric, Numeric]:
    """Time between prompts of the pool, and of one prompt alone. [s]"""
    ep, stages = given["prefill_ep"], given.get("prefill_stages", 1.0)
    splits = attention_of(case.model).SPLITS_PREFILL
    tp = given.get("prefill_tp", 1.0) if splits else 1.0
    parts = given.get("prefill_context_parallel", 0.0)
    ranks = attention_ranks(case.system, ep) if parts == 0 else tp * parts
    prompts = ep / stages / np.maximum(ranks, tp)
    names = ("balance", "imbalance", "reuse", "redundant_experts")
    batch = prefill_batch(
        case.system,
        filled_prefill(
            case,
            {
                **{name: given[name] for name in names if name in given},
                "ep": ep,
                "tokens_per_npu": prompts * prompt_len * case.hardware.dies_per_npu / ep,
                "microbatches": 1.0,
                "attention_tp": tp,
                "context_parallel": parts,
                "pipeline_stages": stages,
            },
        ),
    )
    return batch.batch_time / (prompts * instances), batch.batch_time


def _running(
    concurrency: Numeric, decode_time: Numeric, interval: Numeric, latency: Numeric, given: Mapping[str, Any]
) -> Numeric:
    """Requests in decode at once: what the loop keeps there, what prefill delivers, what has a slot. [-]"""
    kept = concurrency * decode_time / (decode_time + latency)
    delivered = decode_time / interval
    return np.minimum(np.minimum(kept, delivered), given.get("most_running", np.inf))


def _with_running(decode: DecodeDeployment, running: Numeric) -> DecodeDeployment:
    return replace(decode, batch_per_die=running / decode.ep)
