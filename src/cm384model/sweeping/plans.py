"""Rows of a sweep over plans: every candidate is a whole plan of its own."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Sequence
from typing import Any

from cm384model.planning.results import Plan
from cm384model.sweeping.evaluate import cell
from cm384model.sweeping.study import FILES, Study

_LEFT_OUT = ("rank", "npus", "dies", "relative", "cache")
"""Of the best plan they say nothing, or would hide the axis ``npus``; the pools have their own.

A sweep takes no hit-rate curve, so no cache has a size."""


def plan_types() -> dict[str, type]:
    """Columns of a plan with their types, the pools' with the name of the pool before them."""
    return dict(_types(Plan, ""))


def _types(owner: Any, prefix: str) -> Iterator[tuple[str, type]]:
    hints = typing.get_type_hints(owner)
    for field in dataclasses.fields(owner):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            yield from _types(hint, f"{field.name}_")
        elif prefix or field.name not in _LEFT_OUT:
            yield (
                f"{prefix}{field.name}",
                next(t for t in (int, float, str) if t in (hint, *typing.get_args(hint))),
            )


def plan_columns() -> list[str]:
    """Names of the columns of a plan, times and rates first."""
    names = list(plan_types())
    first = ("requests_per_s", "throughput_tokens_per_s_per_npu", "tpot_s", "ttft_s")
    return [*first, *(name for name in names if name not in first)]


def plan_row(study: Study, index: Sequence[int]) -> dict[str, Any]:
    """The best plan at one value of every axis; empty but for its reasons if there is none."""
    from cm384model import api

    case, given = cell(study, index)
    options: dict[str, Any] = {
        name: value if name == "reuse" else int(value) for name, value in given.items()
    }
    result = api.plan(case, top=1, **options)
    row: dict[str, Any] = {name: getattr(case, name).name for name in FILES}
    row |= {axis.column: axis.values[i] for axis, i in zip(study.axes, index, strict=True)}
    row |= {"feasible": result.feasible, "reasons": ";".join(_word(reason) for reason in result.reasons)}
    return row | (_flat(result.plans[0], "") if result.plans else {})


def _word(reason: str) -> str:
    """The name of a constraint without its explanation."""
    return reason.partition(":")[0]


def _flat(value: Any, prefix: str) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        entry = getattr(value, field.name)
        if dataclasses.is_dataclass(entry):
            row |= _flat(entry, f"{field.name}_")
        elif prefix or field.name not in _LEFT_OUT:
            row[f"{prefix}{field.name}"] = entry
    return row
