"""Fitted constants back into their TOML file: one line each, everything else untouched."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from typing import Any

from cm384model.evidence.calibrate import Constant, StageFit, identified, significant
from cm384model.evidence.stages import shipped_stages
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.toml_keys import Place, key_places
from cm384model.specs.units import UNITS

_DATE = re.compile(r", \d{4}-\d\d-\d\d$")

KEYS = ("value", "unit", "per", "range", "source", "kind", "confidence", "note", "alternatives")
"""Keys of a number in the order in which they are written."""

Z80 = 1.2816
"""Standard errors on each side of an 80 % interval. [-]"""


def rewritten(text: str, fits: Iterable[StageFit], kind: str, date: str, origin: str = "") -> str:
    """The text of a ``hardware`` or ``engine`` file with the constants that ``fits`` identified.

    A line stays as it is when nothing but the date would change. ``origin`` is the file of the
    rows, if they are not the shipped ones.
    """
    lines = text.split("\n")
    places = key_places(text)
    for fit in fits:
        for constant in identified(fit, kind):
            _, *path = constant.path.split(".")
            if tuple(path) not in places:  # taken from the file that this one extends
                unset = {"alternatives", "carried_from"}
                stated = constant.quantity.model_dump(exclude_none=True, exclude=unset)
                lines, places = _with_line(lines, path, stated)
            index = places[tuple(path)].line - 1
            lines[index] = _line(lines[index], constant, fit, date, origin)
    return "\n".join(lines)


def with_residuals(text: str, fits: Iterable[StageFit], kind: str, date: str, origin: str) -> str:
    """The text with the error, rows left out one by one, of every stage of which the file has constants."""
    lines = text.split("\n")
    for fit in fits:
        if identified(fit, kind) and fit.leave_one_out is not None:
            path, rows = ["residuals", fit.stage.name], f"{len(fit.rows)} rows of {origin}"
            place = key_places("\n".join(lines)).get(tuple(path))
            if place is not None:
                del lines[place.line - 1]
            stated = {
                "value": significant(fit.leave_one_out.most),
                "unit": "-",
                "source": f"fit: stage {fit.stage.name}, {rows}, each left out, {date}",
                "kind": "fitted",
                "confidence": "C",
                "note": "log error that 80 % of them stay below",
            }
            lines, _ = _with_line(lines, path, stated)
    return "\n".join(lines)


def _with_line(
    lines: list[str], path: list[str], stated: dict[str, Any]
) -> tuple[list[str], dict[Any, Place]]:
    """The lines with one more for a number that they do not have, and the places of all."""
    *section, name = path
    added = f"{name} = {_toml(stated)}"
    header = f"[{'.'.join(section)}]"
    if header in lines:
        at = lines.index(header) + 1
        lines = [*lines[:at], added, *lines[at:]]
    else:
        lines = ["\n".join(lines).rstrip("\n"), "", header, added, ""]
    text = "\n".join(lines)
    return text.split("\n"), key_places(text)


def renamed(text: str, name: str) -> str:
    """The text of a data file under another name."""
    lines = text.split("\n")
    lines[key_places(text)[("name",)].line - 1] = f"name = {json.dumps(name, ensure_ascii=False)}"
    return "\n".join(lines)


def _line(old: str, constant: Constant, fit: StageFit, date: str, origin: str) -> str:
    """The line of a constant with what was fitted; the same line if only the date would change."""
    key, _, rest = old.partition("=")
    try:
        quantity: dict[str, Any] = dict(tomllib.loads(old)[key.strip()])
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError):
        hint = "a number of a data file is one line: name = { value = ..., unit = ... }"
        raise SpecError.of(f"{constant.path} does not stand on one line", hint) from None
    fitted = quantity | _fitted(constant, fit, date, origin)
    if _undated(fitted) == _undated(quantity):
        return old
    order = [name for name in KEYS if name in fitted]
    written = ", ".join(f"{name} = {_toml(fitted[name])}" for name in order)
    comment = rest.rpartition("}")[2]
    return f"{key}= {{ {written} }}{comment}"


def _fitted(constant: Constant, fit: StageFit, date: str, origin: str) -> dict[str, Any]:
    scale = UNITS[constant.quantity.unit].to_si(1.0)
    low, _, high = fit.stage.constants[constant.path]
    spread = Z80 * constant.error
    bounds = [max(constant.after - spread, low), min(constant.after + spread, high)]
    value = significant(constant.after / scale)
    ends = [min(significant(bounds[0] / scale), value), max(significant(bounds[1] / scale), value)]
    unseen = fit.leave_one_out or fit.after
    rows = f"{len(fit.rows)} rows" + (f" of {origin}" if origin else "")
    return {
        "value": value,
        "range": ends,
        "source": f"fit: stage {fit.stage.name}, {rows}, {date}",
        "kind": "fitted",
        "confidence": "B" if unseen.median <= 0.1 and not fit.correlated else "C",
    }


def _undated(quantity: dict[str, Any]) -> dict[str, Any]:
    """What a quantity says, apart from the date."""
    return quantity | {"source": _DATE.sub("", str(quantity.get("source", "")))}


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(entry)}" for name, entry in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else f"{value:.12g}"


def residuals_text(fits: Iterable[StageFit], old: str) -> str:
    """Contents of ``residuals.toml``: per stage, the log error that 80 % of its rows stay below unseen.

    Stages that were not fitted again keep what ``old`` says.
    """
    known = [stage.name for stage in shipped_stages()]
    found: dict[str, float] = dict.fromkeys(known, 0.0) | tomllib.loads(old)
    found |= {fit.stage.name: significant(fit.leave_one_out.most) for fit in fits if fit.leave_one_out}
    lines = [
        "# Error of the model on measured rows, per calibration stage: the log error that 80 % of the rows",
        "# stay below under a fit that never saw them. Written by `make calibrate`; part of every error bar.",
        "# Runs to the end fitted nothing: what 80 % of the published ones stay below, written by hand.",
    ]
    kept = [name for name in found if name in known or name.startswith("runs")]
    lines += [f"{name} = {found[name]:g}" for name in kept if found[name]]
    return "\n".join(lines) + "\n"
