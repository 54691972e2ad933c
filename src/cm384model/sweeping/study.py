"""A sweep as it is asked for: the axes, what stays fixed, which rows and columns are kept."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

import numpy as np

from cm384model.prediction.case import Case
from cm384model.specs.deployment import PHASE_FIELDS, Field
from cm384model.specs.diagnostics import SpecError, with_suggestion

Phase = Literal["decode", "prefill", "colocated", "plan"]
PHASES: tuple[Phase, ...] = ("decode", "prefill", "colocated", "plan")
FIELDS: dict[str, dict[str, Field]] = {
    **PHASE_FIELDS,
    "plan": {
        "npus": Field("NPUs to spend, spare ones included", low=1, whole=True),
        "spare_nodes": Field("nodes kept free for failures", whole=True),
        "reuse": Field("share of prompt tokens whose cache comes from the pool", high=0.999),
    },
}
"""What an axis or ``--at`` may set, by phase."""
FILES = ("workload", "hardware", "engine", "model")
"""Whole files that an axis may exchange."""
SCALAR_FIELDS = ("microbatches", "prefill_microbatches")
SCALAR_PATHS = ("hardware.die.aic_cores", "model.architecture.shared_experts")
"""Numbers that decide which terms there are: one value at a time, like words."""
GAIN_AND_COST: dict[str, tuple[str, str]] = {
    "decode": ("throughput_tokens_per_s_per_npu", "tpot_s"),
    "prefill": ("throughput_tokens_per_s_per_npu", "batch_time_s"),
    "colocated": ("throughput_tokens_per_s_per_npu", "tpot_s"),
    "plan": ("requests_per_s", "tpot_s"),
}
"""What makes a row good, and the time it is weighed against: the two axes of the frontier."""

Role = Literal["field", "file", "path"]


@dataclass(frozen=True)
class Axis:
    """One dimension of a sweep.

    Attributes
    ----------
    name : str
        A field of a deployment, a kind of file, or a path such as ``hardware.die.hbm_bandwidth``.
    column : str
        Name in the output; it carries the unit.
    role : {"field", "file", "path"}
    values : sequence
        Words, or numbers in SI units.
    outer : bool
        Evaluated one value at a time; the other axes broadcast.
    whole : bool
        Written as whole numbers.
    """

    name: str
    column: str
    role: Role
    values: Any
    outer: bool
    whole: bool

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Keep:
    """Which rows are kept: ``feasible``, ``all``, ``frontier`` or the ``count`` best of ``top``."""

    mode: str = "feasible"
    count: int = 0

    @property
    def reduces(self) -> bool:
        """Whether rows compete, so that a row is known to stay only at the end."""
        return self.mode in ("top", "frontier")

    @classmethod
    def read(cls, text: str) -> Keep:
        """From ``feasible``, ``all``, ``frontier`` or ``top=N``.

        Raises
        ------
        SpecError
            For anything else.
        """
        word, equals, count = text.partition("=")
        if word == "top" and re.fullmatch(r"[1-9]\d{0,6}", count):
            return cls("top", int(count))
        if word in ("feasible", "all", "frontier") and not equals:
            return cls(word)
        choices = ("feasible", "all", "frontier", "top=100")
        raise SpecError.of(
            with_suggestion(f"--keep {text} is not known", text, choices),
            "one of feasible, all, frontier, top=N",
        )


@dataclass(frozen=True)
class Study:
    """A whole sweep; it can be sent to another process.

    Attributes
    ----------
    phase : {"decode", "prefill", "colocated", "plan"}
    cases : dict
        The loaded case for every combination of values of the file axes.
    axes : tuple of Axis
        The outer ones first, then in the order given; the last one varies fastest.
    at : mapping
        What ``--at`` fixes.
    limited : bool
        Whether the limits of the workload count as constraints.
    columns : tuple of str
        Columns of the output in their order.
    keep : Keep
    """

    phase: Phase
    cases: Mapping[tuple[str, ...], Case]
    axes: tuple[Axis, ...]
    at: Mapping[str, Any]
    limited: bool
    keep: Keep
    columns: tuple[str, ...] = field(default=())

    @property
    def outer(self) -> tuple[Axis, ...]:
        """Axes that are evaluated one value at a time."""
        return tuple(axis for axis in self.axes if axis.outer)

    @property
    def inner(self) -> tuple[Axis, ...]:
        """Axes that broadcast."""
        return tuple(axis for axis in self.axes if not axis.outer)

    @property
    def candidates(self) -> int:
        """Rows before any is left out."""
        return math.prod(len(axis) for axis in self.axes)

    @property
    def case(self) -> Case:
        """The first case."""
        return next(iter(self.cases.values()))

    @property
    def notes(self) -> list[str]:
        """What a reader must know of the machines, each once."""
        return list(dict.fromkeys(note for case in self.cases.values() for note in case.hardware.notes()))

    def axis(self, column: str) -> Axis | None:
        """The axis behind a column, if there is one."""
        return next((axis for axis in self.axes if axis.column == column), None)


def chosen_columns(text: str | Sequence[str] | None, groups: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Columns by name, by group (``axes``, ``default``, ``terms``, ``memory``, ``all``) or by pattern.

    Raises
    ------
    SpecError
        For a name that stands for no column.
    """
    words = text.split(",") if isinstance(text, str) else list(text or ("default",))
    chosen: list[str] = []
    for word in (word.strip() for word in words):
        found = groups.get(word) or [name for name in groups["all"] if fnmatchcase(name, word)]
        if not found:
            known = [*groups, *groups["all"]]
            raise SpecError.of(
                with_suggestion(f"--columns: there is no column '{word}'", word, known),
                f"groups: {', '.join(groups)}; names: {', '.join(groups['all'])}",
            )
        chosen += [name for name in found if name not in chosen]
    return tuple(chosen)


def as_numbers(values: Any) -> np.ndarray:
    """Values of a numeric axis as an array."""
    return np.asarray(values, dtype=float)
