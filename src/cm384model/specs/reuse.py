"""Hit rate of the context cache as a function of its size, from a table or a request trace."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from cm384model.specs.diagnostics import Problem, SpecError, with_suggestion
from cm384model.specs.traces import RequestTrace, read_trace
from cm384model.specs.units import Dimension, parse_value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

SizeUnit = Literal["bytes", "tokens", "blocks"]
SIZES: dict[str, SizeUnit] = {
    "capacity_bytes": "bytes",
    "capacity_tokens": "tokens",
    "capacity_blocks": "blocks",
}
"""Columns that may give the size of the pool."""

HIT_RATE = "hit_rate"
FORM = f"a line '{next(iter(SIZES))},{HIT_RATE}' (or {', '.join(list(SIZES)[1:])}), then one size per line"


@dataclass(frozen=True)
class ReuseCurve:
    """Share of the prompt tokens found in the pool, by the size of the pool.

    Attributes
    ----------
    unit : {"bytes", "tokens", "blocks"}
        What ``size`` counts; a block is one of the engine's.
    size : array
        Rising sizes of the pool.
    hit_rate : array
        Share of the prompt tokens found at each size; never falls. [-]
    stepped : bool
        Whether the share stays until the next size, as in a trace, or rises on a straight line.
    token_rate : float or None
        Prompt tokens per second that the sizes are for; a pool for more grows in proportion. None
        if the sizes are for whatever the plan serves. [tokens/s]
    requests_per_s : float or None
        Requests per second that the sizes are for, where the prompts are those of the workload.
    """

    unit: SizeUnit
    size: Array
    hit_rate: Array
    stepped: bool = False
    token_rate: float | None = None
    requests_per_s: float | None = None

    def at(self, size: Any) -> Any:
        """Hit rate of a pool of some size, in the unit of the curve. [-]"""
        return _hit_rate(self, size)

    def size_for(self, hit_rate: Any) -> Any:
        """The smallest pool that reaches a hit rate above 0, up to the highest of the curve."""
        return _size_for(self, hit_rate)

    def for_requests(self, requests_per_s: float) -> ReuseCurve:
        """The same curve, its sizes taken to be for that many of the workload's requests."""
        return replace(self, token_rate=None, requests_per_s=requests_per_s)


def _points(curve: ReuseCurve) -> tuple[Array, Array]:
    """Hit rates and sizes of a curve, from zero on."""
    import numpy as np

    return np.concatenate([[0.0], curve.hit_rate]), np.concatenate([[0.0], curve.size])


def _hit_rate(curve: ReuseCurve, size: Any) -> Any:
    import numpy as np

    rates, sizes = _points(curve)
    if curve.stepped:
        return rates[np.searchsorted(curve.size, size, side="right")]
    return np.interp(size, sizes, rates)


def _size_for(curve: ReuseCurve, hit_rate: Any) -> Any:
    rates, sizes = _points(curve)
    above = rates.searchsorted(hit_rate, side="left")
    if curve.stepped:
        return sizes[above]
    part = (hit_rate - rates[above - 1]) / (rates[above] - rates[above - 1])
    return sizes[above - 1] + part * (sizes[above] - sizes[above - 1])


def read_reuse_curve(path: str | Path) -> ReuseCurve:
    """The curve in a file: a CSV table of sizes and hit rates, or a trace with prefix blocks.

    Raises
    ------
    SpecError
        For a file that is neither, for sizes that do not rise, and for hit rates that fall or are
        no share below 1.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SpecError.of(f"cannot read '{path}': {reason}") from error
    header = [name.strip() for name in lines[0].split(",")] if lines else []
    if HIT_RATE in header or any(name in SIZES for name in header):
        return _table(lines, str(path))
    if lines and (lines[0].lstrip().startswith("{") or lines[0].startswith("TIMESTAMP")):
        return curve_of(read_trace(path))
    hint = f"{FORM}; or a trace of JSON lines with 'hash_ids'"
    raise SpecError(
        [_at(path, 1, lines[0] if lines else "", "neither a table of hit rates nor a trace", hint)]
    )


def curve_of(trace: RequestTrace) -> ReuseCurve:
    """The exact curve of a trace under least-recently-used eviction, at the trace's own rate.

    Raises
    ------
    SpecError
        If the trace has no prefix blocks.
    """
    size, found = trace.token_hits()
    token_rate = trace.arrival_rate * float(trace.prompt_len.mean())
    return ReuseCurve("tokens", size, found, stepped=True, token_rate=token_rate)


def _table(lines: list[str], file: str) -> ReuseCurve:
    import numpy as np

    header = [name.strip() for name in lines[0].split(",")]
    unit_name = next((name for name in header if name in SIZES), "")
    wrong = [name for name in header if name not in (*SIZES, HIT_RATE)]
    if len(header) != 2 or HIT_RATE not in header or not unit_name:
        known = (*SIZES, HIT_RATE)
        message = "needs one column of sizes and one of hit rates"
        message = with_suggestion(f"unknown column '{wrong[0]}'", wrong[0], known) if wrong else message
        raise SpecError([_at(file, 1, lines[0], message, FORM)])
    unit, place = SIZES[unit_name], header.index(unit_name)
    sizes, rates = [0.0], [0.0]
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        try:
            size, rate = _row(line, unit, place)
            if size <= sizes[-1]:
                raise ValueError("sizes must rise from line to line, and from 0")
            if not rates[-1] <= rate < 1:
                raise ValueError("a hit rate is a share from 0 to below 1 and never falls with the size")
        except ValueError as error:
            raise SpecError([_at(file, number, line, str(error), FORM)]) from None
        sizes.append(size)
        rates.append(rate)
    if len(sizes) == 1:
        raise SpecError([_at(file, 1, lines[0], "has no sizes", FORM)])
    return ReuseCurve(unit, np.array(sizes[1:]), np.array(rates[1:]))


def _row(line: str, unit: SizeUnit, place: int) -> tuple[float, float]:
    fields = [field.strip() for field in line.split(",")]
    if len(fields) != 2:
        raise ValueError(f"needs 2 values, has {len(fields)}")
    dimension = cast(Dimension, {"blocks": "number"}.get(unit, unit))
    return _number(fields[place], dimension), _number(fields[1 - place], "number")


def _number(text: str, dimension: Dimension) -> float:
    """A plain number, or one with a unit."""
    try:
        value = float(text)
    except ValueError:
        try:
            value = parse_value(text, dimension)
        except SpecError as error:
            raise ValueError(error.problems[0].message) from None
    if not 0 <= value < float("inf"):
        raise ValueError(f"'{text}' must be finite and not negative")
    return value


def _at(file: str | Path, line: int, text: str, message: str, hint: str) -> Problem:
    shown = text if len(text) <= 80 else text[:77] + "..."
    return Problem(message, str(file), line, 1, max(1, len(shown)), shown, hint)
