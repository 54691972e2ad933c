"""Reports of one operator."""

from __future__ import annotations

from cm384model.prediction.case import Case
from cm384model.prediction.results import OperatorPrediction
from cm384model.report.blocks import Block, Table
from cm384model.report.predict import settings
from cm384model.report.report import Report
from cm384model.report.values import interval, significant, with_unit


def op_report(case: Case, result: OperatorPrediction) -> Report:
    """Time, work, competing parts, and the sourced numbers that made them."""
    ends = interval(result.time_s_low, result.time_s_high, "s")
    work = [("time", with_unit(result.time_s, "s"), ends, f"{result.bound} bound")]
    if result.flop:
        work.append(("flop", with_unit(result.flop, "FLOP"), "", _rate(result.flop, result, "FLOP/s")))
    if result.bytes:
        work.append(("bytes", with_unit(result.bytes, "B"), "", _rate(result.bytes, result, "B/s")))
    parts = [
        (name, with_unit(time, "s"), "", "part of the time") for name, time in result.parts_s.items() if time
    ]
    used = [
        (number.name, f"{number.value:g}", number.unit, number.confidence, number.source)
        for number in result.efficiency
    ]
    blocks: list[Block] = [
        f"{result.name} on one die of {case.hardware.name}\n{settings(result.operands)}",
        Table(("", "", "80 % interval", ""), work + parts, "lrll"),
    ]
    if used:
        blocks.append(Table(("number read", "value", "unit", "conf.", "source"), used, "lrlll"))
    record = {"name": result.name, **result.operands, "time_s": result.time_s, "flop": result.flop}
    record |= {"bytes": result.bytes, "bound": result.bound}
    record |= {"time_s_low": result.time_s_low, "time_s_high": result.time_s_high}
    return Report(blocks, [record], result, result.notes)


def _rate(amount: float, result: OperatorPrediction, unit: str) -> str:
    return f"at {with_unit(amount / result.time_s, unit)}" if result.time_s else significant(0)
