"""How large a model is: parameters, cache of a token, and the smallest deployment that holds it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cm384model.prediction.decode import DecodeDeployment
from cm384model.prediction.families import feed_forward_of, model_parameters
from cm384model.prediction.memory import decode_memory, kv_bytes_per_token_layer
from cm384model.prediction.system import System

CONTEXT = 4096.0
"""Context of the one request per attention group that the smallest deployment holds. [tokens]"""
ATTENTION_TP = (1.0, 2.0, 4.0, 8.0, 16.0)


@dataclass(frozen=True)
class ModelSizes:
    """Sizes of a model on a machine.

    Attributes
    ----------
    total_parameters, active_parameters : float
        Weights, and those that one token uses; without norms, biases and MTP layers. [-]
    kv_bytes_per_token : float
        Cache of one token of context over all layers. [B/tokens]
    smallest_npus : int or None
        Fewest NPUs that hold the weights and one request per attention group; None if none does.
    smallest_attention_tp : int or None
        Dies that share the heads of a request there.
    """

    total_parameters: float
    active_parameters: float
    kv_bytes_per_token: float
    smallest_npus: int | None
    smallest_attention_tp: int | None


def model_sizes(system: System) -> ModelSizes:
    """Sizes of the model of a system on its machine."""
    model, parameters = system.model, model_parameters(system.model)
    npus, tp = smallest_deployment(system)
    per_token = model.architecture.layers.si * kv_bytes_per_token_layer(system, CONTEXT)
    return ModelSizes(float(parameters.total), float(parameters.active), float(per_token), npus, tp)


def smallest_deployment(system: System) -> tuple[int | None, int | None]:
    """Fewest NPUs and the attention TP of a decode instance that fits, without redundant experts."""
    dies = int(system.hardware.dies_per_npu)
    found: list[tuple[int, int]] = []
    for tp in ATTENTION_TP:
        if system.model.architecture.heads.si % tp:
            continue
        ep = np.arange(dies, system.hardware.total_dies + 1, dies, dtype=float)
        ep = ep[ep % tp == 0]
        fits = ep[_free_bytes(system, ep, tp) >= 0]
        found += [(int(ep_ // dies), int(tp)) for ep_ in fits[:1]]
    return min(found, default=(None, None))


def _free_bytes(system: System, ep: np.ndarray, tp: float) -> np.ndarray:
    """What is left on a die; the head is split over as many dies as there are. [B]"""
    deployment = DecodeDeployment(
        ep=ep,
        batch_per_die=1 / tp,
        kv_len=CONTEXT,
        microbatches=1.0,
        attention_aic_share=1.0,
        draft_tokens=0.0,
        acceptance=0.0,
        imbalance=1.0,
        redundant_experts=0.0,
        attention_tp=tp,
    )
    placement = feed_forward_of(system.model).place(system.hardware, system.model, ep, 0.0)
    memory = decode_memory(system, deployment, placement)
    ranks = float(system.engine.layout.lm_head_tp.si)
    missing = memory.parts["lm_head"] * (ranks / np.minimum(ep, ranks) - 1)
    return np.broadcast_to(memory.free - missing, ep.shape)
