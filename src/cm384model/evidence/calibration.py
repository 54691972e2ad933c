"""A whole calibration: which stages see which rows, what they found, and the data files that follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cm384model.evidence.calibrate import (
    Constant,
    Errors,
    StageFit,
    fit_stages,
    identified,
    load_stage,
)
from cm384model.evidence.published import Row, predicted_value, shipped_rows
from cm384model.evidence.rewrite import renamed, residuals_text, rewritten, with_residuals
from cm384model.evidence.stages import Stage, shipped_stages
from cm384model.prediction.case import Case
from cm384model.prediction.results import SCHEMA
from cm384model.specs.catalogue import FOLDERS, SpecKind, data_root
from cm384model.specs.diagnostics import SpecError, with_suggestion
from cm384model.specs.quantity import Quantity
from cm384model.specs.spec import node_at
from cm384model.specs.units import SI_UNIT

FASTER = 0.05
"""How much faster a measurement of an operator may be than every constant at its best allows: noise. [-]"""

FASTER_SERVING = 0.5
"""The same of a step or batch, whose operators have constants of their own. [-]"""

Tell = Callable[[float], None] | None


@dataclass(frozen=True)
class FittedConstant:
    """A constant before and after, in the SI unit ``unit``, with its standard error and bounds."""

    path: str
    unit: str
    before: float
    after: float
    standard_error: float
    bound_low: float
    bound_high: float
    identified: bool
    at_bound: bool


@dataclass(frozen=True)
class CorrelatedPair:
    """Two constants of a stage that its rows can hardly tell apart."""

    first: str
    second: str
    correlation: float


@dataclass(frozen=True)
class StageErrors:
    """Absolute relative errors of the rows of a stage."""

    median_error: float
    mean_error: float
    worst_error: float

    @classmethod
    def of(cls, errors: Errors) -> StageErrors:
        """From the errors of a fit."""
        return cls(errors.median, errors.mean, errors.worst)


@dataclass(frozen=True)
class StageResult:
    """What one stage found; ``leave_one_out`` is None where no row was left out."""

    stage: str
    hardware: str
    engine: str
    row_ids: tuple[str, ...]
    constants: tuple[FittedConstant, ...]
    correlated: tuple[CorrelatedPair, ...]
    errors_before: StageErrors
    errors_after: StageErrors
    leave_one_out: StageErrors | None


@dataclass(frozen=True)
class Calibration:
    """All stages; ``unused_ids`` are rows to which no constant is fitted."""

    stages: tuple[StageResult, ...]
    unused_ids: tuple[str, ...]
    raw_fits: tuple[StageFit, ...] = ()
    schema: int = SCHEMA


def shipped_calibration(
    names: Sequence[str] = (), *, left_out: bool = True, tell: Tell = None
) -> Calibration:
    """The calibration that ships: rows of the ledger that are used for fitting, every stage.

    Raises
    ------
    SpecError
        For the name of a stage that there is not.
    """
    rows = [row for row in shipped_rows() if row.used_for_fit]
    stages = named(names)
    matched = [(stage, tuple(row for row in rows if stage.matches(row))) for stage in stages]
    matched = [pair for pair in matched if pair[1]]
    return _calibration(fit_stages(matched, load_stage, left_out=left_out, tell=tell), ())


def own_calibration(
    case: Case,
    rows: Sequence[Row],
    names: Sequence[str] = (),
    *,
    only: Sequence[str] = (),
    left_out: bool = True,
    tell: Tell = None,
) -> Calibration:
    """Fit the constants of a case to a user's rows, starting from and held at their values.

    Raises
    ------
    SpecError
        When no constant is fitted to any row, when a stage has fewer rows than constants that
        they depend on, and when a row is faster than every constant at its best allows.
    """
    known = {path for stage in named(names) for path in stage.constants}
    for path in only:
        if path not in known:
            raise SpecError.of(with_suggestion(f"no stage fits '{path}'", path, known))
    matched = own_stages(case, rows, named(names), only)
    used = {row.id for _, stage_rows in matched for row in stage_rows}
    if not matched:
        first = rows[0]
        subjects = ", ".join(dict.fromkeys(row.subject for row in rows))
        raise first.located(SpecError.of(f"no constant is fitted to rows of {subjects}"))
    for stage, stage_rows in matched:
        refuse_faster_than_possible(case, stage, stage_rows)
    fits = fit_stages(matched, lambda stage, _: case, left_out=left_out, tell=tell)
    return _calibration(fits, tuple(row.id for row in rows if row.id not in used))


def named(names: Sequence[str]) -> list[Stage]:
    """The shipped stages of those names, or all.

    Raises
    ------
    SpecError
        For a name that there is not.
    """
    stages = shipped_stages()
    known = [stage.name for stage in stages]
    for name in names:
        if name not in known:
            raise SpecError.of(
                with_suggestion(f"there is no stage '{name}'", name, known), f"stages are {', '.join(known)}"
            )
    return [stage for stage in stages if not names or stage.name in names]


def own_stages(
    case: Case, rows: Sequence[Row], stages: Iterable[Stage], only: Sequence[str] = ()
) -> list[tuple[Stage, tuple[Row, ...]]]:
    """Stages with the rows that fall to each; a row falls to the first that can take it.

    Stages of the same machine and engine come first. A stage is for the case if the case has
    its constants; their values there are its priors. ``only`` names the constants to fit.
    """
    ordered = sorted(stages, key=lambda s: (s.hardware != case.hardware.name, s.engine != case.engine.name))
    left = list(rows)
    matched = []
    for stage in ordered:
        found = _priors(case, stage)
        constants = {path: ends for path, ends in found.items() if not only or path in only}
        mine = replace(stage, hardware=case.hardware.name, engine=case.engine.name, constants=constants)
        taken = tuple(row for row in left if constants and mine.matches(row))
        if taken:
            matched.append((mine, taken))
            left = [row for row in left if row not in taken]
    return matched


def _priors(case: Case, stage: Stage) -> Mapping[str, tuple[float, float, float]]:
    """Bounds of a stage's constants with the case's values as priors; empty if it lacks one."""
    priors = {}
    for path, (low, _, high) in stage.constants.items():
        kind, _, rest = path.partition(".")
        try:
            node = node_at(getattr(case, kind), rest)
        except SpecError:
            return {}
        if not isinstance(node, Quantity):
            return {}
        priors[path] = (low, float(np.clip(float(node.si), low, high)), high)
    return priors


def refuse_faster_than_possible(case: Case, stage: Stage, rows: Sequence[Row]) -> None:
    """Refuse rows that would need a constant beyond its bounds, such as an efficiency above 1.

    Each constant goes to the end of its bounds that makes a row fastest, all at once.

    Raises
    ------
    SpecError
        With every such row.
    """
    ends = [(low, high) for low, _, high in stage.constants.values()]
    start = np.array([prior for _, prior, _ in stage.constants.values()])
    problems = []
    for row in rows:
        if row.against:
            continue
        sign = 1.0 if row.unit == "s" else -1.0
        best = start.copy()
        for i, pair in enumerate(ends):
            values = [
                _value(case, stage, row, np.where(np.arange(len(best)) == i, end, best)) for end in pair
            ]
            best[i] = pair[int(sign * values[1] < sign * values[0])]
        fastest = _value(case, stage, row, best)
        over = fastest / row.published if row.unit == "s" else row.published / fastest
        if over > 1 + (FASTER if row.kind == "op" else FASTER_SERVING):
            error = SpecError.of(
                f"{row.published:.4g} {row.unit} is {over:.3g} times as fast as this machine can be: "
                f"{fastest:.4g} {row.unit} with every efficiency at its bound",
                "look at its unit, its sizes and the peaks of the hardware file",
            )
            problems += row.located(error).problems
    if problems:
        raise SpecError(problems)


def _value(case: Case, stage: Stage, row: Row, values: np.ndarray) -> float:
    for path, value in zip(stage.constants, values, strict=True):
        case = case.replaced(path, float(value))
    return float(predicted_value(case, row))


def _calibration(fits: Sequence[StageFit], unused: tuple[str, ...]) -> Calibration:
    return Calibration(tuple(_result(fit) for fit in fits), unused, tuple(fits))


def _result(fit: StageFit) -> StageResult:
    return StageResult(
        stage=fit.stage.name,
        hardware=fit.stage.hardware,
        engine=fit.stage.engine,
        row_ids=tuple(row.id for row in fit.rows),
        constants=tuple(_constant(fit.stage, constant) for constant in fit.constants),
        correlated=tuple(CorrelatedPair(*pair) for pair in fit.correlated),
        errors_before=StageErrors.of(fit.before),
        errors_after=StageErrors.of(fit.after),
        leave_one_out=None if fit.leave_one_out is None else StageErrors.of(fit.leave_one_out),
    )


def _constant(stage: Stage, constant: Constant) -> FittedConstant:
    low, _, high = stage.constants[constant.path]
    return FittedConstant(
        path=constant.path,
        unit=SI_UNIT[constant.quantity.dimension],
        before=constant.before,
        after=constant.after,
        standard_error=constant.error,
        bound_low=low,
        bound_high=high,
        identified=constant.identified,
        at_bound=constant.at_bound,
    )


def shipped_files(found: Calibration, date: str) -> dict[Path, str]:
    """Every shipped file that a calibration changes, with its new text."""
    texts: dict[Path, str] = {}
    kinds: tuple[SpecKind, ...] = ("hardware", "engine")
    for kind in kinds:
        for name in dict.fromkeys(getattr(fit.stage, kind) for fit in found.raw_fits):
            path = data_root() / FOLDERS[kind] / f"{name}.toml"
            fits = [fit for fit in found.raw_fits if getattr(fit.stage, kind) == name]
            texts[path] = rewritten(path.read_text(encoding="utf-8"), fits, kind, date)
    path = Path(__file__).with_name("residuals.toml")
    texts[path] = residuals_text(found.raw_fits, path.read_text(encoding="utf-8"))
    return {path: text for path, text in texts.items() if text != path.read_text(encoding="utf-8")}


def own_files(case: Case, found: Calibration, output: Path, measurements: str, date: str) -> dict[Path, str]:
    """The hardware file and, if constants of the engine were fitted, the engine file beside it.

    The name of each is that of its file, so that reports tell it from the one it came from.
    """
    places = {"hardware": output, "engine": output.with_suffix(".engine.toml")}
    texts = {}
    for kind, path in places.items():
        fitted = [constant for fit in found.raw_fits for constant in identified(fit, kind)]
        if kind == "engine" and not fitted:
            continue
        origin = Path(getattr(case, kind).file)
        text = rewritten(origin.read_text(encoding="utf-8"), found.raw_fits, kind, date, measurements)
        text = with_residuals(text, found.raw_fits, kind, date, measurements)
        ids = [row.id for fit in found.raw_fits for row in fit.rows]
        head = [
            f"# {getattr(case, kind).name} with {len(fitted)} constants fitted to {len(ids)} rows of "
            f"{measurements}, {date}.",
            f"# Rows: {', '.join(ids)}.",
        ]
        texts[path] = "\n".join(head) + "\n" + renamed(text, output.stem)
    return texts
