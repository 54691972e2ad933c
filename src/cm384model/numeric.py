"""The little arithmetic every law shares, and the marker that makes a law explainable."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

Numeric = Any
"""A float, an integer or a numpy array of either; arrays broadcast against each other."""

F = TypeVar("F", bound=Callable[..., Any])


def ceil_div(n: Numeric, d: Numeric) -> Numeric:
    """Smallest whole number of ``d`` that covers ``n``, for floats and arrays alike."""
    return -(-n // d)


@dataclass(frozen=True)
class LawCall:
    """One evaluation of a law: its name, operands by parameter name, and result."""

    law: Callable[..., Any]
    operands: dict[str, Any]
    result: Any


@dataclass(frozen=True)
class Reading:
    """One sourced number that was read: its path in the spec, and the quantity."""

    path: str
    quantity: Any


_recorder: list[Any] | None = None


def recording_active() -> bool:
    """Whether a `recording` block is open."""
    return _recorder is not None


def record(entry: LawCall | Reading) -> None:
    """Note an entry in the open `recording`, if there is one."""
    if _recorder is not None:
        _recorder.append(entry)


@contextmanager
def recording() -> Iterator[list[LawCall | Reading]]:
    """Collect every law evaluated and every sourced number read inside the block, in order."""
    global _recorder
    outer, _recorder = _recorder, []
    try:
        yield _recorder
    finally:
        _recorder = outer


LAWS: dict[str, Callable[..., Any]] = {}
"""Every law by name, filled as the law modules are imported."""


def law(function: F) -> F:
    """Mark a closed form as a law: listed, checked by the generic tests, recorded under `recording`.

    The marked function behaves exactly as before; outside `recording` it costs one comparison.
    """
    names = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def marked(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if isinstance(result, np.ndarray) and result.ndim == 0:
            result = result[()]
        if _recorder is not None:
            record(LawCall(marked, dict(zip(names, args, strict=False)) | kwargs, result))
        return result

    LAWS[function.__name__] = marked
    return marked  # type: ignore[return-value]
