"""A dense gated feed-forward in every layer, its weights split over the dies of a group."""

from __future__ import annotations

import functools

import numpy as np

from cm384model.numeric import Numeric
from cm384model.prediction.families.interface import Flow, LayerTerms, Parameters, linear
from cm384model.prediction.operators import ELEMENT_BYTES, Die, collective, vector
from cm384model.prediction.placement import Placement
from cm384model.prediction.shapes import dense
from cm384model.prediction.terms import Term, merged
from cm384model.specs.hardware import Hardware
from cm384model.specs.model import Model

EXCHANGED = ("feed_forward_exchange",)


def blocks(model: Model) -> Numeric:
    """One attention block per layer. [-]"""
    return 1.0


def place(
    hardware: Hardware,
    model: Model,
    ep: Numeric,
    redundant_experts: Numeric,
    expert_tp: Numeric = 1.0,
) -> Placement:
    """No experts; the dies of an instance only share their attention groups."""
    return Placement(ep, 0.0, ep, 0.0)


def layer_terms(die: Die, model: Model, tokens: Numeric, placement: Placement, flow: Flow) -> LayerTerms:
    """The feed-forward of the tokens of ``flow.tp`` dies, each with its share of the width.

    Tokens are gathered before and partial sums scattered after; a die alone exchanges nothing.
    """
    a, efficiency = dense(model), flow.vector_efficiency
    moved = 5 * a.hidden.si * ELEMENT_BYTES["bf16"]
    norm = vector(die, "ffn_vector", tokens, moved, VECTOR_KERNELS, efficiency=efficiency)
    return LayerTerms([norm, *split(die, model, tokens, a.dense_intermediate.si, flow.tp, flow)], EXCHANGED)


def split(
    die: Die, model: Model, tokens: Numeric, intermediate: Numeric, ranks: Numeric, flow: Flow
) -> list[Term]:
    """A feed-forward whose width ``ranks`` dies share, and what they exchange for it."""
    efficiency = flow.vector_efficiency
    whole = feed_forward(
        die, model, tokens * ranks, intermediate / ranks, groups=1.0, vector_efficiency=efficiency
    )
    if np.all(np.equal(ranks, 1)):
        return [whole]
    message = tokens * model.architecture.hidden.si * ELEMENT_BYTES["bf16"]
    return [whole, gather_scatter(die, "feed_forward_exchange", message, message, ranks)]


def gather_scatter(die: Die, name: str, gathered: Numeric, scattered: Numeric, ranks: Numeric) -> Term:
    """Tokens of all ``ranks`` dies to each, and the partial sums of all back to their owners."""
    return merged(
        name,
        collective(die, "all_gather", "token_gather", gathered, ranks),
        collective(die, "reduce_scatter", "sum_scatter", scattered, ranks),
    )


VECTOR_KERNELS = 2.0
"""Norm (two rows read and written) and residual addition (three). [-]"""


def leading_layers(model: Model) -> Numeric:
    """All layers are alike. [-]"""
    return 0.0


def leading_terms(die: Die, model: Model, tokens: Numeric, placement: Placement, flow: Flow) -> list[Term]:
    """There is no leading layer."""
    return []


def weight_bytes(model: Model, placement: Placement, layers: Numeric, tp: Numeric) -> dict[str, Numeric]:
    """The feed-forward of every layer, split over ``tp`` dies. [B]"""
    return {"feed_forward": layers * layer_bytes(model) / tp}


def split_bytes(model: Model, tp: Numeric) -> Numeric:
    """All of it. [B]"""
    return dense(model).layers.si * layer_bytes(model) / tp


def layer_bytes(model: Model) -> Numeric:
    """Weights of one feed-forward. [B]"""
    a = dense(model)
    return 3 * a.hidden.si * a.dense_intermediate.si * ELEMENT_BYTES[model.precision.weights]


def copies(model: Model, slots: Numeric) -> Numeric:
    """Tokens are not dispatched. [-]"""
    return 0.0


def parameters(model: Model) -> Parameters:
    """Every token uses every weight. [-]"""
    a = dense(model)
    total = a.layers.si * 3 * a.hidden.si * a.dense_intermediate.si
    return Parameters(total, total)


def row_width(model: Model) -> Numeric:
    """Gate and up-projection side by side. [-]"""
    return 2 * dense(model).dense_intermediate.si


def sizes(model: Model) -> dict[str, float]:
    """Operand sizes for single operators. [-]"""
    return {"intermediate": float(dense(model).dense_intermediate.si)}


def feed_forward(
    die: Die,
    model: Model,
    rows: Numeric,
    intermediate: Numeric,
    *,
    groups: Numeric,
    vector_efficiency: Numeric,
    name: str = "feed_forward",
    stored: str | None = None,
    rows_vary: Numeric = 0.0,
) -> Term:
    """Gated feed-forward of ``groups`` experts with ``rows`` token rows each, or in the mean."""
    hidden = model.architecture.hidden.si
    product = functools.partial(linear, die, model, groups=groups, stored=stored, rows_vary=rows_vary)
    return merged(
        name,
        product("gate_up", rows, 2 * intermediate, hidden),
        swiglu(die, model, rows * groups, intermediate, vector_efficiency),
        product("down", rows, hidden, intermediate),
    )


def swiglu(die: Die, model: Model, rows: Numeric, intermediate: Numeric, efficiency: Numeric) -> Term:
    """SwiGLU and quantisation of its result: two inputs read, one written, read and written again."""
    half, byte = ELEMENT_BYTES["bf16"], ELEMENT_BYTES[model.precision.activations]
    return vector(die, "swiglu", rows, intermediate * (4 * half + byte), 1.0, efficiency=efficiency)
