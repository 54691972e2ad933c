"""Every deployment of a phase: what there is to choose from and what each is worth."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from cm384model.numeric import Numeric
from cm384model.planning.caching import cache_levels
from cm384model.planning.layouts import Layout, decode_axes, prefill_layouts, sharing_npus
from cm384model.planning.request import Request
from cm384model.planning.walk import Explored, Options, Progress, Slice, explore, frontier, kinds
from cm384model.prediction.case import Case
from cm384model.prediction.decode import decode_step
from cm384model.prediction.evaluate import core_shares, filled_decode, filled_prefill
from cm384model.prediction.prefill import PrefillBatch, prefill_batch
from cm384model.prediction.serving import kv_transfer_time

MAX_BATCH_PER_DIE = 512
MAX_DRAFT_TOKENS = 3
MAX_TOKENS_PER_NPU = 65536
TOKENS_STEP = 1024


def instance_sizes(case: Case, npus: int, scale_out: bool = False) -> np.ndarray:
    """EP degrees that fill whole nodes, up to the NPUs given. [-]

    Where there are several supernodes and no instance may span them, each size divides the next
    one: then any instances that the NPUs suffice for can be laid out, none across a border.
    """
    hardware = case.hardware
    nodes = int(min(npus, hardware.total_npus) // hardware.npus_per_node)
    if hardware.supernodes == 1 or scale_out:
        sizes = np.arange(1, nodes + 1)
    else:
        sizes = np.array([size for size in _divisor_chain(int(hardware.supernode.nodes.si)) if size <= nodes])
    return int(hardware.dies_per_node) * sizes.astype(float)


def _divisor_chain(number: int) -> list[int]:
    """Numbers from 1 up to one given, each a divisor of the next, as many as there can be."""
    chain = [number]
    while chain[-1] > 1:
        smallest = next(d for d in range(2, chain[-1] + 1) if chain[-1] % d == 0)
        chain.append(chain[-1] // smallest)
    return chain[::-1]


def drafts(case: Case, request: Request) -> np.ndarray:
    """Numbers of draft tokens to choose from. [tokens]"""
    drafting = case.model.architecture.mtp_layers.si > 0 and "mtp" not in request.without
    return np.arange(0, MAX_DRAFT_TOKENS + 1 if drafting else 1, dtype=float)


def redundancies(case: Case, request: Request) -> np.ndarray:
    """Numbers of redundant experts to choose from: none, or the engine's. [-]"""
    default = float(case.engine.layout.redundant_experts.si)
    return np.array([0.0] if "redundancy" in request.without else sorted({0.0, default}))


Only = dict[str, np.ndarray]
"""Axes held at some of their values."""


def reuse_of(request: Request) -> float:
    """Share of the prompt tokens that a cache without a size may serve. [-]"""
    return 0.0 if "caching" in request.without else request.reuse


def decode_space(
    case: Case, request: Request, npus: int, only: Only | None = None, progress: Progress | None = None
) -> Explored:
    """All decode deployments: EP x requests x schedule x drafts x TP x redundancy x KV precision.

    The schedule axis is "serial" (share 1), then two microbatches with each split of the cores.
    With draft tokens given, step time and TPOT fall together, so they make the kind; each precision
    has its own hand-over to decode, so none replaces an option of another.
    """
    precisions = request.kv_precisions or (case.model.precision.kv,)
    explored = [
        _decode_space(case, request, npus, precision, only or {}, progress) for precision in precisions
    ]
    return _together(explored)


def _together(explored: list[Explored]) -> Explored:
    """Several spaces as one."""
    if len(explored) == 1:
        return explored[0]
    rejected = sum((Counter(e.rejected) for e in explored), Counter())
    nearest = {
        "free": max(e.nearest["free"] for e in explored),
        "tpot": min(e.nearest.get("tpot", np.inf) for e in explored),
        "delay": min(e.nearest.get("delay", np.inf) for e in explored),
    }
    size, evaluated, feasible = (
        sum(getattr(e, n) for e in explored) for n in ("size", "evaluated", "feasible")
    )
    options = Options.joined([e.options for e in explored])
    return Explored(size, evaluated, feasible, dict(rejected), options, nearest)


def _decode_space(
    case: Case, request: Request, npus: int, kv_precision: str, only: Only, progress: Progress | None
) -> Explored:
    case = case.with_kv_precision(kv_precision)
    transfer = kv_transfer_time(case)
    output_len = case.workload.traffic.output_len.si
    shares = np.zeros(0) if "microbatch" in request.without else core_shares(case)

    def evaluate(**at: Numeric) -> Slice:
        microbatches = np.where(at["attention_aic_share"] < 1, 2.0, 1.0)
        step = decode_step(case.system, filled_decode(case, at | {"microbatches": microbatches}))
        columns = {
            "npus": at["ep"] / case.hardware.dies_per_npu,
            "rate": at["batch_per_die"] * at["ep"] / (output_len * step.tpot),
            "tpot": step.tpot,
            "delay": step.step_time,
            "free": step.memory.free,
            "alone": 0.0,
            "prompts": 0.0,
            "spared": 0.0,
            "transfer": transfer,
            "most": np.inf,
        }
        return Slice(columns, {"hbm": step.memory.free < 0, "tpot": step.tpot > request.slo.tpot})

    axes = {
        "ep": instance_sizes(case, npus, request.scale_out),
        "batch_per_die": np.arange(1, MAX_BATCH_PER_DIE + 1, dtype=float),
        "attention_aic_share": np.concatenate([[1.0], shares]),
        "draft_tokens": drafts(case, request),
        **decode_axes(case, request),
        "redundant_experts": redundancies(case, request),
    }
    found = explore(axes | only, "batch_per_die", ("ep", "draft_tokens"), evaluate, progress)
    precision = np.full(len(found.options), kv_precision)
    return replace(
        found, options=replace(found.options, axes=found.options.axes | {"kv_precision": precision})
    )


def prefill_space(
    case: Case,
    request: Request,
    npus: int,
    only: Only | None = None,
    layouts: list[Layout] | None = None,
) -> Explored:
    """All prefill deployments: layout x EP x tokens per NPU x microbatches x redundancy.

    Of several layouts for as many prompts in an instance of one size those are dropped in which both a
    full batch and a prompt alone take longer than in another.
    """
    explored = []
    for layout in layouts or prefill_layouts(case, request):
        found = _prefill_space(case, request, npus, only or {}, layout)
        columns = {name: np.full(len(found.options), value) for name, value in layout.items()}
        options = replace(found.options, axes=found.options.axes | columns)
        explored.append(replace(found, options=options))
    together = _together(explored)
    return together if len(explored) == 1 else replace(together, options=_quick_layouts(together.options))


def _quick_layouts(options: Options) -> Options:
    """Options that no other of as many prompts and stages beats in both a full batch and a prompt alone.

    With a cache and with stages what is spared goes with the tokens and with the dies that share a
    prompt, so only options alike in these compete.
    """
    axes = options.axes
    sharing = np.where(axes["context_parallel"] > 0, axes["attention_tp"] * axes["context_parallel"], 0.0)
    apart = (axes["reuse"] > 0) | (axes["pipeline_stages"] > 1)
    columns = [axes[name] for name in ("ep", "pipeline_stages", "chunks", "reuse")]
    columns += [options.prompts, *(np.where(apart, own, 0.0) for own in (axes["tokens_per_npu"], sharing))]
    return options.take(frontier(kinds(columns), -options.delay, options.alone))


def _prefill_space(case: Case, request: Request, npus: int, only: Only, layout: Layout) -> Explored:
    """All prefill deployments of one layout: EP x tokens x microbatches x redundancy x hit rate of the cache.

    A batch that holds less than a prompt is a chunk of it: the prompt takes several. Every
    deployment is of its own kind, so none is dropped: in the queue a slower batch can be the
    quicker one, because a prompt alone takes less in it or because it holds more prompts. Nor does
    a full batch have to keep the TTFT: it is a limit that light traffic rarely fills.
    """
    prompt_len = case.workload.traffic.prompt_len.si
    levels = cache_levels(case, request)
    halves = [1.0] if "microbatch" in request.without else [1.0, 2.0]

    def evaluate(ep: Numeric, tokens_per_npu: Numeric, **at: Numeric) -> Slice:
        def batch_of(tokens_per_npu: Numeric) -> PrefillBatch:
            given = {"ep": ep, "tokens_per_npu": tokens_per_npu, "plane": request.cache_plane}
            return prefill_batch(case.system, filled_prefill(case, given | at | layout))

        npus_each = ep / case.hardware.dies_per_npu
        batch = batch_of(tokens_per_npu)
        sharing = sharing_npus(case, layout, npus_each)
        prompts, groups = tokens_per_npu * npus_each / prompt_len, npus_each / sharing
        one = np.minimum(prompt_len / sharing, tokens_per_npu)
        single = batch_of(one)
        chunks = np.ceil(prompt_len / (tokens_per_npu * sharing))
        columns = {
            "npus": npus_each,
            "rate": np.where(prompts < groups, groups / chunks, prompts) / batch.interval,
            "tpot": 0.0,
            "delay": chunks * batch.interval,
            "free": batch.memory.free,
            "alone": chunks * single.interval,
            "spared": single.interval - single.batch_time,
            "prompts": np.where(prompts < groups, np.where(groups > 1, groups, prompts), prompts),
            "transfer": 0.0,
            "most": levels.most_rate[np.searchsorted(levels.reuse, at["reuse"])],
        }
        return Slice(columns, {"hbm": batch.memory.free < 0})

    axes = {
        "ep": instance_sizes(case, npus, request.scale_out),
        "tokens_per_npu": TOKENS_STEP * np.arange(1, MAX_TOKENS_PER_NPU // TOKENS_STEP + 1, dtype=float),
        "microbatches": np.array(halves),
        "redundant_experts": redundancies(case, request),
        "reuse": levels.reuse,
    }
    return explore(axes | only, "tokens_per_npu", tuple(axes), evaluate)
