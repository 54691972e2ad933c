"""From a request to ranked plans."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from cm384model.planning.cache_pool import best_with_cache
from cm384model.planning.caching import cache_levels, finer, with_both
from cm384model.planning.explain import bound_by, less_than_a_node, runner_up, why_infeasible
from cm384model.planning.marginal import marginals
from cm384model.planning.mixed import best_mix
from cm384model.planning.problem import Pools, Problem
from cm384model.planning.request import Request
from cm384model.planning.results import (
    DecodeInstance,
    DecodePool,
    FrontierPoint,
    Infeasible,
    MixedPools,
    Plan,
    PlanResult,
    PrefillInstance,
    PrefillPool,
    decided,
)
from cm384model.planning.space import decode_space, prefill_space
from cm384model.planning.walk import Explored, Options, Progress
from cm384model.prediction.case import Case
from cm384model.prediction.evaluate import filled_decode
from cm384model.prediction.scale_out import exchange_times

FRONTIER_POINTS = 24
USUAL_BATCH = 32.0
"""Requests per die at which the cost of larger instances is told. [-]"""


def plan_case(
    case: Case,
    request: Request,
    *,
    frontier: bool = False,
    mixed: bool = False,
    progress: Progress | None = None,
) -> PlanResult:
    """The best plans for a request, why they are the best, and what would help.

    ``frontier`` and ``mixed`` ask for the throughput-TPOT frontier and for decode instances of
    different sizes; ``progress`` is told how much of the decode space is behind.

    The winner is the exact optimum over every pair of deployments and every number of whole
    instances, in the order that `best_pools` states.
    """
    started = time.perf_counter()
    npus = request.npus - request.spare_nodes * int(case.hardware.npus_per_node)
    if npus < case.hardware.npus_per_node:
        return _result(case, request, (), {}, less_than_a_node(case, request, npus), started)
    if request.serving == "disaggregated":
        return _pools_apart(case, request, npus, started, frontier=frontier, mixed=mixed, progress=progress)
    from cm384model.planning.colocated import colocated_plans

    found = colocated_plans(case, request, npus)
    if request.serving == "both":
        result = _pools_apart(case, request, npus, started, frontier=frontier, mixed=mixed, progress=progress)
    else:
        result = _result(case, request, (), {}, found.infeasible, started)
    if found.plans:
        result = replace(result, feasible=True, reasons=(), infeasible=None)
    return replace(
        result,
        colocated=found.plans,
        candidates=result.candidates + found.size,
        evaluated_candidates=result.evaluated_candidates + found.size,
        feasible_candidates=result.feasible_candidates + found.feasible,
        rejected={**result.rejected, **{f"colocated.{name}": n for name, n in found.rejected.items()}},
        elapsed_s=time.perf_counter() - started,
    )


def _pools_apart(
    case: Case,
    request: Request,
    npus: int,
    started: float,
    *,
    frontier: bool,
    mixed: bool,
    progress: Progress | None,
) -> PlanResult:
    """The best plans with pools of prefill and of decode instances."""
    decode = decode_space(case, request, npus, progress=progress)
    prefill = prefill_space(case, request, npus)
    every = problem_of(case, request, npus, decode, prefill)
    problem, pools = best_with_cache(every, cache_levels(case, request))
    spaces = {"decode": decode, "prefill": prefill}
    if not len(pools):
        return _result(case, request, (), spaces, why_infeasible(case, every, decode, prefill), started)
    closer = finer(case, request, float(problem.prefill.axes["reuse"][int(pools.prefill[0])]))
    if closer is not None:
        spaces["finer_prefill"] = prefill_space(case, closer, npus)
        request = with_both(request, closer)
        options = Options.joined([problem.prefill, spaces["finer_prefill"].options])
        problem = replace(problem, request=request, prefill=options)
        sure = float(pools.rate.min()) if len(pools) == request.top else 0.0
        problem, pools = best_with_cache(problem, cache_levels(case, request), sure)
    plans = plans_of(case, problem, pools)
    result = _result(case, request, plans, spaces, None, started)
    binding, values = marginals(case, request, npus, plans[0])
    return replace(
        result,
        binding=binding,
        marginals=values,
        runner_up=runner_up(plans),
        frontier=frontier_of(case, every) if frontier else (),
        mixed=mixed_of(problem, pools) if mixed else None,
        elapsed_s=time.perf_counter() - started,
    )


def plan_notes(case: Case, request: Request) -> tuple[str, ...]:
    """What a reader must know of the machine, and what larger instances would cost if they were allowed."""
    notes = case.hardware.notes()
    if case.hardware.supernodes == 1 or request.scale_out:
        return notes
    domain = int(case.hardware.dies_per_supernode)
    larger = filled_decode(case, {"ep": 2.0 * domain, "batch_per_die": USUAL_BATCH})
    over_rdma, over_ub = exchange_times(case, larger)
    if not over_rdma:
        return notes
    return (
        *notes,
        f"an instance stays within one scale-up network of {domain} dies; at EP{2 * domain} and "
        f"{USUAL_BATCH:g} requests per die the exchange takes {over_rdma * 1e3:.3g} ms of a step over RDMA, "
        f"{over_ub * 1e3:.3g} ms if one network joined all: --scale-out allows it",
    )


def problem_of(case: Case, request: Request, npus: int, decode: Explored, prefill: Explored) -> Problem:
    """What the pools are chosen from and what they must keep."""
    output_len = float(case.workload.traffic.output_len.si)
    return Problem(request, npus, output_len, decode.options, prefill.options)


def mixed_of(problem: Problem, pools: Pools) -> MixedPools | None:
    """The best mix of decode sizes beside the winner."""
    mix = best_mix(problem, pools)
    if mix is None:
        return None
    ep = problem.decode.axes["ep"][mix.decode]
    batch = problem.decode.axes["batch_per_die"][mix.decode]
    instances = {
        f"EP{e:.0f} b{b:.0f}": int(n) for e, b, n in zip(ep, batch, mix.decode_instances, strict=True)
    }
    change = mix.rate / float(pools.rate[0]) - 1
    return MixedPools(instances, mix.prefill_instances, mix.npus, mix.rate, change)


def frontier_of(case: Case, problem: Problem) -> tuple[FrontierPoint, ...]:
    """Most requests per second as a function of the TPOT limit, up to the limit given."""
    tpot, levels = problem.decode.tpot, cache_levels(case, problem.request)
    points: list[FrontierPoint] = []
    for limit in np.geomspace(tpot.min(), tpot.max(), FRONTIER_POINTS):
        rows = np.flatnonzero(tpot <= limit * (1 + 1e-12))
        request = replace(problem.request, objective="throughput", top=1)
        within = replace(problem, request=request, decode=problem.decode.take(rows))
        within, best = best_with_cache(within, levels)
        if not len(best):
            continue
        plan = plans_of(case, within, best)[0]
        if points and plan.requests_per_s <= points[-1].requests_per_s:
            continue
        points.append(
            FrontierPoint(
                plan.tpot_s,
                plan.ttft_s,
                plan.requests_per_s,
                plan.throughput_tokens_per_s,
                plan.decode.ep,
                plan.decode.batch_per_die,
                plan.decode.npus,
                plan.prefill.npus,
            )
        )
    return tuple(points)


def _result(
    case: Case,
    request: Request,
    plans: tuple[Plan, ...],
    spaces: dict[str, Explored],
    infeasible: Infeasible | None,
    started: float,
) -> PlanResult:
    limits = {"tpot_s": request.slo.tpot, "ttft_s": request.slo.ttft}
    if np.isfinite(request.slo.e2e):
        limits["e2e_s"] = request.slo.e2e
    return PlanResult(
        feasible=bool(plans),
        reasons=() if infeasible is None else (infeasible.constraint,),
        workload=case.workload.name,
        hardware=case.hardware.name,
        engine=case.engine.name,
        model=case.model.name,
        objective=request.objective,
        rate_requests_per_s=request.rate,
        npus=request.npus,
        slo=limits,
        plans=plans,
        candidates=sum(space.size for space in spaces.values()),
        evaluated_candidates=sum(space.evaluated for space in spaces.values()),
        feasible_candidates=sum(space.feasible for space in spaces.values()),
        rejected={f"{phase}.{name}": n for phase, s in spaces.items() for name, n in s.rejected.items()},
        infeasible=infeasible,
        elapsed_s=time.perf_counter() - started,
        serving=request.serving,
        notes=plan_notes(case, request),
    )


def plans_of(case: Case, problem: Problem, pools: Pools) -> tuple[Plan, ...]:
    """Combinations as plans, in their order."""
    plans: list[Plan] = []
    levels, ttft_p95 = cache_levels(case, problem.request), problem.ttft_p95(pools)
    for row in range(len(pools)):
        rate, tpot, ttft = (float(column[row]) for column in (pools.rate, pools.tpot, pools.ttft))
        decode = _decode_pool(case, problem, int(pools.decode[row]), int(pools.decode_instances[row]), rate)
        prefill = _prefill_pool(
            case, problem, int(pools.prefill[row]), int(pools.prefill_instances[row]), rate
        )
        used = decode.npus + prefill.npus
        first = plans[0] if plans else None
        plan = Plan(
            rank=row + 1,
            decode=decode,
            prefill=prefill,
            npus=used,
            dies=decode.dies + prefill.dies,
            tpot_s=tpot,
            ttft_s=ttft,
            ttft_p95_s=float(ttft_p95[row]),
            e2e_s=ttft + (problem.output_len - 1) * tpot,
            tpot_slack_s=problem.request.slo.tpot - tpot,
            ttft_slack_s=problem.request.slo.ttft - ttft,
            kv_transfer_s=float(problem.decode.transfer[int(pools.decode[row])]),
            requests_per_s=rate,
            throughput_tokens_per_s_per_npu=rate * problem.output_len / used,
            throughput_tokens_per_s=rate * problem.output_len,
            concurrency=rate * problem.output_len * tpot,
            relative=_relative(problem, first, rate, used, tpot),
            bound_by="",
            cache=levels.pool(case, problem.request, prefill.reuse, rate),
            ttft_arrivals_s=problem.ttft_drifting(pools, row) if problem.request.arrivals else None,
        )
        plans.append(replace(plan, bound_by=bound_by(case, plan)))
    return tuple(plans)


def _relative(problem: Problem, first: Plan | None, rate: float, npus: int, tpot: float) -> float:
    """The objective beside the winner's; below 1 is worse."""
    if first is None:
        return 1.0
    objective = problem.request.objective
    if objective == "throughput":
        return rate / first.requests_per_s
    return first.npus / npus if objective == "npus" else first.tpot_s / tpot


def _decode_pool(case: Case, problem: Problem, row: int, instances: int, rate: float) -> DecodePool:
    options = problem.decode
    at = options.at(row)
    at["microbatches"] = 2 if at["attention_aic_share"] < 1 else 1
    tpot, capacity = float(options.tpot[row]), float(options.rate[row]) * instances
    return DecodePool(
        **decided(DecodeInstance, at),
        kv_precision=str(at["kv_precision"]),
        instances=instances,
        npus=int(options.npus[row]) * instances,
        dies=int(at["ep"]) * instances,
        step_time_s=float(options.delay[row]),
        throughput_tokens_per_s_per_npu=float(at["batch_per_die"] * case.hardware.dies_per_npu) / tpot,
        capacity_requests_per_s=capacity,
        utilisation=rate / capacity,
        free_bytes=float(options.free[row]),
    )


def _prefill_pool(case: Case, problem: Problem, row: int, instances: int, rate: float) -> PrefillPool:
    options = problem.prefill
    at = options.at(row) | {"plane": problem.request.cache_plane}
    capacity = float(options.rate[row]) * instances
    npus = int(options.npus[row])
    delay = float(problem.prefill_delay(rate, np.array(row), instances))
    prompt_len = float(case.workload.traffic.prompt_len.si)
    return PrefillPool(
        **decided(PrefillInstance, at),
        instances=instances,
        npus=npus * instances,
        dies=int(at["ep"]) * instances,
        batch_time_s=float(options.delay[row]),
        queue_time_s=max(delay - float(options.delay[row]), 0.0),
        throughput_tokens_per_s_per_npu=float(options.rate[row]) * prompt_len / npus,
        capacity_requests_per_s=capacity,
        utilisation=rate / capacity,
        free_bytes=float(options.free[row]),
    )
