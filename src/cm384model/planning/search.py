"""From candidates to plans: how many instances of which kind serve the most requests."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from cm384model.planning.explain import bound_by, less_than_a_node, why_infeasible
from cm384model.planning.pairs import Options, Pairs, Slo, decode_options, pairs, prefill_options
from cm384model.planning.results import DecodePool, Infeasible, Plan, PlanResult, PrefillPool
from cm384model.planning.space import Candidates, decode_candidates, prefill_candidates
from cm384model.prediction.case import Case
from cm384model.prediction.serving import kv_transfer_time


def plan_case(case: Case, npus: int, slo: Slo, top: int) -> PlanResult:
    """The plans that serve the most requests per second within ``npus``.

    Ranked by requests per second, then lower TPOT, then fewer NPUs, then lower TTFT: the
    winner is the lexicographic optimum over every pair of candidates and every number of
    whole instances, so no feasible plan beats it in all four.
    """
    started = time.perf_counter()
    if npus < case.hardware.npus_per_node:
        return _result(case, npus, slo, (), {}, less_than_a_node(case, npus), started)
    decode = decode_candidates(case, npus, slo.tpot)
    prefill = prefill_candidates(case, npus, slo.ttft)
    transfer = float(kv_transfer_time(case))
    decode_choice, prefill_choice = decode_options(case, decode), prefill_options(case, prefill)
    found = pairs(npus, slo, transfer, decode_choice, prefill_choice)
    plans = _ranked(case, decode, prefill, decode_choice, prefill_choice, found, transfer, top)
    infeasible = None if plans else why_infeasible(case, npus, slo, transfer, decode, prefill)
    spaces = {"decode": decode, "prefill": prefill}
    return _result(case, npus, slo, plans, spaces, infeasible, started)


def _result(
    case: Case,
    npus: int,
    slo: Slo,
    plans: tuple[Plan, ...],
    spaces: dict[str, Candidates],
    infeasible: Infeasible | None,
    started: float,
) -> PlanResult:
    return PlanResult(
        feasible=bool(plans),
        reasons=() if infeasible is None else (infeasible.constraint,),
        workload=case.workload.name,
        hardware=case.hardware.name,
        engine=case.engine.name,
        model=case.model.name,
        npus=npus,
        slo={"tpot_s": slo.tpot, "ttft_s": slo.ttft},
        plans=plans,
        candidates=sum(space.size for space in spaces.values()),
        feasible_candidates=sum(int(np.count_nonzero(space.feasible)) for space in spaces.values()),
        rejected={
            f"{phase}.{name}": n for phase, space in spaces.items() for name, n in space.counts().items()
        },
        infeasible=infeasible,
        elapsed_s=time.perf_counter() - started,
    )


def _ranked(
    case: Case,
    decode: Candidates,
    prefill: Candidates,
    decode_choice: Options,
    prefill_choice: Options,
    found: Pairs,
    transfer: float,
    top: int,
) -> tuple[Plan, ...]:
    plans: list[Plan] = []
    seen: set[tuple[int, int]] = set()
    for row in found.best_first():
        d, p = int(found.decode[row]), int(found.prefill[row])
        sizes = (int(decode_choice.size[d]), int(prefill_choice.size[p]))
        if sizes in seen:
            continue
        seen.add(sizes)
        decode_pool = _decode_pool(case, decode, decode_choice, d, int(found.decode_instances[row]))
        prefill_pool = _prefill_pool(case, prefill, prefill_choice, p, int(found.prefill_instances[row]))
        rate, tpot = float(found.rate[row]), float(found.tpot[row])
        used = decode_pool.npus + prefill_pool.npus
        output_len = float(case.workload.traffic.output_len.si)
        plan = Plan(
            rank=len(plans) + 1,
            decode=decode_pool,
            prefill=prefill_pool,
            npus=used,
            dies=decode_pool.dies + prefill_pool.dies,
            tpot_s=tpot,
            ttft_s=float(found.ttft[row]),
            kv_transfer_s=transfer,
            requests_per_s=rate,
            throughput_tokens_per_s_per_npu=rate * output_len / used,
            throughput_tokens_per_s=rate * output_len,
            concurrency=rate * output_len * tpot,
            relative=1.0 if not plans else rate / plans[0].requests_per_s,
            bound_by="",
        )
        plans.append(replace(plan, bound_by=bound_by(case, plan)))
        if len(plans) == top:
            break
    return tuple(plans)


def _decode_pool(
    case: Case, candidates: Candidates, options: Options, row: int, instances: int
) -> DecodePool:
    index = np.unravel_index(int(options.index[row]), candidates.shape)
    at = candidates.at(_ints(index))
    npus = int(options.npus[row])
    share = at["attention_aic_share"]
    tpot = float(candidates.values["tpot"][index])
    return DecodePool(
        ep=int(at["ep"]),
        batch_per_die=int(at["batch_per_die"]),
        microbatches=2 if share < 1 else 1,
        attention_aic_share=share,
        draft_tokens=int(at["draft_tokens"]),
        instances=instances,
        npus=npus * instances,
        dies=int(at["ep"]) * instances,
        step_time_s=float(candidates.values["step_time"][index]),
        throughput_tokens_per_s_per_npu=at["batch_per_die"] * case.hardware.dies_per_npu / tpot,
        capacity_requests_per_s=float(options.rate[row]) * instances,
        free_bytes=float(candidates.values["free"][index]),
    )


def _prefill_pool(
    case: Case, candidates: Candidates, options: Options, row: int, instances: int
) -> PrefillPool:
    index = np.unravel_index(int(options.index[row]), candidates.shape)
    at = candidates.at(_ints(index))
    npus = int(options.npus[row])
    batch_time = float(candidates.values["batch_time"][index])
    return PrefillPool(
        ep=int(at["ep"]),
        tokens_per_npu=int(at["tokens_per_npu"]),
        microbatches=int(at["microbatches"]),
        instances=instances,
        npus=npus * instances,
        dies=int(at["ep"]) * instances,
        batch_time_s=batch_time,
        throughput_tokens_per_s_per_npu=at["tokens_per_npu"] / batch_time,
        capacity_requests_per_s=float(options.rate[row]) * instances,
        free_bytes=float(candidates.values["free"][index]),
    )


def _ints(index: Any) -> tuple[int, ...]:
    return tuple(int(i) for i in index)
