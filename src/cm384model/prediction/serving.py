"""What a request sees between its prompt and its tokens."""

from __future__ import annotations

import numpy as np

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

    Nondecreasing in the rate, infinite where the pool cannot serve it.
    """
    utilisation = rate * full_time / (instances * prompts)
    stable = np.minimum(utilisation, 1 - 1e-9)
    wait = 0.5 * stable ** (np.sqrt(2 * (instances + 1)) - 1) / (instances * (1 - stable)) * full_time
    return np.where(utilisation < 1, wait + full_time, np.inf)
