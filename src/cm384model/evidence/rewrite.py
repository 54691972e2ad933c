"""Fitted constants back into their TOML file: one line each, everything else untouched."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cm384model.evidence.calibrate import Constant, StageFit
from cm384model.specs.toml_keys import key_places
from cm384model.specs.units import UNITS

Z80 = 1.2816
"""Standard errors on each side of an 80 % interval. [-]"""


def rewritten(text: str, fits: Iterable[StageFit], kind: str, date: str) -> str:
    """The text of a ``hardware`` or ``engine`` file with the constants that ``fits`` identified."""
    lines = text.split("\n")
    places = key_places(text)
    for fit in fits:
        for constant in fit.constants:
            head, *path = constant.path.split(".")
            if head == kind and constant.identified:
                index = places[tuple(path)].line - 1
                key = lines[index].partition("=")[0]
                lines[index] = f"{key}= {_inline(constant, fit, date)}"
    return "\n".join(lines)


def _inline(constant: Constant, fit: StageFit, date: str) -> str:
    quantity = constant.quantity
    scale = UNITS[quantity.unit].to_si(1.0)
    low, _, high = fit.stage.constants[constant.path]
    spread = Z80 * constant.error
    bounds = [max(constant.after - spread, low), min(constant.after + spread, high)]
    value = _digits(constant.after / scale)
    ends = [min(_digits(bounds[0] / scale), value), max(_digits(bounds[1] / scale), value)]
    confidence = "B" if fit.leave_one_out.median <= 0.1 and not fit.correlated else "C"
    parts = [f"value = {value:g}", f'unit = "{quantity.unit}"']
    if quantity.per:
        parts.append(f'per = "{quantity.per}"')
    parts.append(f"range = [{ends[0]:g}, {ends[1]:g}]")
    parts.append(f'source = "fit: stage {fit.stage.name}, {len(fit.rows)} rows, {date}"')
    parts += ['kind = "fitted"', f'confidence = "{confidence}"']
    if quantity.note:
        parts.append(f'note = "{quantity.note}"')
    return "{ " + ", ".join(parts) + " }"


def _digits(value: float) -> float:
    """Four significant digits: more would claim more than any fit knows."""
    return float(f"{value:.4g}")


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def residuals_text(fits: Iterable[StageFit]) -> str:
    """Contents of ``residuals.toml``: per stage, the log error that 80 % of its rows stay below unseen."""
    lines = [
        "# Error of the model on measured rows, per calibration stage: the log error that 80 % of the rows",
        "# stay below under a fit that never saw them. Written by `make calibrate`; part of every error bar.",
    ]
    lines += [f"{fit.stage.name} = {_digits(fit.leave_one_out.most):g}" for fit in fits]
    return "\n".join(lines) + "\n"
