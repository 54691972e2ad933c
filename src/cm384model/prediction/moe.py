"""The operators of a mixture-of-experts layer, and of a dense feed-forward layer, as terms."""

from __future__ import annotations

import numpy as np

from cm384model.laws import moe as laws
from cm384model.laws.overlap import overlapped_time
from cm384model.numeric import Numeric
from cm384model.prediction.operators import ELEMENT_BYTES, Die, exchange, gemm, operator, vector
from cm384model.prediction.placement import Placement
from cm384model.prediction.terms import Term, merged
from cm384model.specs.model import Model


def moe_terms(
    die: Die,
    model: Model,
    tokens: Numeric,
    placement: Placement,
    *,
    imbalance: Numeric,
    library: str,
    message_scale_bytes: Numeric,
    copies_limit: Numeric,
    vector_efficiency: Numeric,
) -> list[Term]:
    """Gate, dispatch, experts and combine of one layer for ``tokens`` of each die.

    ``copies_limit`` is the most copies of a token that cross the fabric, where a library
    sends one per node and forwards inside.
    """
    a, p = model.architecture, model.precision
    destinations = np.minimum(a.top_k.si + placement.dedicated * a.shared_experts.si, copies_limit)
    sent = tokens * imbalance
    dispatch_message = a.hidden.si * ELEMENT_BYTES[p.activations] + message_scale_bytes
    combine_message = a.hidden.si * ELEMENT_BYTES["bf16"]
    return [
        merged(
            "gate",
            gemm(die, "router", tokens, a.routed_experts.si, a.hidden.si, precision="bf16"),
            vector(
                die,
                "moe_vector",
                tokens,
                vector_row_bytes(model),
                VECTOR_KERNELS,
                efficiency=vector_efficiency,
            ),
        ),
        exchange(
            die, "dispatch", sent, placement.ep, destinations, dispatch_message, library=f"{library}_dispatch"
        ),
        experts(die, model, tokens, placement, imbalance=imbalance, vector_efficiency=vector_efficiency),
        exchange(
            die, "combine", sent, placement.ep, destinations, combine_message, library=f"{library}_combine"
        ),
    ]


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
    waits for the slower of the two kinds.
    """
    a = model.architecture
    top_k, shared = a.top_k.si, a.shared_experts.si
    rows = laws.expert_rows(
        tokens, placement.ep, top_k=top_k, pool_dies=placement.pool_dies, imbalance=imbalance
    )
    used = laws.experts_touched(placement.slots, tokens * placement.ep * top_k, choices=placement.copies)
    routed = feed_forward(
        die,
        model,
        rows / used,
        a.moe_intermediate.si,
        groups=used,
        vector_efficiency=vector_efficiency,
        name="routed",
    )
    shared_pool = placement.shared_dies + (1 - placement.dedicated) * placement.ep
    if shared == 0:
        return merged("experts", routed)
    shared_rows = laws.expert_rows(tokens, placement.ep, top_k=1.0, pool_dies=shared_pool, imbalance=1.0)
    shared_term = feed_forward(
        die,
        model,
        shared_rows,
        a.moe_intermediate.si,
        groups=shared,
        vector_efficiency=vector_efficiency,
        name="shared",
    )
    time = overlapped_time(routed.time, shared_term.time, overlap=placement.dedicated)
    return merged("experts", routed, shared_term, time=time)


def feed_forward(
    die: Die,
    model: Model,
    rows: Numeric,
    intermediate: Numeric,
    *,
    groups: Numeric,
    vector_efficiency: Numeric,
    name: str = "feed_forward",
) -> Term:
    """Gated feed-forward of ``groups`` experts with ``rows`` token rows each."""
    a, p = model.architecture, model.precision
    return merged(
        name,
        gemm(die, "gate_up", rows, 2 * intermediate, a.hidden.si, groups=groups, precision=p.weights),
        swiglu(die, model, rows * groups, intermediate, vector_efficiency),
        gemm(die, "down", rows, a.hidden.si, intermediate, groups=groups, precision=p.weights),
    )


def swiglu(die: Die, model: Model, rows: Numeric, intermediate: Numeric, efficiency: Numeric) -> Term:
    """SwiGLU and quantisation of its result: two inputs read, one written, read and written again."""
    half, byte = ELEMENT_BYTES["bf16"], ELEMENT_BYTES[model.precision.activations]
    return vector(die, "swiglu", rows, intermediate * (4 * half + byte), 1.0, efficiency=efficiency)


VECTOR_KERNELS = 3.0
"""Norm, gate top-k, residual addition. [-]"""


def vector_row_bytes(model: Model) -> Numeric:
    """Traffic of the `VECTOR_KERNELS` of one token, read and written once each. [B]"""
    a = model.architecture
    half, full = ELEMENT_BYTES["bf16"], ELEMENT_BYTES["fp32"]
    return a.hidden.si * 2 * half + a.routed_experts.si * 2 * full + a.hidden.si * 3 * half
