"""What the exit status of ``cm384`` says."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """The answer, as a shell sees it."""

    YES = 0
    """There is an answer, and it is yes."""
    NO = 1
    """The answer is no: nothing is feasible within the constraints, a row leaves its band."""
    BAD_INPUT = 2
    """The input is wrong; what is said on stderr."""
    BUG = 3
    """A fault of cm384; ``CM384_TRACEBACK=1`` shows where."""
    BROKEN_PIPE = 141
    """The reader of the output went away, as in ``cm384 plan ... | head``."""
    INTERRUPTED = 130
    """Stopped with Ctrl-C."""
