"""A saved study: the options of ``cm384 sweep`` in a TOML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from cm384model.specs.files import read_spec
from cm384model.specs.spec import Section


class SweepFile(Section):
    """A study file; its keys are the options of the command line."""

    workload: str | None = None
    phase: str | None = None
    model: str | None = None
    hardware: str | None = None
    engine: str | None = None
    slo: str | None = None
    keep: str | None = None
    columns: list[str] | str | None = None
    settings: list[str] = Field(default_factory=list, alias="set")
    at: dict[str, Any] = Field(default_factory=dict)
    grid: dict[str, Any] = Field(default_factory=dict)


def load_sweep(path: Path) -> SweepFile:
    """The study that a file holds.

    Raises
    ------
    SpecError
        With everything that is wrong with it, at its line.
    """
    return read_spec(path, SweepFile)


def axis_texts(grid: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """The axes as they are typed on the command line; a dotted key may be written without quotes."""
    found: dict[str, str] = {}
    for name, values in grid.items():
        if isinstance(values, dict):
            found |= axis_texts(values, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = ",".join(map(str, values)) if isinstance(values, list) else str(values)
    return found
