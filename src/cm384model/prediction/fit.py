"""The nearest deployment that fits where the one asked for does not."""

from __future__ import annotations

from typing import Any

import numpy as np

from cm384model.prediction.case import Case
from cm384model.prediction.colocated import colocated_serving
from cm384model.prediction.decode import DecodeDeployment, decode_step
from cm384model.prediction.evaluate_colocated import colocated_deployment
from cm384model.prediction.prefill import PrefillDeployment, prefill_batch
from cm384model.prediction.results import ColocatedPrediction, DecodePrediction, PrefillPrediction

TOKENS_STEP = 256
"""Grain of the search for a smaller prefill batch. [tokens]"""


def nearest_fit(
    case: Case, prediction: DecodePrediction | PrefillPrediction | ColocatedPrediction
) -> tuple[str, str]:
    """The largest smaller load that fits the memory of a die, and what to try."""
    given = dict(prediction.deployment)
    name = next(name for name in ("concurrency", "batch_per_die", "tokens_per_npu") if name in given)
    step = TOKENS_STEP if name == "tokens_per_npu" else 1
    loads = step * np.arange(1, max(2, np.ceil(given[name] / step)))
    free = np.broadcast_to(_free(case, prediction.phase, given | {name: loads}), loads.shape)
    short = f"the nearest, {name}={loads[0]:g}, is {-free[0] / 1e9:.2f} GB over"
    elsewhere = "more dies (ep), a shorter context or --set model.precision.kv=int8"
    if free[0] < 0:
        return short, f"try {elsewhere}"
    largest = loads[np.flatnonzero(free >= 0)[-1]]
    return f"the nearest that fits is {name}={largest:g}", f"try --at {name}={largest:g}, or {elsewhere}"


def _free(case: Case, phase: str, given: dict[str, Any]) -> Any:
    """Free memory of a die for an array of loads. [B]"""
    if phase == "colocated":
        return colocated_serving(case.system, colocated_deployment(case, given)).memory.free
    if phase == "decode":
        return decode_step(case.system, DecodeDeployment(**given)).memory.free
    return prefill_batch(case.system, PrefillDeployment(**given)).memory.free
