"""From candidates to plans: how many instances of which kind serve the most requests."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cm384model.planning.explain import bound_by, why_infeasible
from cm384model.planning.results import DecodePool, Plan, PlanResult, PrefillPool
from cm384model.planning.space import Candidates, decode_candidates, prefill_candidates
from cm384model.prediction.case import Case
from cm384model.prediction.serving import kv_transfer_time


@dataclass(frozen=True)
class Slo:
    """Limits that every plan keeps. [s]"""

    tpot: float
    ttft: float


@dataclass(frozen=True)
class Options:
    """The candidates of one phase that no other candidate of the same size beats.

    Arrays of one length: ``size`` index of the instance size, ``npus`` of one instance,
    ``rate`` requests per second of one instance, ``tpot`` (for prefill: the batch time) and
    ``delay`` (decode step or batch time, in s), ``index`` flat index of the candidate.
    """

    size: np.ndarray
    npus: np.ndarray
    rate: np.ndarray
    tpot: np.ndarray
    delay: np.ndarray
    index: np.ndarray


def plan_case(case: Case, npus: int, slo: Slo, top: int) -> PlanResult:
    """The plans that serve the most requests per second within ``npus``.

    Ranked by requests per second, then lower TPOT, then fewer NPUs, then lower TTFT: the
    winner is the lexicographic optimum over every pair of candidates and every number of
    whole instances, so no feasible plan beats it in all four.
    """
    started = time.perf_counter()
    decode = decode_candidates(case, npus, slo.tpot)
    prefill = prefill_candidates(case, npus, slo.ttft)
    transfer = float(kv_transfer_time(case))
    decode_options = _decode_options(case, decode)
    prefill_options = _prefill_options(case, prefill)
    pairs = _pairs(npus, slo, transfer, decode_options, prefill_options)
    plans = _ranked(case, npus, decode, prefill, decode_options, prefill_options, pairs, transfer, top)
    rejected = {f"decode.{name}": n for name, n in decode.counts().items()}
    rejected |= {f"prefill.{name}": n for name, n in prefill.counts().items()}
    infeasible = None if plans else why_infeasible(case, npus, slo, transfer, decode, prefill)
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
        candidates=decode.size + prefill.size,
        feasible_candidates=int(np.count_nonzero(decode.feasible) + np.count_nonzero(prefill.feasible)),
        rejected=rejected,
        infeasible=infeasible,
        elapsed_s=time.perf_counter() - started,
    )


def _decode_options(case: Case, candidates: Candidates) -> Options:
    """Decode candidates that win in rate or TPOT among those of their size and draft tokens.

    With the draft tokens given, step time and TPOT fall together, so a candidate that loses in
    rate and TPOT loses in step time too.
    """
    sizes, batches, _, drafts = np.meshgrid(*candidates.axes.values(), indexing="ij", sparse=True)
    output_len = float(case.workload.traffic.output_len.si)
    tpot, step_time = candidates.values["tpot"], candidates.values["step_time"]
    rate = batches * sizes / (output_len * tpot)
    kind = sizes * (1 + drafts.max()) + drafts
    return _undominated(case, candidates, kind, rate, tpot, step_time)


def _prefill_options(case: Case, candidates: Candidates) -> Options:
    """Prefill candidates that win in rate or batch time among those of their size."""
    sizes, tokens, _ = np.meshgrid(*candidates.axes.values(), indexing="ij", sparse=True)
    prompt_len = float(case.workload.traffic.prompt_len.si)
    batch_time = candidates.values["batch_time"]
    rate = tokens * sizes / case.hardware.dies_per_npu / (prompt_len * batch_time)
    return _undominated(case, candidates, sizes, rate, batch_time, batch_time)


def _undominated(
    case: Case,
    candidates: Candidates,
    kind: np.ndarray,
    rate: np.ndarray,
    tpot: np.ndarray,
    delay: np.ndarray,
) -> Options:
    feasible = np.flatnonzero(candidates.feasible)
    columns = [
        np.broadcast_to(array, candidates.shape).ravel()[feasible] for array in (kind, rate, tpot, delay)
    ]
    kept = frontier(*columns[:3])
    size = np.unravel_index(feasible[kept], candidates.shape)[0]
    npus = candidates.axes["ep"][size] / case.hardware.dies_per_npu
    rate, tpot, delay = (column[kept] for column in columns[1:])
    return Options(size, npus, rate, tpot, delay, feasible[kept])


def frontier(kind: np.ndarray, rate: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Positions that no other position of the same kind beats in both rate and cost.

    In the order of falling rate (then cost), a row is on the frontier when its cost is below
    that of every row before it.
    """
    order = np.lexsort((cost, -rate, kind))
    keep = np.zeros(len(order), dtype=bool)
    starts = np.flatnonzero(np.diff(kind[order], prepend=np.nan))
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=False):
        costs = cost[order[start:stop]]
        keep[start] = True
        keep[start + 1 : stop] = costs[1:] < np.minimum.accumulate(costs)[:-1]
    return order[keep]


@dataclass(frozen=True)
class Pairs:
    """Combinations of a decode option, a prefill option and instance counts, as columns."""

    decode: np.ndarray
    prefill: np.ndarray
    decode_instances: np.ndarray
    prefill_instances: np.ndarray
    rate: np.ndarray
    tpot: np.ndarray
    npus: np.ndarray
    ttft: np.ndarray

    def best_first(self) -> np.ndarray:
        """Positions by requests per second, TPOT, NPUs and TTFT."""
        return np.lexsort((self.ttft, self.npus, self.tpot, -self.rate))


def _pairs(npus: int, slo: Slo, transfer: float, decode: Options, prefill: Options) -> Pairs:
    """Every decode option x its instance counts x prefill size, with the best prefill option.

    For given NPUs left to prefill the most instances give the highest rate; when decode limits
    the rate, the fewest instances and then the quickest batch that still carry it are taken.
    """
    instances = [np.arange(1, int(npus // n) + 1) for n in decode.npus]
    option = np.repeat(np.arange(len(decode.npus)), [len(i) for i in instances])
    count = np.concatenate(instances) if instances else np.zeros(0, dtype=int)
    left = npus - count * decode.npus[option]
    offered = count * decode.rate[option]
    budget = slo.ttft - transfer - decode.delay[option]
    columns: list[tuple[np.ndarray, ...]] = []
    for size in np.unique(prefill.size):
        rows = np.flatnonzero(prefill.size == size)
        rows = rows[np.argsort(prefill.delay[rows])]
        delay, rate, each = prefill.delay[rows], prefill.rate[rows], prefill.npus[rows[0]]
        most = (left // each).astype(int)
        within = np.searchsorted(delay, budget, side="right")
        use = np.flatnonzero((most > 0) & (within > 0))
        best = np.maximum.accumulate(rate)[within[use] - 1]
        served = np.minimum(offered[use], most[use] * best)
        few = np.minimum(np.ceil(served / best * (1 - 1e-12)).astype(int), most[use])
        few = np.maximum(few, 1)
        quickest = np.searchsorted(np.maximum.accumulate(rate), served / few * (1 - 1e-12))
        chosen = rows[quickest]
        total = count[use] * decode.npus[option[use]] + few * each
        ttft = prefill.delay[chosen] + transfer + decode.delay[option[use]]
        columns.append((option[use], chosen, count[use], few, served, decode.tpot[option[use]], total, ttft))
    stacked = [np.concatenate(c) for c in zip(*columns, strict=True)] or [np.zeros(0)] * 8
    return Pairs(*stacked)


def _ranked(
    case: Case,
    npus: int,
    decode: Candidates,
    prefill: Candidates,
    decode_options: Options,
    prefill_options: Options,
    pairs: Pairs,
    transfer: float,
    top: int,
) -> tuple[Plan, ...]:
    plans: list[Plan] = []
    seen: set[tuple[int, int]] = set()
    for row in pairs.best_first():
        d, p = int(pairs.decode[row]), int(pairs.prefill[row])
        sizes = (int(decode_options.size[d]), int(prefill_options.size[p]))
        if sizes in seen:
            continue
        seen.add(sizes)
        decode_pool = _decode_pool(case, decode, decode_options, d, int(pairs.decode_instances[row]))
        prefill_pool = _prefill_pool(case, prefill, prefill_options, p, int(pairs.prefill_instances[row]))
        rate, tpot = float(pairs.rate[row]), float(pairs.tpot[row])
        used = decode_pool.npus + prefill_pool.npus
        output_len = float(case.workload.traffic.output_len.si)
        plan = Plan(
            rank=len(plans) + 1,
            decode=decode_pool,
            prefill=prefill_pool,
            npus=used,
            dies=decode_pool.dies + prefill_pool.dies,
            tpot_s=tpot,
            ttft_s=float(pairs.ttft[row]),
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
