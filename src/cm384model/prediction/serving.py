"""What a request sees between its prompt and its tokens."""

from __future__ import annotations

import numpy as np

from cm384model.laws.batch_service import batch_service_ttft
from cm384model.laws.drift import fluid_backlog, fluid_wait
from cm384model.laws.greedy_batch import greedy_batch_ttft_percentile
from cm384model.numeric import Numeric
from cm384model.prediction.case import Case
from cm384model.prediction.memory import kv_bytes_per_token_layer
from cm384model.prediction.operators import Die, transfer


def request_kv_bytes(case: Case) -> Numeric:
    """KV cache of one prompt over all layers; the MTP layer fills its own in decode. [B]"""
    layers = case.model.architecture.layers.si
    return case.workload.traffic.prompt_len.si * layers * kv_bytes_per_token_layer(case.system)


def kv_transfer_time(case: Case) -> Numeric:
    """Time to hand the KV cache of one request to decode over RDMA. [s]

    A request decodes on one die, whose RDMA port receives the whole cache; the prefill dies
    that hold its slices send at the same time, so the receiver is the narrow end.
    """
    return transfer(Die(case.hardware), "kv_transfer", request_kv_bytes(case), plane="rdma").time


def prefill_delay(
    rate: Numeric, *, instances: Numeric, prompts: Numeric, full_time: Numeric, alone_time: Numeric
) -> Numeric:
    """Mean time from arrival to the end of prefill, at a rate of Poisson arrivals. [s]

    Prompts are assigned to an instance as they arrive. Nondecreasing in the rate, infinite where
    the pool cannot serve it.
    """
    limit = np.maximum(prompts, 1.0)
    return batch_service_ttft(rate / instances, limit, np.minimum(alone_time, full_time), full_time)


SETTLED = 0.95
"""Utilisation up to which an interval shows its steady state; an assumption, above it the fluid rules. [-]"""


def drifting_delay(
    rates: np.ndarray,
    interval: float,
    *,
    instances: Numeric,
    prompts: Numeric,
    full_time: Numeric,
    alone_time: Numeric,
) -> float:
    """Mean time from arrival to the end of prefill where the rate drifts, one rate per interval. [s]

    The pointwise stationary approximation (green1991): every interval has the mean of its own
    rate, and what exceeds the capacity is carried over as a fluid. Means over the requests.

    Parameters
    ----------
    rates : array of shape (n,)
        Arrivals per second in one interval after the other. [1/s]
    interval : float
        Length of an interval; some batches long. [s]
    """
    capacity = instances * np.maximum(prompts, 1.0) / full_time
    pool = {"instances": instances, "prompts": prompts, "full_time": full_time, "alone_time": alone_time}
    steady = prefill_delay(np.minimum(rates, SETTLED * capacity), **pool)
    backlog, waits = 0.0, np.zeros(len(rates))
    for i, rate in enumerate(rates):
        waits[i] = fluid_wait(backlog, rate, capacity, interval)
        backlog = fluid_backlog(backlog, rate, capacity, interval)
    return float(np.average(steady + waits, weights=rates))


def prefill_delay_p95(
    rate: Numeric, *, instances: Numeric, prompts: Numeric, full_time: Numeric, alone_time: Numeric
) -> Numeric:
    """95th percentile of the same time. [s]"""
    limit = np.ceil(np.maximum(prompts, 1.0))
    alone = np.minimum(alone_time, full_time)
    whole = (limit - 1) / np.maximum(prompts - 1, np.finfo(float).eps)
    full = alone + (full_time - alone) * np.where(limit > 1, whole, 1.0)
    return greedy_batch_ttft_percentile(rate / instances, 1, limit, alone, full, arrival_scv=1.0, share=0.95)
