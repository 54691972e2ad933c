"""Fit the named constants of a hardware and an engine file to measurements.

One stage fits the constants that its rows depend on, by bounded least squares on the log error.
Values and sensitivities come from one vectorised evaluation per row: every constant is an array
that is off its nominal value in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cm384model.evidence.published import Row, case_of, predicted_value
from cm384model.evidence.stages import Stage, shipped_stages
from cm384model.prediction.case import Case, load_case
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.quantity import Quantity
from cm384model.specs.spec import node_at

STEP = 1e-4
"""Finite difference, as a share of the way between a constant's bounds. [-]"""

PRIOR = 0.02
"""Weight that holds a constant at its prior where the rows say nothing: the log error that moving
it across all its bounds costs. [-]"""

UNIDENTIFIED = 0.01
"""A constant is unidentified when moving it across its bounds changes no row by more. [-]"""

GENERATIONS, POPULATION = 100, 12
"""Size of a search: generations, and candidates per constant. [-]"""

AT_BOUND = 1e-4
"""A constant this close to a bound, as a share of the way between them, is at the bound. [-]"""


@dataclass(frozen=True)
class Constant:
    """One constant before and after: SI values, jackknife-like standard error, whether rows tell it."""

    path: str
    before: float
    after: float
    error: float
    identified: bool
    at_bound: bool
    quantity: Quantity


@dataclass(frozen=True)
class Errors:
    """Absolute relative errors of a stage's rows."""

    median: float
    mean: float
    worst: float
    most: float

    @classmethod
    def of(cls, log_errors: np.ndarray) -> Errors:
        """From log errors; ``most`` is the error that 80 % of the rows stay below, in log space."""
        absolute = np.abs(np.expm1(log_errors))
        most = float(np.quantile(np.abs(log_errors), 0.8))
        return cls(float(np.median(absolute)), float(np.mean(absolute)), float(np.max(absolute)), most)


@dataclass(frozen=True)
class StageFit:
    """What one stage found; leave-one-out errors are None where no row was left out."""

    stage: Stage
    rows: tuple[Row, ...]
    constants: tuple[Constant, ...]
    before: Errors
    after: Errors
    leave_one_out: Errors | None
    correlated: tuple[tuple[str, str, float], ...]


def calibrate(
    rows: Sequence[Row],
    stages: Sequence[Stage],
    load: Callable[[Stage, tuple[Row, ...]], Case],
    *,
    left_out: bool = True,
) -> list[StageFit]:
    """Fit every stage that has rows, one after the other; a stage sees what those before it found.

    Parameters
    ----------
    rows : sequence of Row
        Measurements; only those that a stage matches are used.
    stages : sequence of Stage
        What to fit to which rows.
    load : callable
        The case a stage's rows were measured under.
    left_out : bool
        Whether to refit without each row for the leave-one-out error.

    Returns
    -------
    list of StageFit
        One per stage that had rows.

    Raises
    ------
    SpecError
        When a stage has fewer rows than constants that its rows depend on.
    """
    matched = [(stage, tuple(row for row in rows if stage.matches(row))) for stage in stages]
    return fit_stages([pair for pair in matched if pair[1]], load, left_out=left_out)


def fit_stages(
    matched: Sequence[tuple[Stage, tuple[Row, ...]]],
    load: Callable[[Stage, tuple[Row, ...]], Case],
    *,
    left_out: bool = True,
    tell: Callable[[float], None] | None = None,
) -> list[StageFit]:
    """Fit stages to the rows beside them, one after the other; ``tell`` hears which share is done."""
    fits: list[StageFit] = []
    for number, (stage, used) in enumerate(matched):
        if tell is not None:
            tell(number / len(matched))
        case = load(stage, used)
        for constant in (constant for earlier in fits for constant in earlier.constants):
            if _has(case, constant):
                case = case.replaced(constant.path, constant.after)
        fits.append(fit_stage(case, used, stage, left_out=left_out))
    return fits


def fit_stage(case: Case, rows: tuple[Row, ...], stage: Stage, *, left_out: bool = True) -> StageFit:
    """Fit one stage.

    Raises
    ------
    SpecError
        When there are fewer rows than constants to fit.
    """
    paths = list(stage.constants)
    low, prior, high = np.array(list(stage.constants.values())).T
    start = (prior - low) / (high - low)
    model = _Model(case, rows, paths, low, high)
    reach = np.max(np.abs(model(start)[1]), axis=0)
    free = reach > UNIDENTIFIED
    count = np.count_nonzero(free)
    if count > len(rows):
        raise rows[0].located(
            SpecError.of(
                f"{len(rows)} row{'s' if len(rows) > 1 else ''} cannot fit the {count} constants of stage "
                f"{stage.name}",
                f"measure at least {count}, or fit fewer: "
                + " ".join(f"--constant {path}" for path in paths[: len(rows)]),
            )
        )
    current = np.array([float(_quantity(case, path).si) for path in paths])
    before = model(np.clip((current - low) / (high - low), 0, 1))[0]
    begin = _search(model, start, free) if stage.search else start
    solved = _solve(model, start, free, stage.loss, np.ones(len(rows), dtype=bool), begin)
    position = _placed(solved, start, free)
    position = np.where(position < AT_BOUND, 0.0, np.where(position > 1 - AT_BOUND, 1.0, position))
    log_error, jacobian = model(position)
    unseen = None
    if left_out:
        unseen = Errors.of(_leave_one_out(model, position, start, free, stage.loss, log_error, jacobian))
    covariance = _covariance(log_error, jacobian[:, free])
    errors = np.zeros(len(paths))
    errors[free] = np.sqrt(np.diag(covariance)) * (high - low)[free]
    after = low + (high - low) * position
    constants = tuple(
        Constant(
            path,
            float(current[i]),
            significant(after[i]) if free[i] else float(prior[i]),
            float(errors[i]),
            bool(free[i]),
            bool(free[i] and position[i] in (0.0, 1.0)),
            _quantity(case, path),
        )
        for i, path in enumerate(paths)
    )
    return StageFit(
        stage,
        rows,
        constants,
        Errors.of(before),
        Errors.of(log_error),
        unseen,
        _correlated([path for path, f in zip(paths, free, strict=True) if f], covariance),
    )


def left_out_predictions(rows: Sequence[Row], name: str, ids: Sequence[str]) -> dict[str, float]:
    """Predictions of rows of a shipped stage, each by a fit that saw no row of the same batch.

    The descent begins at the shipped constants; from the prior it can stop in a second minimum, which
    fits the rows that are left less well.
    """
    stage = next(stage for stage in shipped_stages() if stage.name == name)
    used = tuple(row for row in rows if row.used_for_fit and stage.matches(row))
    case, paths = load_stage(stage, used), list(stage.constants)
    low, prior, high = np.array(list(stage.constants.values())).T
    start, free = (prior - low) / (high - low), np.ones(len(prior), dtype=bool)
    shipped = (np.array([float(_quantity(case, path).si) for path in paths]) - low) / (high - low)
    model = _Model(case, used, paths, low, high)
    found, batches = {}, np.array([_batch(row) for row in used])
    for i, row in enumerate(used):
        if row.id in ids:
            position = _solve(model, start, free, stage.loss, batches != batches[i], shipped)
            found[row.id] = float(row.published * np.exp(model(position)[0][i]))
    return found


def _batch(row: Row) -> str:
    """The batch that a row was measured at; one of its own where it has none."""
    return next((part for part in row.at.split(",") if part.startswith("batch_")), row.id)


def load_stage(stage: Stage, rows: tuple[Row, ...]) -> Case:
    """The case that a shipped stage's rows were measured under."""
    first = rows[0]
    settings = () if first.model else first.settings
    return load_case(first.workload, hardware=stage.hardware, engine=stage.engine, settings=settings)


class _Model:
    """Log error of every row and its derivative by every constant, at a position between the bounds."""

    def __init__(
        self, case: Case, rows: tuple[Row, ...], paths: list[str], low: np.ndarray, high: np.ndarray
    ) -> None:
        self.case, self.rows, self.paths, self.low, self.high = case, rows, paths, low, high
        self._last: tuple[bytes, tuple[np.ndarray, np.ndarray]] | None = None

    def __call__(self, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        key = position.tobytes()
        if self._last is None or self._last[0] != key:
            self._last = (key, self._evaluate(position))
        return self._last[1]

    def _evaluate(self, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        direction = np.where(position > 0.5, -STEP, STEP)
        around = np.column_stack([position[:, None] + np.diag(direction), position])
        logs = self.log_errors(around)
        return logs[:, -1], (logs[:, :-1] - logs[:, -1:]) / direction

    def log_errors(self, positions: np.ndarray) -> np.ndarray:
        """Log error of every row at every position: (rows, positions) from (constants, positions)."""
        case, count = self.case, positions.shape[1]
        for i, path in enumerate(self.paths):
            case = case.replaced(path, self.low[i] + (self.high[i] - self.low[i]) * positions[i])
        predicted = np.array(
            [np.broadcast_to(predicted_value(_of_row(case, row), row), count) for row in self.rows],
            dtype=float,
        )
        logs: np.ndarray = np.log(predicted / np.array([[row.published] for row in self.rows]))
        return logs


def _of_row(case: Case, row: Row) -> Case:
    """The case of a stage with the model of a row that names its own."""
    return replace(case, model=case_of(row).model) if row.model else case


def _placed(free_part: np.ndarray, rest: np.ndarray, free: np.ndarray) -> np.ndarray:
    """A whole position, or many side by side, of which the constants that are not free stay at ``rest``."""
    whole = np.empty((len(rest), *free_part.shape[1:]))
    whole.T[:] = rest
    whole[free] = free_part
    return whole


def _search(model: _Model, start: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Position near the best of all, where a descent from the prior could stop in another minimum."""
    from scipy.optimize import differential_evolution

    def cost(x: np.ndarray) -> np.ndarray:
        logs = model.log_errors(_placed(x, start, free))
        residuals = np.concatenate([logs, PRIOR * (x - start[free, None])])
        squares: np.ndarray = np.sum(residuals**2, axis=0)
        return squares

    best = differential_evolution(
        cost,
        [(0.0, 1.0)] * int(np.count_nonzero(free)),
        x0=start[free],
        maxiter=GENERATIONS,
        popsize=POPULATION,
        rng=0,
        tol=1e-7,
        polish=False,
        vectorized=True,
        updating="deferred",
    )
    return _placed(best.x, start, free)


def _solve(
    model: _Model, start: np.ndarray, free: np.ndarray, loss: str, use: np.ndarray, begin: np.ndarray
) -> np.ndarray:
    """Position of the free constants, down from ``begin``, that fits the rows in ``use`` best."""
    from scipy.optimize import least_squares

    def residuals(x: np.ndarray) -> np.ndarray:
        return np.concatenate([model(_placed(x, start, free))[0][use], PRIOR * (x - start[free])])

    def jacobian(x: np.ndarray) -> np.ndarray:
        slopes = model(_placed(x, start, free))[1]
        return np.concatenate([slopes[np.ix_(use, free)], PRIOR * np.eye(len(x))])

    inside = np.clip(begin[free], 1e-6, 1 - 1e-6)
    fit = least_squares(
        residuals, inside, jacobian, bounds=(0, 1), loss=loss, f_scale=0.1, xtol=1e-10, ftol=1e-10
    )
    solution: np.ndarray = fit.x
    return solution


def _leave_one_out(
    model: _Model,
    position: np.ndarray,
    start: np.ndarray,
    free: np.ndarray,
    loss: str,
    log_error: np.ndarray,
    jacobian: np.ndarray,
) -> np.ndarray:
    """Log error of every row under a fit that never saw it.

    Up to 20 rows are refitted one by one; beyond, the leverage of a row gives the same to first
    order.
    """
    rows = len(model.rows)
    if rows <= 20:
        errors = np.empty(rows)
        for i in range(rows):
            refitted = _solve(model, start, free, loss, np.arange(rows) != i, position)
            errors[i] = model(_placed(refitted, position, free))[0][i]
        return errors
    active = jacobian[:, free]
    normal = active.T @ active + PRIOR**2 * np.eye(active.shape[1])
    leverage = np.einsum("ij,jk,ik->i", active, np.linalg.inv(normal), active)
    unseen: np.ndarray = log_error / np.maximum(1 - leverage, 0.1)
    return unseen


def _covariance(log_error: np.ndarray, jacobian: np.ndarray) -> np.ndarray:
    """Covariance of the free positions, with the prior as one more observation of each."""
    rows, count = jacobian.shape
    variance = float(log_error @ log_error) / max(rows - count, 1)
    normal = jacobian.T @ jacobian + PRIOR**2 * np.eye(count)
    covariance: np.ndarray = variance * np.linalg.inv(normal)
    return covariance


def _correlated(paths: list[str], covariance: np.ndarray) -> tuple[tuple[str, str, float], ...]:
    """Pairs of constants that the rows can hardly tell apart."""
    scale = np.sqrt(np.diag(covariance))
    pairs = []
    for i in range(len(paths)):
        for j in range(i + 1, len(paths)):
            r = float(covariance[i, j] / (scale[i] * scale[j]))
            if abs(r) > 0.9:
                pairs.append((paths[i], paths[j], r))
    return tuple(pairs)


def identified(fit: StageFit, kind: str) -> list[Constant]:
    """Constants of a ``hardware`` or ``engine`` file that the rows of a stage told."""
    return [c for c in fit.constants if c.identified and c.path.startswith(f"{kind}.")]


def significant(value: float) -> float:
    """Four significant digits, as the files have them: more would claim more than any fit knows."""
    return float(f"{value:.4g}")


def _has(case: Case, constant: Constant) -> bool:
    """Whether a case has the number that an earlier stage fitted: its own, or taken from another file."""
    try:
        return _quantity(case, constant.path) == constant.quantity
    except SpecError:
        return False


def _quantity(case: Case, path: str) -> Quantity:
    kind, _, rest = path.partition(".")
    node: Any = node_at(getattr(case, kind), rest)
    if not isinstance(node, Quantity):
        raise SpecError.of(f"{path} is no number")
    return node
