"""A mixture of experts after dense leading layers; any number of shared and zero-compute experts."""

from __future__ import annotations

import numpy as np

from cm384model.laws import moe as laws
from cm384model.laws.exchange import distinct_destinations
from cm384model.laws.overlap import overlapped_time
from cm384model.numeric import Numeric
from cm384model.prediction.families.dense import feed_forward, gather_scatter, split
from cm384model.prediction.families.interface import Flow, LayerTerms, Parameters
from cm384model.prediction.operators import ELEMENT_BYTES, Die, exchange, gemm, operator, vector
from cm384model.prediction.placement import Placement, place_experts
from cm384model.prediction.shapes import mixture
from cm384model.prediction.terms import Term, merged
from cm384model.specs.hardware import Hardware
from cm384model.specs.model import Mixture, Model

EXCHANGED = ("dispatch", "expert_exchange", "combine")


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
    """Routed experts over the dies, shared ones on every die or on dies of their own."""
    return place_experts(hardware, model, ep, redundant_experts, expert_tp)


def layer_terms(die: Die, model: Model, tokens: Numeric, placement: Placement, flow: Flow) -> LayerTerms:
    """Gate, dispatch, experts and combine of one layer for ``tokens`` of each die.

    Dies that split their experts gather the rows that reached any of them and scatter the sums;
    where all dies are one such group nothing is dispatched.
    """
    a, p = mixture(model), model.precision
    top_k, whole = a.computing_top_k, np.all(np.equal(placement.expert_tp, 1))
    destinations = np.minimum(top_k + placement.dedicated * a.shared_experts.si, flow.copies_limit)
    imbalance = placement.busiest(flow.imbalance)
    sent = tokens * imbalance
    dispatch_message = a.hidden.si * ELEMENT_BYTES[p.activations] + flow.message_scale_bytes
    combine_message = a.hidden.si * ELEMENT_BYTES["bf16"]
    terms = [
        merged(
            "gate",
            gemm(die, "router", tokens, a.choices, a.hidden.si, precision="bf16"),
            vector(
                die,
                "moe_vector",
                tokens,
                vector_row_bytes(model),
                VECTOR_KERNELS,
                efficiency=flow.vector_efficiency,
            ),
        ),
        exchange(
            die,
            "dispatch",
            sent,
            placement.ep,
            destinations,
            dispatch_message,
            library=f"{flow.library}_dispatch",
        ),
        experts(
            die,
            model,
            tokens,
            placement,
            imbalance=imbalance,
            vector_efficiency=flow.vector_efficiency,
        ),
        exchange(
            die,
            "combine",
            sent,
            placement.ep,
            destinations,
            combine_message,
            library=f"{flow.library}_combine",
        ),
    ]
    if whole:
        return LayerTerms(terms, EXCHANGED)
    gate, dispatch, computed, combine = terms
    several = np.where(placement.ep > 1, 1.0, 0.0)
    rows = sent * distinct_destinations(placement.ep, destinations)
    gathered = rows * np.where(placement.ep > 1, dispatch_message, combine_message)
    shared_out = gather_scatter(die, "expert_exchange", gathered, rows * combine_message, placement.expert_tp)
    terms = [gate, dispatch.times(several), shared_out, computed, combine.times(several)]
    return LayerTerms(terms, EXCHANGED)


@operator
def experts(
    die: Die,
    model: Model,
    tokens: Numeric,
    placement: Placement,
    *,
    imbalance: Numeric,
    vector_efficiency: Numeric,
) -> Term:
    """Routed and shared experts on the busiest die.

    A die that holds both runs them one after the other; with dedicated dies the layer
    waits for the slower of the two kinds. Dies that split experts have the tokens of all of them
    and a part of the width.
    """
    a = mixture(model)
    tokens, width = tokens * placement.expert_tp, a.moe_intermediate.si / placement.expert_tp
    top_k, shared = a.computing_top_k, a.shared_experts.si
    rows = laws.expert_rows(
        tokens, placement.ep, top_k=top_k, pool_dies=placement.pool_dies, imbalance=imbalance
    )
    used = laws.experts_touched(placement.slots, tokens * placement.ep * top_k, choices=placement.copies)
    routed = feed_forward(
        die,
        model,
        rows / used,
        width,
        groups=used,
        vector_efficiency=vector_efficiency,
        name="routed",
        stored=model.precision.experts,
        rows_vary=1.0,
    )
    shared_pool = placement.shared_dies + (1 - placement.dedicated) * placement.ep
    if shared == 0:
        return merged("experts", routed)
    shared_rows = laws.expert_rows(tokens, placement.ep, top_k=1.0, pool_dies=shared_pool, imbalance=1.0)
    shared_term = feed_forward(
        die,
        model,
        shared_rows,
        width,
        groups=shared,
        vector_efficiency=vector_efficiency,
        name="shared",
    )
    time = overlapped_time(routed.time, shared_term.time, overlap=placement.dedicated)
    return merged("experts", routed, shared_term, time=time)


VECTOR_KERNELS = 3.0
"""Norm, gate top-k, residual addition. [-]"""


def vector_row_bytes(model: Model) -> Numeric:
    """Traffic of the `VECTOR_KERNELS` of one token, read and written once each. [B]"""
    a = mixture(model)
    half, full = ELEMENT_BYTES["bf16"], ELEMENT_BYTES["fp32"]
    return a.hidden.si * 2 * half + a.choices * 2 * full + a.hidden.si * 3 * half


def leading_layers(model: Model) -> Numeric:
    """Dense layers before the mixtures. [-]"""
    return mixture(model).dense_layers.si


def leading_terms(die: Die, model: Model, tokens: Numeric, placement: Placement, flow: Flow) -> list[Term]:
    """The feed-forward of a dense leading layer, split as the experts are."""
    width = mixture(model).dense_intermediate
    return [] if width is None else split(die, model, tokens, width.si, placement.expert_tp, flow)


def weight_bytes(model: Model, placement: Placement, layers: Numeric, tp: Numeric) -> dict[str, Numeric]:
    """Experts of the die, router, dense leading layers; ``tp`` splits none of them. [B]"""
    a, p = mixture(model), model.precision
    hidden, byte = a.hidden.si, ELEMENT_BYTES[p.weights]
    width = a.moe_intermediate.si / placement.expert_tp
    expert = 3 * hidden * width * ELEMENT_BYTES[p.experts or p.weights]
    shared = 3 * hidden * width * byte
    on_every_die = 1 - placement.dedicated
    moe_layers = layers - a.dense_layers.si
    return {
        "routed_experts": moe_layers * placement.slots * expert,
        "shared_experts": moe_layers * on_every_die * a.shared_experts.si * shared,
        "router": moe_layers * hidden * a.choices * ELEMENT_BYTES["bf16"],
        "dense_layers": a.dense_layers.si * 3 * hidden * dense_width(a) / placement.expert_tp * byte,
    }


def split_bytes(model: Model, tp: Numeric) -> Numeric:
    """None: experts are spread and dense layers whole. [B]"""
    return 0.0


def dense_width(shapes: Mixture) -> Numeric:
    """Intermediate width of the dense layers; 0 where there are none. [-]"""
    return 0.0 if shapes.dense_intermediate is None else shapes.dense_intermediate.si


def copies(model: Model, slots: Numeric) -> Numeric:
    """One per pick, but no more than the die has experts. [-]"""
    return np.minimum(mixture(model).computing_top_k, slots)


def parameters(model: Model) -> Parameters:
    """Experts, router and dense layers. [-]"""
    a = mixture(model)
    expert = 3 * a.hidden.si * a.moe_intermediate.si
    always = a.shared_experts.si * expert + a.hidden.si * a.choices
    dense = a.dense_layers.si * 3 * a.hidden.si * dense_width(a)
    layers = a.layers.si - a.dense_layers.si
    return Parameters(
        dense + layers * (always + a.routed_experts.si * expert),
        dense + layers * (always + a.computing_top_k * expert),
    )


def row_width(model: Model) -> Numeric:
    """Nothing wider than attention is kept. [-]"""
    return 0.0


def sizes(model: Model) -> dict[str, float]:
    """Operand sizes for single operators. [-]"""
    a = mixture(model)
    names = {"intermediate": a.moe_intermediate, "experts": a.routed_experts, "top_k": a.top_k}
    return {name: float(quantity.si) for name, quantity in names.items()}
