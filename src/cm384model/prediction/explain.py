"""From a predicted term to the laws that made it and the sourced numbers they read."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

import numpy as np

from cm384model.lawdoc import LawDoc, read_lawdoc
from cm384model.prediction.case import Case
from cm384model.prediction.evaluate import At, predict_decode, predict_prefill
from cm384model.prediction.evaluate_colocated import predict_colocated
from cm384model.prediction.results import SCHEMA, TermResult, parts_of
from cm384model.prediction.terms import Term
from cm384model.recording import LawCall, Reading, recording
from cm384model.specs.diagnostics import SpecError, with_suggestion
from cm384model.specs.quantity import Quantity, Sourced

Phase = Literal["decode", "prefill", "colocated"]
PREDICTORS: dict[str, Callable[[Case, At], Any]] = {
    "decode": predict_decode,
    "prefill": predict_prefill,
    "colocated": predict_colocated,
}
"""What predicts a deployment of each phase."""
Entry = LawCall | Reading


@dataclass(frozen=True)
class NumberUsed:
    """A sourced number as its data file has it."""

    path: str
    value: float
    unit: str
    per: str | None
    source: str
    kind: str
    confidence: str
    range: tuple[float, float] | None
    note: str | None

    @classmethod
    def of(cls, path: str, quantity: Quantity) -> NumberUsed:
        """From a quantity of a spec."""
        q = quantity
        return cls(path, float(q.value), q.unit, q.per, q.origin, q.kind, q.confidence, q.range, q.note)


@dataclass(frozen=True)
class OperandUsed:
    """An operand or the result of a law, in SI units; ``path`` if it is a number of a data file."""

    name: str
    symbol: str
    meaning: str
    unit: str
    value: float
    path: str | None = None


@dataclass(frozen=True)
class ReferenceUsed:
    """A publication that a law or a number rests on."""

    key: str
    place: str
    title: str
    ref: str


@dataclass(frozen=True)
class LawUsed:
    """One evaluation of a law by one operator; the formula is LaTeX."""

    operator: str
    law: str
    summary: str
    formula: str
    operands: tuple[OperandUsed, ...]
    result: OperandUsed
    references: tuple[ReferenceUsed, ...]


@dataclass(frozen=True)
class OperatorUsed:
    """One operator inside a term: its time, and how often a step or batch executes it."""

    name: str
    executions: float
    time_s: float
    total_time_s: float
    bound: str


@dataclass(frozen=True)
class TermExplanation:
    """What one term is made of."""

    name: str
    time_s: float
    share: float
    flop: float
    bytes: float
    bound: str
    parts_s: Mapping[str, float]
    operators: tuple[OperatorUsed, ...]
    laws: tuple[LawUsed, ...]
    numbers: tuple[NumberUsed, ...]


@dataclass(frozen=True)
class Explanation:
    """A prediction with the reasons for it; ``total_time_s`` is the step or the batch."""

    feasible: bool
    reasons: tuple[str, ...]
    workload: str
    hardware: str
    engine: str
    phase: str
    deployment: Mapping[str, Any]
    total_time_s: float
    hidden_time_s: float
    terms: tuple[TermResult, ...]
    term: TermExplanation | None
    notes: tuple[str, ...] = ()
    schema: int = SCHEMA


def explain(case: Case, phase: Phase, at: At, term: str | None = None) -> Explanation:
    """Predict one deployment and tell what it, or one of its terms, is made of.

    Raises
    ------
    SpecError
        As the prediction, and for a term that the phase does not have.
    """
    with recording() as entries:
        prediction = PREDICTORS[phase](case, at)
    terms = {t.name: t for t in prediction.raw_terms}
    if term is not None and term not in terms:
        message = with_suggestion(f"a {phase} prediction has no term '{term}'", term, terms)
        raise SpecError.of(message, f"terms are {', '.join(terms)}")
    summed = float(sum(t.time for t in terms.values()))
    hidden = prediction.hidden_time_s or 0.0
    return Explanation(
        feasible=prediction.feasible,
        reasons=prediction.reasons,
        workload=case.workload.name,
        hardware=case.hardware.name,
        engine=case.engine.name,
        phase=phase,
        deployment=prediction.deployment,
        total_time_s=summed - hidden,
        hidden_time_s=hidden,
        terms=tuple(TermResult.of(t) for t in terms.values()),
        term=None if term is None else _explained(case, terms[term], summed, entries),
        notes=prediction.notes,
    )


@dataclass(frozen=True)
class _Executed:
    """A term inside a term: its label, how often it runs, and the calls of its own."""

    term: Term
    label: str
    count: float
    calls: tuple[Entry, ...]


def _explained(case: Case, term: Term, summed: float, entries: list[Entry]) -> TermExplanation:
    executed = list(_executed(term))
    causes = [entry for entry in entries if isinstance(entry, LawCall)]
    laws: list[LawUsed] = []
    numbers: dict[str, NumberUsed] = {}
    shown: set[int] = set()
    for one in executed:
        for entry in _with_causes(one.calls, causes):
            if id(entry) in shown:
                continue
            shown.add(id(entry))
            if isinstance(entry, Reading):
                numbers.setdefault(entry.path, NumberUsed.of(entry.path, entry.quantity))
                continue
            for value in entry.operands.values():
                if isinstance(value, Sourced):
                    numbers.setdefault(value.path, NumberUsed.of(value.path, value.quantity))
            laws.append(_law_used(one.label, entry))
    return TermExplanation(
        name=term.name,
        time_s=float(term.time),
        share=float(term.time) / summed,
        flop=float(term.flop),
        bytes=float(term.bytes),
        bound=term.bound,
        parts_s=parts_of(term),
        operators=tuple(
            OperatorUsed(
                one.label, one.count, float(one.term.time), float(one.term.time) * one.count, one.term.bound
            )
            for one in executed
            if not one.term.children
        ),
        laws=tuple(laws),
        numbers=tuple(numbers.values()),
    )


def _executed(term: Term, path: tuple[str, ...] = (), count: float = 1.0) -> Iterator[_Executed]:
    """Every term below a term that runs at all and is a leaf or has calls of its own."""
    path = path if path[-1:] == (term.name,) else (*path, term.name)
    below = {id(call) for child, _ in term.children for call in child.calls}
    own = tuple(call for call in term.calls if id(call) not in below)
    if own or not term.children:
        yield _Executed(term, "/".join(path[1:]) or term.name, count, own)
    for child, times in term.children:
        if float(times):
            yield from _executed(child, path, count * float(times))


def _with_causes(calls: Iterable[Entry], causes: list[LawCall]) -> Iterator[Entry]:
    """The calls, each after the evaluations outside its term whose result is its operand."""
    for call in calls:
        if isinstance(call, LawCall):
            operands = call.operands.values()
            made = [cause for cause in causes if any(cause.result is operand for operand in operands)]
            taken = {id(cause) for cause in made}
            yield from _with_causes(made, [cause for cause in causes if id(cause) not in taken])
        yield call


def _law_used(operator: str, call: LawCall) -> LawUsed:
    doc: LawDoc = read_lawdoc(call.law)
    operands = tuple(
        OperandUsed(
            entry.name,
            entry.symbol,
            entry.meaning,
            entry.unit,
            float(call.operands[entry.name]),
            value.path if isinstance(value := call.operands[entry.name], Sourced) else None,
        )
        for entry in doc.operands
        if entry.name in call.operands
    )
    left = doc.formula.partition("=")[0].strip()
    r = doc.result
    return LawUsed(
        operator=operator,
        law=doc.name,
        summary=doc.summary,
        formula=doc.formula,
        operands=operands,
        result=OperandUsed(r.name, left, r.meaning, r.unit, float(np.asarray(call.result))),
        references=tuple(reference_used(ref.key, ref.place) for ref in doc.references),
    )


def reference_used(key: str, place: str) -> ReferenceUsed:
    """A reference with title and address from the bibliography."""
    entry = bibliography().get(key, {"title": key, "ref": ""})
    return ReferenceUsed(key, place, entry["title"], entry["ref"])


_BIBLIOGRAPHY: dict[str, dict[str, str]] = {}


def bibliography() -> dict[str, dict[str, str]]:
    """Title and address of every source that docstrings and data files may cite, by key."""
    if not _BIBLIOGRAPHY:
        text = resources.files("cm384model.laws").joinpath("bibliography.toml").read_text(encoding="utf-8")
        _BIBLIOGRAPHY.update(tomllib.loads(text))
    return _BIBLIOGRAPHY
