"""Instances that prefill and decode: every deployment within the NPUs, and the best of each size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cm384model.laws.mtp import expected_tokens
from cm384model.numeric import Numeric
from cm384model.planning.layouts import decode_axes
from cm384model.planning.pairs import SAME_RATE
from cm384model.planning.request import Request
from cm384model.planning.results import ColocatedPlan, DecodeInstance, Infeasible, decided
from cm384model.planning.space import (
    MAX_BATCH_PER_DIE,
    drafts,
    instance_sizes,
    redundancies,
    reuse_of,
)
from cm384model.planning.walk import crossed
from cm384model.prediction.case import Case
from cm384model.prediction.colocated import (
    Colocated,
    ColocatedDeployment,
    chunks_of,
    colocated_serving,
    prompt_groups,
)
from cm384model.prediction.decode import DecodeDeployment, decode_step
from cm384model.prediction.evaluate import core_shares, filled_decode, filled_prefill, with_best_split
from cm384model.prediction.families import attention_of
from cm384model.prediction.prefill import prefill_batch
from cm384model.prediction.serving import prefill_delay

PREFILL_TOKENS = (512.0, 2048.0, 8192.0, 32768.0)
"""Most prompt tokens of a batch or chunk on one NPU. [tokens]"""


AXES = 6
"""Axes of a block. [-]"""

BLOCK = 128
"""Values of requests per die evaluated at once. [-]"""


@dataclass(frozen=True)
class Candidates:
    """Deployments of one size that keep every limit, as columns, and what the others missed.

    ``nearest`` holds the most free memory, the highest rate of those that fit, and the lowest TPOT and
    TTFT of those that fit and serve the load; ``goes_on``
    is whether more requests may keep memory and TPOT.
    """

    columns: dict[str, np.ndarray]
    size: int
    rejected: dict[str, int]
    nearest: dict[str, float]
    goes_on: bool


@dataclass(frozen=True)
class ColocatedSearch:
    """The best plans, why there is none, and what became of the candidates."""

    plans: tuple[ColocatedPlan, ...]
    infeasible: Infeasible | None
    size: int
    feasible: int
    rejected: dict[str, int]


def colocated_plans(case: Case, request: Request, npus: int) -> ColocatedSearch:
    """The best plans, each of another instance size.

    All instances are alike and saturated: each keeps its batch full. For the highest rate as many
    of them serve as the NPUs and the limit on concurrency allow; for a given rate as few as serve
    it. Of plans whose rates differ by less than `SAME_RATE` the one with the lowest TPOT is first.
    """
    found = [
        (block, precision)
        for precision in request.kv_precisions or (case.model.precision.kv,)
        for ep in instance_sizes(case, npus, request.scale_out)
        for block in blocks(case, request, npus, ep, precision)
    ]
    rows = [(one, precision, row) for one, precision in found for row in _worth_keeping(one.columns, request)]
    plans: list[ColocatedPlan] = []
    while rows and len(plans) < request.top:
        one, _, row = best = _best(rows, request)
        plans.append(_plan(case, request, best, len(plans) + 1, plans[0] if plans else None))
        rows = [other for other in rows if other[0].columns["ep"][other[2]] != one.columns["ep"][row]]
    return ColocatedSearch(
        tuple(plans),
        None if plans else _why(request, [one for one, _ in found], npus),
        sum(one.size for one, _ in found),
        sum(len(one.columns["rate"]) for one, _ in found),
        dict(sum((Counter(one.rejected) for one, _ in found), Counter())),
    )


def blocks(case: Case, request: Request, npus: int, ep: float, kv_precision: str) -> Iterator[Candidates]:
    """Every deployment of one instance size, by requests per die.

    Memory and TPOT grow with the requests: after a block of which none keeps both, none does.
    """
    for low in range(0, MAX_BATCH_PER_DIE, BLOCK):
        batches = np.arange(low, min(low + BLOCK, MAX_BATCH_PER_DIE)) + 1.0
        found = candidates(case, request, npus, ep, kv_precision, batches)
        yield found
        if not found.goes_on:
            return


def candidates(
    case: Case, request: Request, npus: int, ep: float, kv_precision: str, batches: np.ndarray
) -> Candidates:
    """Deployments of one instance size: requests x drafts x TP x experts x prefill batch.

    The split of the cores, which nothing but the step depends on, is the quickest for each. A
    prefill batch holds the prompts that come while a step lasts, and no more than its limit.
    """
    case = case.with_kv_precision(kv_precision)
    axes = {
        "batch_per_die": batches,
        "draft_tokens": drafts(case, request),
        **decode_axes(case, request),
        "redundant_experts": redundancies(case, request),
        "limit": np.array(PREFILL_TOKENS),
    }
    at = {"ep": ep} | crossed(axes)
    deployment = _deployment(case, request, at)
    served = colocated_serving(case.system, deployment)
    npus_each = ep / case.hardware.dies_per_npu
    instances = _instances(request, served, npus, npus_each)
    load = served.rate if request.rate is None else request.rate / np.maximum(instances, 1)
    ttft = time_to_first_token(case, deployment, served, load)
    e2e = ttft + (deployment.output_len - 1) * served.tpot
    shape = tuple(len(axis) for axis in axes.values())
    reasons = {
        "hbm": served.memory.free < 0,
        "tpot": served.tpot > request.slo.tpot,
        "ttft": ttft > request.slo.ttft,
        "e2e": e2e > request.slo.e2e,
        "load": instances < 1,
    }
    allowed = np.ones(shape, dtype=bool)
    for mask in reasons.values():
        allowed &= ~np.broadcast_to(mask, shape)
    values = {
        "rate": served.rate * instances if request.rate is None else request.rate,
        "tpot": served.tpot,
        "ttft": ttft,
        "npus": npus_each * instances,
        "instances": instances,
        "free": served.memory.free,
        "concurrency": served.concurrency,
        "step_time": served.step.step_time,
        "prefill_share": served.prefill_share,
        **at,
        "attention_aic_share": deployment.decode.attention_aic_share,
        "tokens_per_npu": deployment.prefill.tokens_per_npu,
    }
    rows, late = np.nonzero(allowed), np.broadcast_to(reasons["hbm"] | reasons["tpot"], shape)
    fits = ~np.broadcast_to(reasons["hbm"], shape)
    rates = np.broadcast_to(served.rate * _most(request, served, npus, npus_each), shape)
    nearest = {"free": float(np.max(served.memory.free)), "rate": float(np.max(rates[fits], initial=0.0))}
    fits = fits & ~np.broadcast_to(reasons["load"], shape)
    for name, value in (("tpot", served.tpot), ("ttft", ttft), ("e2e", e2e)):
        nearest[name] = float(np.min(np.broadcast_to(value, shape)[fits], initial=np.inf))
    return Candidates(
        {name: np.broadcast_to(value, shape)[rows] for name, value in values.items()},
        allowed.size * (1 if "microbatch" in request.without else 1 + len(core_shares(case))),
        {name: int(np.count_nonzero(np.broadcast_to(mask, shape))) for name, mask in reasons.items()},
        nearest,
        not late[-1].all(),
    )


def _deployment(case: Case, request: Request, at: Mapping[str, Numeric]) -> ColocatedDeployment:
    """What is decided, with the quickest schedule, and the prefill batch that comes up to the limit."""
    traffic = case.workload.traffic
    decode = _with_quickest_schedule(case, request, filled_decode(case, at))
    alike = {name: at[name] for name in ("ep", "attention_tp", "expert_tp", "redundant_experts")}
    if not attention_of(case.model).SPLITS_PREFILL:
        alike["attention_tp"] = 1.0
    load = {"tokens_per_npu": 1.0, "microbatches": 1.0, "reuse": reuse_of(request)}
    prefill = filled_prefill(case, alike | load)
    whole = ColocatedDeployment(decode, prefill, traffic.output_len.si)
    drafted = expected_tokens(decode.draft_tokens, decode.acceptance)
    ended = decode.batch_per_die * decode.ep * drafted / (traffic.output_len.si - 1)
    prompts = np.maximum(prompt_groups(case.system, prefill), ended)
    natural = prompts * traffic.prompt_len.si / (decode.ep / case.hardware.dies_per_npu)
    return replace(whole, prefill=replace(prefill, tokens_per_npu=np.minimum(natural, at["limit"])))


def _with_quickest_schedule(case: Case, request: Request, decode: DecodeDeployment) -> DecodeDeployment:
    """Serial, or two microbatches with the split of the cores that has the shortest step."""
    if "microbatch" in request.without:
        return decode
    split = with_best_split(case, replace(decode, microbatches=2.0), axes=AXES)
    serial = decode_step(case.system, decode).step_time <= decode_step(case.system, split).step_time
    return replace(
        split,
        microbatches=np.where(serial, 1.0, 2.0),
        attention_aic_share=np.where(serial, 1.0, split.attention_aic_share),
    )


def _most(request: Request, served: Colocated, npus: int, npus_each: float) -> np.ndarray:
    """Instances that the NPUs and the limit on concurrency allow. [-]"""
    within = np.floor(request.max_concurrency / served.concurrency * (1 + 1e-12))
    return np.asarray(np.minimum(npus // npus_each, within))


def _instances(request: Request, served: Colocated, npus: int, npus_each: float) -> np.ndarray:
    """Instances of a plan; 0 where the NPUs or the limit on concurrency do not suffice. [-]"""
    most = _most(request, served, npus, npus_each)
    if request.rate is None:
        return most
    needed = np.maximum(np.ceil(request.rate / served.rate * (1 - 1e-12)), 1.0)
    return np.where(needed <= most, needed, 0.0)


def time_to_first_token(
    case: Case, deployment: ColocatedDeployment, served: Colocated, rate: Numeric
) -> Numeric:
    """Mean TTFT at Poisson arrivals: the step under way, the queue of prompts, and prefill. [s]"""
    p, system = deployment.prefill, case.system
    npus = p.ep / case.hardware.dies_per_npu
    chunks = chunks_of(system, deployment)
    one = replace(p, tokens_per_npu=np.minimum(p.prompt_len / npus, p.tokens_per_npu))
    between = (chunks - 1) * served.step.step_time
    return served.step.step_time + prefill_delay(
        rate,
        instances=1.0,
        prompts=p.tokens_per_npu * npus / p.prompt_len,
        full_time=chunks * served.batch.batch_time + between,
        alone_time=chunks * prefill_batch(system, one).batch_time + between,
    )


def _worth_keeping(columns: dict[str, np.ndarray], request: Request) -> Iterator[int]:
    """Rows of a block that can be the best of all that are left."""
    if not len(columns["rate"]):
        return
    if request.objective == "throughput":
        rate = columns["rate"]
        yield from map(int, np.flatnonzero(rate >= rate.max() * (1 - SAME_RATE)))
    else:
        yield int(_order(columns, request)[0])


def _order(columns: dict[str, np.ndarray], request: Request) -> np.ndarray:
    """Rows of columns, best first, when their rates count as the same."""
    rank = {"npus": ("npus", "tpot"), "latency": ("tpot", "npus"), "throughput": ("tpot", "npus")}
    first, second = rank[request.objective]
    keys = (columns["ttft"], -columns["rate"], columns[second], columns[first])
    order: np.ndarray = np.lexsort(keys)
    return order


Row = tuple[Candidates, str, int]


def _best(rows: list[Row], request: Request) -> Row:
    """The best of rows of many sizes."""
    names = ("rate", "tpot", "npus", "ttft")
    columns = {name: np.array([one.columns[name][row] for one, _, row in rows]) for name in names}
    same = np.arange(len(rows))
    if request.objective == "throughput":
        same = np.flatnonzero(columns["rate"] >= columns["rate"].max() * (1 - SAME_RATE))
    order = _order({name: column[same] for name, column in columns.items()}, request)
    return rows[int(same[order[0]])]


def _plan(case: Case, request: Request, best: Row, rank: int, first: ColocatedPlan | None) -> ColocatedPlan:
    one, kv_precision, row = best
    at = {name: float(column[row]) for name, column in one.columns.items()}
    at["microbatches"] = 2 if at["attention_aic_share"] < 1 else 1
    output_len = float(case.workload.traffic.output_len.si)
    plan = ColocatedPlan(
        rank=rank,
        **decided(DecodeInstance, at),
        kv_precision=kv_precision,
        tokens_per_npu=at["tokens_per_npu"],
        instances=int(at["instances"]),
        npus=int(at["npus"]),
        dies=int(at["ep"] * at["instances"]),
        tpot_s=at["tpot"],
        ttft_s=at["ttft"],
        e2e_s=at["ttft"] + (output_len - 1) * at["tpot"],
        step_time_s=at["step_time"],
        prefill_share=at["prefill_share"],
        requests_per_s=at["rate"],
        throughput_tokens_per_s_per_npu=at["rate"] * output_len / at["npus"],
        throughput_tokens_per_s=at["rate"] * output_len,
        concurrency=at["concurrency"] * at["instances"],
        relative=1.0,
        free_bytes=at["free"],
        reuse=reuse_of(request),
    )
    return plan if first is None else replace(plan, relative=_relative(request, first, plan))


def _relative(request: Request, first: ColocatedPlan, plan: ColocatedPlan) -> float:
    """The objective beside the winner's; below 1 is worse."""
    if request.objective == "throughput":
        return plan.requests_per_s / first.requests_per_s
    return first.npus / plan.npus if request.objective == "npus" else first.tpot_s / plan.tpot_s


def colocated_at(plan: ColocatedPlan) -> dict[str, float]:
    """One instance of a plan, as ``--at`` of the colocated phase takes it."""
    at = plan.at | {"tokens_per_npu": plan.tokens_per_npu}
    share = at.pop("attention_aic_share")
    if plan.microbatches > 1:
        at["attention_aic_share"] = share
    return at | ({"reuse": plan.reuse} if plan.reuse else {})


def _why(request: Request, found: list[Candidates], npus: int) -> Infeasible:
    """The first limit that no deployment keeps, or that none keeps beside the others."""
    free = max((one.nearest["free"] for one in found), default=-np.inf)
    if free < 0:
        return Infeasible(
            "hbm: no colocated deployment fits the memory of a die",
            f"the nearest is {-free / 1e9:.2f} GB over",
            "try more --npus, a shorter context or --set model.precision.kv=int8",
        )
    if all(np.isinf(one.nearest["tpot"]) for one in found):  # none serves the load, whatever the limits
        rate = max(one.nearest["rate"] for one in found)
        if not rate or request.rate is None:
            return Infeasible(
                f"max_concurrency: {request.max_concurrency:g} is less than one colocated instance holds",
                "",
                "try a higher --max-concurrency or --serving disaggregated",
            )
        return Infeasible(
            f"rate: no colocated deployment within {npus} NPUs serves {request.rate:g} requests/s",
            f"the most is {rate:.4g} requests/s",
            "try a lower --rate or more --npus",
        )
    for name in ("tpot", "ttft", "e2e"):
        limit = vars(request.slo)[name]
        nearest = min(one.nearest[name] for one in found)
        if limit < nearest < np.inf:
            return Infeasible(
                f"{name}: no colocated deployment keeps {limit * 1e3:g} ms",
                f"the nearest takes {nearest * 1e3:.4g} ms",
                f"try --slo {name}={np.ceil(nearest * 1e3):g}ms",
            )
    return Infeasible(
        f"no colocated deployment within {npus} NPUs keeps all limits at once",
        "each limit alone can be kept",
        "try a longer limit, a lower rate or --serving disaggregated",
    )
