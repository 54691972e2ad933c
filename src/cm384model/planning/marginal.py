"""What one more of each thing would be worth to the winner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cm384model.planning.caching import with_nodes
from cm384model.planning.layouts import PLAIN
from cm384model.planning.pairs import highest_rate
from cm384model.planning.problem import Problem
from cm384model.planning.request import Request
from cm384model.planning.results import Marginal, Plan
from cm384model.planning.space import decode_space, prefill_space
from cm384model.prediction.case import Case

Change = Callable[[Case, Request, int], tuple[Case, Request, int]]

NOTHING = 1e-3
"""A change of the rate below this is none. [-]"""


def marginals(case: Case, request: Request, npus: int, plan: Plan) -> tuple[str, tuple[Marginal, ...]]:
    """What binds the winner, and the change of its request rate under each single change.

    Under every change the request is planned again, with everything free but the instance sizes,
    layouts and redundancy, which stay the winner's. A plan for a given rate takes some of the NPUs,
    and what those could serve at most is what changes.
    """
    npus = npus if request.rate is None else plan.npus
    changed = changes(case, request) | cache_changes(plan)
    request = replace(request, objective="throughput", rate=None, top=1)
    base = _rate(case, request, npus, plan)
    if base == 0:
        return "", ()
    found = [
        Marginal(name, _rate(*change(case, request, npus), plan) / base - 1)
        for name, change in changed.items()
    ]
    limits = [m for m in found if m.change.startswith(LIMITS) and m.requests_per_s_change > NOTHING]
    strongest = max(limits, key=lambda m: m.requests_per_s_change, default=None)
    binding = "npus" if strongest is None else strongest.change.split(" ")[0].lower()
    return binding, tuple(sorted(found, key=lambda m: -m.requests_per_s_change))


LIMITS = ("TPOT", "TTFT", "E2E", "concurrency", "HBM capacity")


def changes(case: Case, request: Request) -> dict[str, Change]:
    """Single changes by name; a limit that was not asked for has none."""
    libraries = (case.engine.ep_library, case.engine.prefill_ep_library)
    floors = [
        f"hardware.ops.{library}_{kind}.floor" for library in libraries for kind in ("dispatch", "combine")
    ]
    ub = [f"hardware.fabric.ub.write.{reach}_node.bandwidth" for reach in ("inter", "intra")]
    weights = case.model.precision.weights
    rates = [f"hardware.die.{p}_flop_rate" for p in sorted({"bf16", weights}) if case.hardware.flop_rate(p)]
    return {
        "HBM bandwidth +10 %": _scaled(["hardware.die.hbm_bandwidth"], 1.1),
        "HBM capacity +10 %": _scaled(["hardware.die.hbm_capacity"], 1.1),
        "cube peak +10 %": _scaled(rates, 1.1),
        "UB bandwidth +10 %": _scaled(ub, 1.1),
        "UB latency -50 %": _scaled(floors, 0.5),
        "nodes +1": _one_node_more,
        **{
            f"{name.upper()} limit +10 %": _wider(name)
            for name, limit in vars(request.slo).items()
            if np.isfinite(limit)
        },
        **({"concurrency limit +10 %": _more_at_once} if np.isfinite(request.max_concurrency) else {}),
    }


def cache_changes(plan: Plan) -> dict[str, Change]:
    """One node of DRAM more and one less where a plan sizes its cache; none where a share is given."""
    if plan.cache is None:
        return {"no context cache": _no_cache} if plan.prefill.reuse else {}
    nodes = plan.cache.nodes
    found = {"cache node +1": _cache_nodes(max(nodes + 1, plan.cache.limit_nodes), plan)}
    return found | ({"cache node -1": _cache_nodes(nodes - 1, plan)} if nodes else {})


def _no_cache(case: Case, request: Request, npus: int) -> tuple[Case, Request, int]:
    return case, replace(request, reuse=0.0), npus


def _cache_nodes(nodes: int, plan: Plan) -> Change:
    rate = plan.requests_per_s
    return lambda case, request, npus: (case, with_nodes(case, request, nodes, rate), npus)


def _scaled(paths: list[str], factor: float) -> Change:
    def change(case: Case, request: Request, npus: int) -> tuple[Case, Request, int]:
        for path in paths:
            case = case.replaced(path, float(case.quantity(path).si) * factor)
        return case, request, npus

    return change


def _wider(limit: str) -> Change:
    def change(case: Case, request: Request, npus: int) -> tuple[Case, Request, int]:
        slo = replace(request.slo, **{limit: vars(request.slo)[limit] * 1.1})
        return case, replace(request, slo=slo), npus

    return change


def _more_at_once(case: Case, request: Request, npus: int) -> tuple[Case, Request, int]:
    return case, replace(request, max_concurrency=request.max_concurrency * 1.1), npus


def _one_node_more(case: Case, request: Request, npus: int) -> tuple[Case, Request, int]:
    path = "hardware.supernode.nodes" if case.hardware.supernodes == 1 else "hardware.cluster.supernodes"
    more = case.replaced(path, float(case.quantity(path).si) + 1)
    return more, request, npus + int(case.hardware.npus_per_node)


def _rate(case: Case, request: Request, npus: int, plan: Plan) -> float:
    """Requests per second with the winner's instance sizes, layouts and redundancy."""
    d, p = plan.decode, plan.prefill
    decode = decode_space(
        case,
        replace(request, kv_precisions=(d.kv_precision,)),
        npus,
        {n: np.array([d.at[n]]) for n in ("ep", "attention_tp", "expert_tp", "redundant_experts")},
    )
    prefill = prefill_space(
        case,
        request,
        npus,
        {name: np.array([p.at[name]]) for name in ("ep", "redundant_experts")},
        [{name: p.at[name] for name in ("attention_tp", *PLAIN)}],
    )
    output_len = float(case.workload.traffic.output_len.si)
    return highest_rate(Problem(request, npus, output_len, decode.options, prefill.options))
