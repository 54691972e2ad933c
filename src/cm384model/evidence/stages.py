"""What the shipped calibration fits together: the stages of ``calibration.toml``."""

from __future__ import annotations

import fnmatch
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cm384model.evidence.published import Row


@dataclass(frozen=True)
class Stage:
    """Constants that are fitted together, and the rows they are fitted to.

    ``rows`` are patterns on ``subject at``; ``constants`` maps a path to its lower bound, prior
    and upper bound in SI units; ``loss`` is scipy's (``soft_l1`` where rows of a benchmark have
    outliers). ``search`` looks everywhere between the bounds before the descent.
    """

    name: str
    rows: tuple[str, ...]
    constants: Mapping[str, tuple[float, float, float]]
    hardware: str
    engine: str
    loss: str
    search: bool

    def matches(self, row: Row) -> bool:
        """Whether a row takes part in the stage."""
        text = f"{row.subject} {row.at}"
        here = row.hardware == self.hardware and (row.subject.startswith("op ") or row.engine == self.engine)
        return here and not row.reason and any(fnmatch.fnmatch(text, pattern) for pattern in self.rows)


@functools.cache
def shipped_stages() -> tuple[Stage, ...]:
    """The stages of the shipped calibration."""
    text = files("cm384model.evidence").joinpath("calibration.toml").read_text(encoding="utf-8")
    return tuple(
        Stage(
            name=name,
            rows=tuple(stage["rows"]),
            constants={
                path: (float(low), float(prior), float(high))
                for path, (low, prior, high) in stage["constants"].items()
            },
            hardware=stage.get("hardware", "cloudmatrix384"),
            engine=stage.get("engine", "cloudmatrix-infer"),
            loss=stage.get("loss", "linear"),
            search=stage.get("search", False),
        )
        for name, stage in tomllib.loads(text).items()
    )
