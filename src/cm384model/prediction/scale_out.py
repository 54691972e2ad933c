"""Instances that reach beyond one scale-up network: who asked for them, and what that costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from cm384model.prediction.case import Case
from cm384model.prediction.decode import DecodeDeployment, decode_step
from cm384model.prediction.operators import scales_out
from cm384model.prediction.prefill import PrefillDeployment, prefill_batch
from cm384model.specs.diagnostics import SpecError

EXCHANGED = (
    *("dispatch", "combine", "latent_gather", "head_exchange"),
    *("attention_exchange", "feed_forward_exchange"),
)
"""Terms that move activations between the dies of an instance."""

Deployment = DecodeDeployment | PrefillDeployment


def allowed(case: Case, wanted: str | None) -> bool:
    """Whether an instance may reach beyond one supernode: as said, else as the engine is made for it."""
    return case.engine.scale_out if wanted is None else wanted == "yes"


def asked(case: Case, ep: float) -> str:
    """What ``--at`` of an instance of that size has to say besides; empty where nothing."""
    return ",scale_out=yes" if not allowed(case, None) and _reaches_beyond(case, ep) else ""


def check_scale_out(case: Case, deployment: Deployment, wanted: str | None) -> None:
    """Refuse an instance that reaches beyond one supernode unless that is wanted.

    Raises
    ------
    SpecError
        With what the exchange would cost.
    """
    if allowed(case, wanted) or not _reaches_beyond(case, deployment.ep):
        return
    raise SpecError.of(
        _said(case, deployment),
        f"--at scale_out=yes predicts it; an instance of at most {_domain(case)} dies stays inside",
    )


def notes_of(case: Case, deployment: Deployment) -> tuple[str, ...]:
    """What a reader must know of a deployment: its machine's notes, and what leaves a supernode."""
    notes = case.hardware.notes()
    return (*notes, _said(case, deployment)) if _reaches_beyond(case, deployment.ep) else notes


def exchange_times(case: Case, deployment: Deployment) -> tuple[float, float]:
    """Exchange of one step or batch: as it is, and if one scale-up network joined all dies. [s]"""
    ub = case.hardware.fabric.ub.write
    route = ub.inter_node if case.hardware.supernode.nodes.si > 1 else ub.intra_node
    flat = case.replaced("hardware.fabric.rdma.bandwidth", float(route.bandwidth.si))
    return _exchange_time(case, deployment), _exchange_time(flat, deployment)


def _exchange_time(case: Case, deployment: Deployment) -> float:
    predict: Any = decode_step if isinstance(deployment, DecodeDeployment) else prefill_batch
    terms = predict(case.system, deployment).terms
    return float(sum(term.time for term in terms if term.name in EXCHANGED))


def _reaches_beyond(case: Case, ep: Any) -> bool:
    return scales_out(case.hardware) and bool(np.any(np.asarray(ep) > case.hardware.dies_per_supernode))


def _domain(case: Case) -> int:
    return int(np.min(case.hardware.dies_per_supernode))


def _said(case: Case, deployment: Deployment) -> str:
    """How far an instance reaches, and the time of its exchange over RDMA beside that over UB."""
    domain, ep = _domain(case), float(np.max(deployment.ep))
    spans = f"ep = {ep:g} spans {-(-ep // domain):g} scale-up networks of {domain} dies"
    over_rdma, over_ub = exchange_times(case, deployment)
    if not over_rdma:
        return f"{spans}; no activations cross between them"
    unit = "step" if isinstance(deployment, DecodeDeployment) else "batch"
    return (
        f"{spans}: the exchange takes {over_rdma * 1e3:.3g} ms of a {unit} over RDMA, "
        f"{over_ub * 1e3:.3g} ms if one scale-up network joined all"
    )
