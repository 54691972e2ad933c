"""What a prediction used: the laws it evaluated and the sourced numbers it read.

Free of numpy, so that reading data files stays quick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


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
    """Collect every law evaluated and every sourced number read inside the block, in order.

    An outer block also gets what an inner one collected.
    """
    global _recorder
    outer, _recorder = _recorder, []
    try:
        yield _recorder
    finally:
        if outer is not None:
            outer.extend(_recorder)
        _recorder = outer
