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


_recorder: list[LawCall] | None = None


@contextmanager
def recording() -> Iterator[list[LawCall]]:
    """Collect every law evaluated inside the block, in order (for ``explain``)."""
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
            _recorder.append(LawCall(marked, dict(zip(names, args, strict=False)) | kwargs, result))
        return result

    LAWS[function.__name__] = marked
    return marked  # type: ignore[return-value]
