"""What fits: the smallest instance, where a die's memory goes, the longest context and largest batch.

Every answer is a search over the ledger that `predict` prints. Free memory falls with every
further request and with every further token of context, so a search bit by bit is exact, and it
runs over whole arrays of instances, contexts and batches at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from cm384model.prediction.case import Case
from cm384model.prediction.decode import DecodeDeployment
from cm384model.prediction.evaluate import At
from cm384model.prediction.operators import ELEMENT_BYTES, scales_out
from cm384model.prediction.question import Deployment, Phase, Question, memory_of, read_question
from cm384model.prediction.results import SCHEMA
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.model import Mixture

__all__ = ["Capacity", "Phase", "fit_case"]

REFERENCE_EP = 320
"""Instance of the CloudMatrix384 paper, shown beside the smallest ones. [dies]"""
CONTEXTS = tuple(1024 * 2**i for i in range(11))
"""Contexts of the frontier: 1K to 1M. [tokens]"""
SMALLER_RESERVE = 0.05
"""Reserve of the what-if: the low end of what serving engines are run with. [-]"""


@dataclass(frozen=True)
class Size:
    """Dies that serve one copy of the model, and the packages and nodes that they are on."""

    dies: int
    npus: int
    nodes: int


@dataclass(frozen=True)
class LedgerPart:
    """What one purpose takes of a die; ``share`` is that of the capacity."""

    name: str
    size_bytes: float
    share: float


@dataclass(frozen=True)
class FrontierPoint:
    """A context and the most requests of it at once: per die in decode, per batch in prefill."""

    context: int
    batch: int
    requests: int


@dataclass(frozen=True)
class WhatIf:
    """What one single change gives; ``smallest`` is the smallest instance after it."""

    change: str
    feasible: bool
    free_bytes: float
    largest_batch: int
    longest_context: int
    smallest: Size | None


@dataclass(frozen=True)
class InstanceCapacity:
    """One size of instance: its ledger at the load asked for, and how far the load can grow.

    ``bound_by`` is the part that takes most of a die at the largest batch, ``lever`` the one
    setting whose change then allows the largest batch.
    """

    ep: int
    size: Size
    feasible: bool
    capacity_bytes: float
    free_bytes: float
    ledger: tuple[LedgerPart, ...]
    largest_batch: int
    longest_context: int
    bound_by: str
    lever: str | None
    by_context: tuple[FrontierPoint, ...]
    by_batch: tuple[FrontierPoint, ...]
    what_ifs: tuple[WhatIf, ...]


@dataclass(frozen=True)
class Miss:
    """Why the answer is no: the constraint, the nearest miss, one hint."""

    constraint: str
    nearest: str
    hint: str


@dataclass(frozen=True)
class Capacity:
    """Whether a model fits, on what, and how much of it.

    ``deployment`` holds what all instances have in common, ``npus`` the most NPUs of one.
    """

    feasible: bool
    reasons: tuple[str, ...]
    workload: str
    hardware: str
    engine: str
    model: str
    npus: int
    deployment: Mapping[str, Any]
    smallest: Size | None
    smallest_of_nodes: Size | None
    instances: tuple[InstanceCapacity, ...]
    infeasible: Miss | None
    notes: tuple[str, ...] = ()
    schema: int = SCHEMA
    phase: str = "decode"


def size_of(case: Case, dies: int | None) -> Size | None:
    """Dies with the NPUs and the nodes that they are on."""
    if dies is None:
        return None
    per_npu, per_node = int(case.hardware.dies_per_npu), int(case.hardware.dies_per_node)
    return Size(dies, -(-dies // per_npu), -(-dies // per_node))


def fit_case(case: Case, phase: Phase, at: At = (), npus: int | None = None) -> Capacity:
    """Say what a deployment needs and how far it goes.

    Parameters
    ----------
    case : Case
        Machine, engine, model and workload.
    phase : {"decode", "prefill"}
        Which half of serving.
    at : mapping or iterable of str
        As in `predict`, but nothing is required: without ``ep`` the smallest instances that fit
        are shown, without a load one request, per die in decode and per instance in prefill.
    npus : int, optional
        Most NPUs of the instance; by default all of the machine.

    Raises
    ------
    SpecError
        For unknown names, values out of bounds, and an ``ep`` beyond ``npus``.
    """
    question, ep = read_question(case, phase, at)
    limit = _limit(question, npus, ep)
    smallest = size_of(case, question.smallest())
    of_nodes = size_of(case, question.smallest(whole_nodes=True))
    sizes = [size.dies for size in (smallest, of_nodes) if size is not None]
    chosen = [ep] if ep else _shown(question, {*sizes, REFERENCE_EP if npus is None else limit}, limit)
    feasible = bool(question.free_as_asked(float(chosen[0])) >= 0)
    if not feasible and smallest is not None:
        chosen.append(smallest.dies)
    instances = tuple(instance_capacity(question, dies) for dies in dict.fromkeys(chosen))
    miss = None if feasible else _miss(question, instances[0], smallest, given=ep is not None)
    return Capacity(
        feasible=feasible,
        reasons=() if miss is None else (miss.constraint,),
        workload=case.workload.name,
        hardware=case.hardware.name,
        engine=case.engine.name,
        model=case.model.name,
        npus=limit // int(case.hardware.dies_per_npu),
        deployment=_common(question),
        smallest=smallest,
        smallest_of_nodes=of_nodes,
        instances=instances,
        infeasible=miss,
        notes=(*case.hardware.notes(), *_reach(case, [*sizes, *chosen])),
        phase=phase,
    )


def _reach(case: Case, sizes: list[int]) -> Iterator[str]:
    """Which of the sizes need more than one scale-up network."""
    domain = int(case.hardware.dies_per_supernode)
    beyond = sorted({dies for dies in sizes if dies > domain})
    if beyond and scales_out(case.hardware):
        shown = ", ".join(f"EP{dies}" for dies in beyond)
        spans = "spans" if len(beyond) == 1 else "span"
        yield f"{shown} {spans} scale-up networks of {domain} dies; predict needs scale_out=yes"


def instance_capacity(question: Question, dies: int) -> InstanceCapacity:
    """The ledger of a die in an instance of so many dies, and how far the load can grow."""
    ep, context = float(dies), question.context
    batch = question.batch(ep)
    ledger = ledger_of(question.case, question.at(ep, batch, context))
    most = int(question.largest_batch(ep, context))
    full = ledger_of(question.case, question.at(ep, most or batch, context))
    changes = [(change, is_setting) for change, is_setting in _what_ifs(question, ep)]
    levers = [change for change, is_setting in changes if is_setting and change.largest_batch > most]
    lever = max(levers, key=lambda change: change.largest_batch, default=None)
    free = ledger[-1].size_bytes
    return InstanceCapacity(
        ep=dies,
        size=cast(Size, size_of(question.case, dies)),
        feasible=free >= 0,
        capacity_bytes=float(question.case.hardware.die.hbm_capacity.si),
        free_bytes=free,
        ledger=ledger,
        largest_batch=most,
        longest_context=int(question.longest_context(ep, batch)),
        bound_by=max(full[:-1], key=lambda part: part.size_bytes).name,
        lever=None if lever is None else lever.change,
        by_context=_by_context(question, ep),
        by_batch=_by_batch(question, ep),
        what_ifs=tuple(change for change, _ in changes),
    )


_BUFFERS = ("exchange_buffers", "latent_gather", "activations")
_ORDER = (
    *("attention", "routed_experts", "redundant_experts", "shared_experts", "router", "dense_layers"),
    *("mtp_layers", "embedding", "lm_head", "kv_cache", *_BUFFERS, "reserve", "free"),
)
"""Order of the ledger; a part that is not named here stands before the KV cache."""


def ledger_of(case: Case, deployment: Deployment) -> tuple[LedgerPart, ...]:
    """Where the memory of a die goes, what is free last; the sizes add up to the capacity.

    Redundant experts and the MTP layer, which `predict` counts with the layers of the model,
    stand apart: as what the ledger loses without them.
    """
    memory = memory_of(case, deployment)
    plain = case.replaced("model.architecture.mtp_layers", 0.0)
    parts = dict(memory_of(plain, deployment).parts)
    bare = memory_of(plain, replace(deployment, redundant_experts=0.0)).parts
    experts = {}
    if "routed_experts" in bare:
        redundant = parts["routed_experts"] - bare["routed_experts"]
        experts = {"routed_experts": bare["routed_experts"], "redundant_experts": redundant}
    sizes = {
        **parts,
        **experts,
        "mtp_layers": sum(memory.parts.values()) - sum(parts.values()),
        "kv_cache": memory.kv_cache,
        "reserve": memory.reserve,
        "free": memory.free,
    }
    sizes.pop("mtp_projection", None)
    order = {name: place for place, name in enumerate(_ORDER)}
    names = sorted(sizes, key=lambda name: order.get(name, order["kv_cache"] - 0.5))
    capacity = float(memory.capacity)
    return tuple(LedgerPart(name, float(sizes[name]), float(sizes[name]) / capacity) for name in names)


def _by_context(question: Question, ep: float) -> tuple[FrontierPoint, ...]:
    batches = question.largest_batch(ep, np.array(CONTEXTS, dtype=float))
    return tuple(_point(question, ep, *point) for point in zip(CONTEXTS, batches, strict=True))


def _by_batch(question: Question, ep: float) -> tuple[FrontierPoint, ...]:
    most = int(question.largest_batch(ep, float(CONTEXTS[0])))
    batches = 2.0 ** np.arange(most.bit_length())
    contexts = question.longest_context(ep, batches)
    return tuple(_point(question, ep, *point) for point in zip(contexts, batches, strict=True))


def _point(question: Question, ep: float, context: float, batch: float) -> FrontierPoint:
    instances = int(ep) if question.phase == "decode" else 1
    return FrontierPoint(int(context), int(batch), int(batch) * instances)


def _what_ifs(question: Question, ep: float) -> Iterator[tuple[WhatIf, bool]]:
    """What each single change gives, and whether it is a setting, not another load or size."""
    for change, changed, to_ep, is_setting in _changes(question, ep):
        free = float(changed.free_as_asked(to_ep))
        most = int(changed.largest_batch(to_ep, changed.context))
        longest = int(changed.longest_context(to_ep, changed.batch(to_ep)))
        yield (
            WhatIf(change, free >= 0, free, most, longest, size_of(question.case, changed.smallest())),
            is_setting,
        )


def _changes(question: Question, ep: float) -> Iterator[tuple[str, Question, float, bool]]:
    """Every change worth a try, as it is typed; the question and the size after it."""
    case, now = question.case, question.at(ep, question.batch(ep), question.context)
    if now.redundant_experts > 0 and isinstance(case.model.architecture, Mixture):
        yield "--at redundant_experts=0", question.with_given(redundant_experts=0.0), ep, True
    if ELEMENT_BYTES[case.model.precision.kv] > ELEMENT_BYTES["int8"]:
        setting = "model.precision.kv=int8"
        yield f"--set {setting}", question.with_setting(setting), ep, True
    if case.engine.memory.reserve_share.si > SMALLER_RESERVE:
        setting = f"engine.memory.reserve_share={SMALLER_RESERVE:g}"
        yield f"--set {setting}", question.with_setting(setting), ep, True
    loads = {name: question.given[name] for name in ("tokens_per_npu",) if name in question.given}
    if isinstance(now, DecodeDeployment):
        if now.draft_tokens > 0:
            yield "--at draft_tokens=0", question.with_given(draft_tokens=0.0), ep, True
        if now.attention_tp == 1 and ep % 2 == 0 and case.model.architecture.heads.si % 2 == 0:
            yield "--at attention_tp=2", question.with_given(attention_tp=2.0), ep, True
        loads = {"batch_per_die": now.batch_per_die, "kv_len": now.kv_len}
    for name, load in loads.items():
        if load >= 2:
            yield f"--at {name}={load // 2:g}", question.with_given(**{name: load // 2}), ep, False
    if 2 * ep <= case.hardware.total_dies:
        yield f"--at ep={2 * ep:g}", question, 2 * ep, False


def _limit(question: Question, npus: int | None, ep: int | None) -> int:
    """Most dies of an instance; the limit is checked against the machine and the size asked for."""
    hardware = question.case.hardware
    total, dies_per_npu = int(hardware.total_npus), int(hardware.dies_per_npu)
    if npus is not None and not 1 <= npus <= total:
        raise SpecError.of(f"npus = {npus} is out of bounds", hardware.said_to_have(npus))
    dies = (npus or total) * dies_per_npu
    if ep is not None and ep > dies:
        raise SpecError.of(f"ep = {ep} is more than the {dies} dies of {npus} NPUs", "give one of the two")
    if dies < question.step:
        raise SpecError.of(f"attention_tp = {question.step} is more than the {dies} dies of {npus} NPUs")
    return dies


def _shown(question: Question, wanted: set[int], limit: int) -> list[int]:
    """Those of some sizes that fit within the limit; if none does, the size that is nearest to it."""
    within = sorted(dies for dies in wanted if dies <= limit and dies % question.step == 0)
    fitting = [dies for dies in within if question.free_as_asked(float(dies)) >= 0]
    if fitting:
        return fitting
    eps = np.arange(question.step, limit + 1, question.step, dtype=float)
    return [int(eps[np.argmax(question.free_as_asked(eps))])]


def _common(question: Question) -> dict[str, Any]:
    """Values that all instances share, defaults filled in."""
    values = {**vars(question.at(1.0, question.batch(1.0), question.context)), **question.given}
    own = {"ep", "attention_aic_share", "balance"}
    if "tokens_per_npu" not in question.given:
        own.add("tokens_per_npu")
    return {
        name: value if isinstance(value, str) else float(value)
        for name, value in values.items()
        if name not in own
    }


def _miss(question: Question, instance: InstanceCapacity, smallest: Size | None, *, given: bool) -> Miss:
    """Why an instance does not hold its load, and what would."""
    size, heaviest = instance.size, max(instance.ledger[:-1], key=lambda part: part.size_bytes)
    where = f"{size.npus} NPUs ({size.dies} dies)"
    constraint = f"hbm: {-instance.free_bytes / 1e9:.2f} GB over the capacity of a die on {where}"
    takes = f"{heaviest.size_bytes / 1e9:.1f} GB, {heaviest.share:.0%} of a die"
    nearest = [f"the largest part is {heaviest.name}: {takes}"]
    tries = []
    if instance.largest_batch:
        words, least = _smaller_load(question, instance)
        nearest.append(f"{words} fit")
        tries.append(f"--at {least}")
    if smallest is not None:
        nearest.append(f"the smallest instance that fits is {smallest.npus} NPUs ({smallest.dies} dies)")
        tries.append(f"--at ep={smallest.dies}" if given else f"--npus {smallest.npus}")
    tries += [change.change for change in instance.what_ifs if change.feasible and "ep=" not in change.change]
    if not tries:
        tries = ["a smaller model, --set model.precision.weights=int4 or a machine with more memory per die"]
    return Miss(constraint, "; ".join(nearest), f"try {' or '.join(dict.fromkeys(tries))}")


def _smaller_load(question: Question, instance: InstanceCapacity) -> tuple[str, str]:
    """The largest batch that fits, in words and as it is typed."""
    most = instance.largest_batch
    if question.phase == "decode":
        return f"{most} requests per die", f"batch_per_die={most}"
    tokens = -(-int(most * question.context) // instance.size.npus)
    return f"{most} prompts per batch", f"tokens_per_npu={tokens}"
