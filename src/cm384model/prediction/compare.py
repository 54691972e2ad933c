"""Two predictions side by side: what was asked differently, every term, every total, every part of memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from cm384model.prediction.capacity import ledger_of
from cm384model.prediction.case import Case
from cm384model.prediction.decode import DecodeDeployment
from cm384model.prediction.prefill import PrefillDeployment
from cm384model.prediction.results import (
    SCHEMA,
    ColocatedPrediction,
    DecodePrediction,
    PrefillPrediction,
    TermResult,
)
from cm384model.specs.deployment import PHASE_FIELDS, SAME_THING, read_at
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.quantity import Quantity
from cm384model.specs.spec import nodes

Prediction = DecodePrediction | PrefillPrediction | ColocatedPrediction

FIGURES = (
    *("tpot_s", "step_time_s", "tokens_per_step", "batch_time_s", "layer_time_s"),
    *("ttft_s", "e2e_s", "longest_gap_s", "prefill_share", "concurrency", "requests_per_s"),
    *(
        "throughput_tokens_per_s_per_npu",
        "run_time_s",
        "run_tokens_per_s_per_npu",
        "run_tpot_s",
        "run_ttft_s",
    ),
)
"""Totals that are put side by side, where both predictions have them."""
KINDS = ("workload", "model", "hardware", "engine")
MOST_NUMBERS = 12
"""Numbers of two different files are listed up to this many; beyond, the names of the files say it. [-]"""
WHOLE = {
    "decode": ("step", "step_time_s"),
    "prefill": ("batch", "batch_time_s"),
    "colocated": ("request", "e2e_s"),
}
"""What the terms add up to, in words and as a quantity, by phase."""


@dataclass(frozen=True)
class Figure:
    """One thing on both sides: numbers with the ratio B / A, or words."""

    name: str
    a: Any
    b: Any
    ratio: float | None = None

    @classmethod
    def of(cls, name: str, a: Any, b: Any) -> Figure:
        """With the ratio, where there is one."""
        return cls(name, a, b, ratio_of(a, b))


@dataclass(frozen=True)
class TermSide:
    """A term on one side; ``npu_time_s`` is what a token of it costs, in NPU-seconds."""

    time_s: float
    npu_time_s: float
    flop: float
    bytes: float
    bound: str


@dataclass(frozen=True)
class TermPair:
    """A term on both sides: ratios B / A, and its part of the difference of the totals.

    ``share`` is that of the difference of the step or batch, ``npu_share`` that of the
    difference in NPU-seconds per token.
    """

    name: str
    a: TermSide
    b: TermSide
    ratio: Mapping[str, float | None]
    difference_s: float
    share: float | None
    npu_difference_s: float
    npu_share: float | None


@dataclass(frozen=True)
class Side:
    """One side: what it is and all that is predicted of it."""

    workload: str
    model: str
    hardware: str
    engine: str
    npus: int
    dies: int
    prediction: Prediction


@dataclass(frozen=True)
class Comparison:
    """Two predictions; ``main_term`` explains most of the difference, None where there is none."""

    feasible: bool
    reasons: tuple[str, ...]
    a: Side
    b: Side
    differences: tuple[Figure, ...]
    figures: tuple[Figure, ...]
    terms: tuple[TermPair, ...]
    main_term: str | None
    ledger: tuple[Figure, ...]
    schema: int = SCHEMA
    phase: str = "decode"


def compare_predictions(case_a: Case, case_b: Case, a: Prediction, b: Prediction) -> Comparison:
    """Put two predictions of the same phase side by side."""
    sides = _side(case_a, a), _side(case_b, b)
    feasible = a.feasible and b.feasible
    terms = tuple(_term_pairs(a, b, sides)) if feasible else ()
    return Comparison(
        feasible=feasible,
        reasons=tuple(f"{name}: {why}" for name, p in (("A", a), ("B", b)) for why in p.reasons),
        a=sides[0],
        b=sides[1],
        differences=(*case_differences(case_a, case_b), *_deployment_differences(a, b)),
        figures=tuple(_figures(a, b)) if feasible else (),
        terms=terms,
        main_term=_main_term(terms),
        ledger=tuple(_ledger_pairs(_ledger(case_a, a), _ledger(case_b, b))),
        phase=a.phase,
    )


def merged_at(
    phase: str, at: Mapping[str, Any] | Iterable[str], at_b: Mapping[str, Any] | Iterable[str]
) -> Any:
    """The deployment of B: that of A, with what is said of B alone in its place.

    Raises
    ------
    SpecError
        For unknown names and bad values on either side.
    """
    both, own = (read_at(given, PHASE_FIELDS[phase], f"a {phase} deployment") for given in (at, at_b))
    for names in SAME_THING:  # one of them for B replaces another of A
        if any(name in own for name in names):
            both = {name: value for name, value in both.items() if name not in names}
    return {**both, **own}


@contextmanager
def told_of_b() -> Iterator[None]:
    """Errors inside say that they are B's, and name the options that change B alone."""

    def own(text: str) -> str:
        return re.sub(r"--(set|at|npus|slo)(?= )", r"--\1-b", text)

    try:
        yield
    except SpecError as error:
        raise SpecError(
            [
                replace(p, message=f"B: {own(p.message)}", hint=own(p.hint or "") or None)
                for p in error.problems
            ]
        ) from error


def check_different(differences: tuple[Figure, ...]) -> None:
    """Refuse to compare a thing with itself.

    Raises
    ------
    SpecError
        If nothing differs.
    """
    if not differences:
        hint = "name a second workload, or say what B has: --at-b ep=144, --set-b, --hardware-b, --engine-b"
        raise SpecError.of("A and B are the same", hint)


def ratio_of(a: Any, b: Any) -> float | None:
    """B / A where both are numbers and A is not 0."""
    numbers = all(isinstance(value, int | float) for value in (a, b))
    return float(b) / float(a) if numbers and a else None


def case_differences(case_a: Case, case_b: Case) -> Iterator[Figure]:
    """Files that are not the same, and numbers and words that are not, where they are few."""
    for kind in KINDS:
        spec_a, spec_b = getattr(case_a, kind), getattr(case_b, kind)
        if spec_a.name != spec_b.name:
            yield Figure(kind, spec_a.name, spec_b.name)
        values_a, values_b = _values(spec_a), _values(spec_b)
        names = [n for n in {**values_a, **values_b} if _si(values_a.get(n)) != _si(values_b.get(n))]
        if spec_a.name == spec_b.name or len(names) <= MOST_NUMBERS:
            for name in names:
                yield _difference(f"{kind}.{name}", values_a.get(name), values_b.get(name))


def _difference(name: str, a: Any, b: Any) -> Figure:
    words = [f"{v.value:g} {v.unit}".removesuffix(" -") if isinstance(v, Quantity) else v for v in (a, b)]
    numbers = isinstance(a, Quantity) and isinstance(b, Quantity)
    return Figure(name, words[0], words[1], ratio_of(float(a.si), float(b.si)) if numbers else None)


def _values(spec: Any) -> dict[str, Any]:
    """Everything a setting can change, by path: a quantity or a word."""
    return {
        path: node
        for path, node in nodes(spec)
        if isinstance(node, Quantity | str) and path.split(".")[0] not in spec.not_settable
    }


def _si(node: Any) -> Any:
    return float(node.si) if isinstance(node, Quantity) else node


def _deployment_differences(a: Prediction, b: Prediction) -> Iterator[Figure]:
    for name in {**a.deployment, **b.deployment}:
        first, second = a.deployment.get(name), b.deployment.get(name)
        if first != second:
            yield Figure.of(name, first, second)


def _side(case: Case, prediction: Prediction) -> Side:
    dies = int(prediction.deployment["ep"])
    npus = dies // int(case.hardware.dies_per_npu)
    return Side(
        case.workload.name,
        case.model.name,
        case.hardware.name,
        case.engine.name,
        npus,
        dies,
        prediction,
    )


def _figures(a: Prediction, b: Prediction) -> Iterator[Figure]:
    for name in FIGURES:
        first, second = getattr(a, name, None), getattr(b, name, None)
        if first is not None or second is not None:
            yield Figure.of(name, first, second)


def _term_pairs(a: Prediction, b: Prediction, sides: tuple[Side, Side]) -> Iterator[TermPair]:
    """Every term of either side, and the time that overlap hides as one more."""
    found = [_terms(prediction) for prediction in (a, b)]
    costs = [_cost(prediction) for prediction in (a, b)]
    rows = []
    for name in {**found[0], **found[1]}:
        none = TermResult(name, 0.0, 0.0, 0.0, "")
        first, second = (
            TermSide(
                term.time_s, term.time_s * cost, term.flop, term.bytes, term.bound if term.time_s else ""
            )
            for term, cost in zip((terms.get(name, none) for terms in found), costs, strict=True)
        )
        rows.append((name, first, second))
    total = sum(second.time_s - first.time_s for _, first, second in rows)
    npu_total = sum(second.npu_time_s - first.npu_time_s for _, first, second in rows)
    for name, first, second in rows:
        difference, npu_difference = second.time_s - first.time_s, second.npu_time_s - first.npu_time_s
        keys = ("time_s", "npu_time_s", "flop", "bytes")
        yield TermPair(
            name,
            first,
            second,
            {key: ratio_of(getattr(first, key), getattr(second, key)) for key in keys},
            difference,
            difference / total if total else None,
            npu_difference,
            npu_difference / npu_total if npu_total else None,
        )


def _terms(prediction: Prediction) -> dict[str, TermResult]:
    terms = {term.name: term for term in prediction.terms}
    if prediction.hidden_time_s:
        terms["hidden"] = TermResult("hidden", -prediction.hidden_time_s, 0.0, 0.0, "")
    return terms


def _cost(prediction: Prediction) -> float:
    """What a second of the step or batch adds to the NPU-seconds of a token. [1/tokens]"""
    total = getattr(prediction, WHOLE[prediction.phase][1])
    return 1 / ((total or 1.0) * (prediction.throughput_tokens_per_s_per_npu or 1.0))


def _main_term(terms: tuple[TermPair, ...]) -> str | None:
    known = [(term.share, term.name) for term in terms if term.share is not None]
    return max(known)[1] if known else None


def _ledger(case: Case, prediction: Prediction) -> dict[str, float]:
    """Memory of a die by part. [B]"""
    if isinstance(prediction, ColocatedPrediction):
        memory = prediction.memory
        rest = {"kv_cache": memory.kv_cache_bytes, "reserve": memory.reserve_bytes, "free": memory.free_bytes}
        return {**memory.parts_bytes, **rest}
    kind = DecodeDeployment if isinstance(prediction, DecodePrediction) else PrefillDeployment
    return {part.name: part.size_bytes for part in ledger_of(case, kind(**prediction.deployment))}


def _ledger_pairs(a: Mapping[str, float], b: Mapping[str, float]) -> Iterator[Figure]:
    for name in {**a, **b}:
        first, second = a.get(name, 0.0), b.get(name, 0.0)
        yield Figure(name, first, second, ratio_of(first, second) if min(first, second) >= 0 else None)
