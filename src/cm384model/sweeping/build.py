"""From words on the command line or in a study file to a `Study`, with every fault named first."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cm384model.prediction.case import Case, load_case
from cm384model.specs.deployment import LOADS, Field, read_at, said_twice
from cm384model.specs.diagnostics import Problem, SpecError, with_suggestion
from cm384model.specs.overrides import apply_overrides, locate, settable_paths
from cm384model.specs.quantity import Quantity
from cm384model.specs.spec import Spec, node_at
from cm384model.specs.units import Dimension, parse_value
from cm384model.sweeping.columns import column_groups
from cm384model.sweeping.evaluate import evaluate
from cm384model.sweeping.ranges import Span, spans, values_of
from cm384model.sweeping.study import (
    FIELDS,
    FILES,
    GAIN_AND_COST,
    PHASES,
    SCALAR_FIELDS,
    SCALAR_PATHS,
    Axis,
    Keep,
    Phase,
    Study,
    chosen_columns,
)

MANY_ROWS = 200_000_000
"""More candidates than this need ``--yes``."""

MOST_PROBES = 200
"""Outer combinations that are tried before anything is written."""

_SUFFIX: dict[Dimension, str] = {
    "time": "s",
    "bytes": "bytes",
    "byte_rate": "bytes_per_s",
    "flop": "flop",
    "flop_rate": "flop_per_s",
    "token_rate": "tokens_per_s",
    "request_rate": "requests_per_s",
}
_COUNTS = ("number", "tokens")


@dataclass(frozen=True)
class Wanted:
    """A sweep in the user's words.

    Attributes
    ----------
    grid : mapping of str to str
        The axes: values as typed, by name.
    at : sequence of str
        Fixed values, as ``name=value`` items.
    slo : str
        ``tpot=50ms,ttft=2s``, ``workload`` for the workload's own, empty for no limits.
    yes : bool
        Whether a very large sweep is meant.
    """

    workload: str
    grid: Mapping[str, str]
    phase: str = "decode"
    model: str | None = None
    hardware: str | None = None
    engine: str | None = None
    settings: Sequence[str] = ()
    at: Sequence[str] = ()
    slo: str = ""
    keep: str = "feasible"
    columns: str | Sequence[str] | None = None
    yes: bool = False


@dataclass
class _Draft:
    """An axis that is counted but not yet made."""

    name: str
    axis: Axis
    found: list[Span] = field(default_factory=list)
    count: int = 0


def study_of(wanted: Wanted) -> Study:
    """The sweep that is wanted, checked down to the first value of every axis.

    Raises
    ------
    SpecError
        For unknown names, values out of bounds, empty and ambiguous ranges, contradictions, too many rows.
    """
    phase = _phase(wanted.phase)
    keep = Keep.read(wanted.keep)
    if not wanted.grid:
        raise SpecError.of(
            "a sweep needs an axis", "for example --grid ep=32,64,128 --grid batch_per_die=1:64"
        )
    files = {name: _words(name, text) for name, text in wanted.grid.items() if name in FILES}
    _check_files(wanted, files)
    cases = _cases(wanted, files)
    first = next(iter(cases.values()))
    problems: list[Problem] = []
    drafts: list[_Draft] = []
    for name, text in wanted.grid.items():
        try:
            drafts.append(_draft(first, phase, name, text))
        except SpecError as error:
            problems += _at_axis(name, text, error)
    if problems:
        raise SpecError(problems)
    fields = FIELDS[phase]
    at = read_at(list(wanted.at), fields, f"a {phase} sweep")
    limited, cases = _limits(wanted, cases)
    _check_contradictions(wanted, drafts, at, first)
    _check_size(drafts, wanted.yes)
    axes = [_made(first, phase, draft, wanted.grid[draft.name]) for draft in drafts]
    axes.sort(key=lambda axis: not axis.outer)
    limited = limited or any(axis.name.startswith("workload.slo.") for axis in axes)
    study = Study(phase, cases, tuple(axes), at, limited, keep)
    _check_needs(study)
    _probe(study)
    columns = chosen_columns(wanted.columns, column_groups(study))
    if keep.reduces:
        columns = (*columns, *(name for name in GAIN_AND_COST[phase] if name not in columns))
    return replace(study, columns=columns)


def _phase(text: str) -> Phase:
    for phase in PHASES:
        if text == phase:
            return phase
    raise SpecError.of(
        with_suggestion(f"--phase = '{text}' is not known", text, PHASES), f"one of {', '.join(PHASES)}"
    )


def _at_axis(name: str, text: str, error: SpecError) -> list[Problem]:
    shown = f"{name}={text}" if len(text) < 60 else f"{name}={text[:57]}..."
    return [Problem(f"--grid {shown}: {problem.message}", hint=problem.hint) for problem in error.problems]


def _words(name: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise SpecError.of(f"--grid {name}: there is no value")
    for word in words:
        if words.count(word) > 1:
            raise SpecError.of(f"--grid {name}={text}: {word} is given twice")
    return words


def _check_files(wanted: Wanted, files: Mapping[str, list[str]]) -> None:
    for name in ("model", "hardware", "engine"):
        if name in files and getattr(wanted, name) is not None:
            raise SpecError.of(f"{name} is an axis and given with --{name}", "give one of them")
    if "workload" in files and wanted.workload not in files["workload"]:
        raise SpecError.of(
            f"workload is an axis and '{wanted.workload}' is none of its values",
            f"name one of {', '.join(files['workload'])} as WORKLOAD",
        )


def _cases(wanted: Wanted, files: Mapping[str, list[str]]) -> dict[tuple[str, ...], Case]:
    """The case of every combination of files, in the order of the file axes."""
    cases = {}
    for combination in itertools.product(*files.values()):
        chosen = dict(zip(files, combination, strict=True))
        cases[combination] = load_case(
            chosen.get("workload", wanted.workload),
            model=chosen.get("model", wanted.model),
            hardware=chosen.get("hardware", wanted.hardware),
            engine=chosen.get("engine", wanted.engine),
            settings=wanted.settings,
        )
    return cases


def _draft(case: Case, phase: Phase, name: str, text: str) -> _Draft:
    fields = FIELDS[phase]
    if name in FILES:
        words = _words(name, text)
        return _Draft(name, Axis(name, name, "file", tuple(words), True, False), count=len(words))
    if name in fields:
        return _field_draft(name, fields[name], text, phase)
    specs = vars(case)
    try:
        kind, path = locate(specs, name)
    except SpecError as error:
        if any("ambiguous" in problem.message for problem in error.problems):
            raise
        short = [p for spec in specs.values() for p in settable_paths(spec)]
        full = [f"{kind}.{p}" for kind, spec in specs.items() for p in settable_paths(spec)]
        elsewhere = [other for other in PHASES if name in FIELDS[other]]
        if elsewhere:
            message = f"{name} is no axis of --phase {phase}"
            raise SpecError.of(message, f"it is one of --phase {' and '.join(elsewhere)}") from None
        raise SpecError.of(
            with_suggestion(f"there is no axis '{name}'", name, [*fields, *FILES, *short, *full]),
            f"axes are {', '.join([*fields, *FILES])} and any path of a data file, as with --set",
        ) from None
    node = node_at(specs[kind], path)
    full_name = f"{kind}.{path}"
    if not isinstance(node, Quantity):
        words = _words(name, text)
        for word in words:
            _override(specs, full_name, word)
        return _Draft(name, Axis(full_name, full_name, "path", tuple(words), True, False), count=len(words))
    found = spans(text, node.dimension)
    suffix = _SUFFIX.get(node.dimension, "")
    column = full_name if not suffix or full_name.endswith(f"_{suffix}") else f"{full_name}_{suffix}"
    outer = full_name in SCALAR_PATHS or phase == "plan"
    axis = Axis(full_name, column, "path", (), outer, node.dimension in _COUNTS)
    return _Draft(name, axis, found, sum(span.count for span in found))


def _field_draft(name: str, field_: Field, text: str, phase: Phase) -> _Draft:
    if field_.words:
        words = _words(name, text)
        for word in words:
            field_.read(name, word)
        return _Draft(name, Axis(name, name, "field", tuple(words), True, False), count=len(words))
    found = spans(text, field_.dimension)
    outer = name in SCALAR_FIELDS or phase == "plan"
    count = sum(span.count for span in found)
    return _Draft(name, Axis(name, name, "field", (), outer, True), found, count)


def _override(specs: Mapping[str, Spec], path: str, text: str) -> dict[str, Any]:
    try:
        return apply_overrides(specs, [f"{path}={text}"])
    except SpecError as error:
        raise SpecError(
            [Problem(p.message.removeprefix(f"--set {path}={text}: "), hint=p.hint) for p in error.problems]
        ) from None


def _check_size(drafts: Iterable[_Draft], yes: bool) -> None:
    """Refuse what nobody means, before any axis is made."""
    sizes = {draft.name: draft.count for draft in drafts}
    total = int(np.prod(list(sizes.values()), dtype=object))
    if total > MANY_ROWS and not yes:
        product = " x ".join(f"{name} {count:,}" for name, count in sizes.items())
        raise SpecError.of(f"the sweep has {total:,} candidates: {product}", "add --yes if that is meant")


def _made(case: Case, phase: Phase, draft: _Draft, text: str) -> Axis:
    """The axis with its values, every one of them within bounds."""
    axis = draft.axis
    if not draft.found:
        return axis
    try:
        values = values_of(draft.found, _reader(case, phase, axis))
    except SpecError as error:
        raise SpecError(_at_axis(draft.name, text, error)) from None
    if axis.name == "npus" and values.max() > case.hardware.total_npus:
        message = (
            f"npus = {values.max():g} is more than the {case.hardware.total_npus:g} of {case.hardware.name}"
        )
        raise SpecError.of(message)
    return replace(axis, values=values, whole=axis.whole and bool(np.all(values == np.floor(values))))


def _reader(case: Case, phase: Phase, axis: Axis) -> Any:
    if axis.role == "field":
        return lambda text: FIELDS[phase][axis.name].read(axis.name, text)
    specs = vars(case)
    kind = axis.name.partition(".")[0]
    dimension = node_at(specs[kind], axis.name).dimension

    def read(text: str) -> float:
        _override(specs, axis.name, text)
        return parse_value(text, dimension)

    return read


def _limits(wanted: Wanted, cases: dict[tuple[str, ...], Case]) -> tuple[bool, dict[tuple[str, ...], Case]]:
    """Whether limits apply, and the cases with those that ``--slo`` gives."""
    if wanted.slo in ("", "workload"):
        return bool(wanted.slo) or wanted.phase == "plan", cases
    limit = Field("a time limit", "time", low=1e-9)
    given = read_at(wanted.slo, {"tpot": limit, "ttft": limit}, "an SLO")
    for name in given:
        for axis in (f"slo.{name}", f"workload.slo.{name}"):
            if axis in wanted.grid:
                raise SpecError.of(f"{axis} is an axis and given with --slo", "give one of them")
    changed = {}
    for key, case in cases.items():
        for name, value in given.items():
            case = case.replaced(f"workload.slo.{name}", value)
        changed[key] = case
    return True, changed


def _check_contradictions(
    wanted: Wanted, drafts: Sequence[_Draft], at: Mapping[str, Any], case: Case
) -> None:
    names = [draft.axis.name for draft in drafts]
    fixed = {f"{kind}.{path}" for kind, path in (_located(case, setting) for setting in wanted.settings)}
    for draft in drafts:
        if draft.axis.name in at:
            raise SpecError.of(f"{draft.name} is an axis and given with --at", "give one of them")
        if draft.axis.name in fixed:
            raise SpecError.of(f"{draft.name} is an axis and given with --set", "give one of them")
        if names.count(draft.axis.name) > 1:
            raise SpecError.of(f"{draft.axis.name} is an axis twice", "give one of them")
    if problems := said_twice([*names, *at]):
        raise SpecError(problems)


def _located(case: Case, setting: str) -> tuple[str, str]:
    return locate(vars(case), setting.partition("=")[0].strip())


def _probe(study: Study) -> None:
    """Evaluate the first deployment of the outer combinations: a machine may lack what an engine needs."""
    if study.phase == "plan":
        return
    lengths = [len(axis) for axis in study.outer]
    for index in itertools.islice(np.ndindex(*lengths), MOST_PROBES):
        try:
            evaluate(study, index, [slice(0, 1)] * len(study.inner))
        except SpecError as error:
            place = ", ".join(f"{a.name}={a.values[i]}" for a, i in zip(study.outer, index, strict=True))
            raise SpecError(
                [Problem(f"at {place}: {p.message}", hint=p.hint) for p in error.problems]
            ) from None


def _check_needs(study: Study) -> None:
    """What a deployment cannot do without is an axis or fixed."""
    needs: dict[str, tuple[tuple[str, ...], ...]] = {
        "decode": (("ep",), ("batch_per_die", "batch_per_npu")),
        "prefill": (("ep",), ("tokens_per_npu",)),
        "colocated": (("ep",), LOADS),
        "plan": (),
    }
    given = {axis.name for axis in study.axes} | set(study.at)
    missing = [names[0] for names in needs[study.phase] if not given & set(names)]
    if missing:
        raise SpecError.of(
            f"a {study.phase} sweep needs {' and '.join(missing)}",
            f"as an axis, --grid {missing[0]}=..., or fixed, --at {missing[0]}=...",
        )
