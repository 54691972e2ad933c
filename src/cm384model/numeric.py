"""The little arithmetic every law shares, and the marker that makes a law explainable."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from cm384model.recording import LawCall, record, recording_active

Numeric = Any
"""A float, an integer or a numpy array of either; arrays broadcast against each other."""

F = TypeVar("F", bound=Callable[..., Any])


def ceil_div(n: Numeric, d: Numeric) -> Numeric:
    """Smallest whole number of ``d`` that covers ``n``, for floats and arrays alike."""
    return np.ceil(np.divide(n, d))


def whole_units(x: Numeric, *, mean: Numeric) -> Numeric:
    """Whole units that cover ``x``; with ``mean`` 1, the mean for numbers spread over a unit around ``x``."""
    return np.where(mean, np.maximum(1, x + 0.5), np.ceil(x))


def erlang_b(offered_load: Numeric, servers: Numeric) -> Numeric:
    """Erlang's B by its recurrence, for arrays of servers."""
    blocking = np.ones(np.broadcast_shapes(np.shape(offered_load), np.shape(servers)))
    for j in range(1, int(np.max(servers)) + 1):
        passed = offered_load * blocking
        blocking = np.where(j <= servers, passed / (j + passed), blocking)
    return blocking


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
        if recording_active():
            record(LawCall(marked, dict(zip(names, args, strict=False)) | kwargs, result))
        return result

    LAWS[function.__name__] = marked
    return marked  # type: ignore[return-value]
