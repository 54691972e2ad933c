"""Reports of what moves an answer most."""

from __future__ import annotations

from cm384model.evidence.sensitivity import InputEffect, Sensitivity
from cm384model.prediction.case import Case
from cm384model.report.blocks import Block, Table
from cm384model.report.predict import heading
from cm384model.report.report import Report, flat
from cm384model.report.values import interval, percent, signed, with_unit

NEGLIGIBLE = 0.001
"""Inputs that change the answer by less at both ends of their range are counted, not listed. [-]"""

_NAMES = {"tpot_s": "TPOT", "batch_time_s": "batch time"}


def sensitivity_report(case: Case, found: Sensitivity) -> Report:
    """The interval of the answer, and the inputs that make it wide."""
    name = _NAMES[found.quantity]
    shown = [effect for effect in found.effects if _reach(effect) >= NEGLIGIBLE]
    rest = len(found.effects) - len(shown)
    ends = interval(found.predicted_low, found.predicted_high, "s")
    blocks: list[Block] = [
        heading(case, found.phase, found.deployment),
        f"{name} {with_unit(found.predicted, 's')}, 80 % interval {ends}",
        f"change of the {name} when one input goes to the low and to the high end of its range",
        Table(
            ("input", "value", "range", "conf.", "at low", "at high", "source"),
            [_row(effect) for effect in shown],
            "lrllrrl",
        ),
        f"{rest} other inputs with a range change it by less than {percent(NEGLIGIBLE)}"
        f"\non 80 % of measured rows like this the model itself is off by at most {percent(found.residual)}",
    ]
    records = [{**flat(effect), **_ends(effect)} for effect in found.effects]
    return Report(blocks, records, found, found.notes)


def _reach(effect: InputEffect) -> float:
    return max(abs(effect.effect_low), abs(effect.effect_high))


def _row(effect: InputEffect) -> tuple[str, ...]:
    unit = "" if effect.unit == "-" else f" {effect.unit}"
    return (
        effect.path,
        f"{effect.value:g}{unit}",
        f"{effect.range[0]:g} .. {effect.range[1]:g}",
        effect.confidence,
        signed(effect.effect_low),
        signed(effect.effect_high),
        effect.source,
    )


def _ends(effect: InputEffect) -> dict[str, float]:
    return {"range_low": effect.range[0], "range_high": effect.range[1]}
