"""Reports of a calibration: what each stage found, and how sure it is."""

from __future__ import annotations

from collections.abc import Sequence

from cm384model.evidence.calibration import Calibration, FittedConstant, StageResult
from cm384model.report.blocks import Block, Table
from cm384model.report.report import Report, flat
from cm384model.report.values import percent, with_unit


def calibrate_report(found: Calibration, written: Sequence[str] = (), own: str = "") -> Report:
    """Constants before and after, errors before, after and on rows left out, stage by stage.

    ``own`` are the options under which new files of the user's are in effect.
    """
    stages, rows = len(found.stages), sum(len(stage.row_ids) for stage in found.stages)
    constants = [constant for stage in found.stages for constant in stage.constants]
    known = sum(constant.identified for constant in constants)
    blocks: list[Block] = [
        f"{rows} rows fitted {known} constants in {stages} stage{'s' if stages > 1 else ''}"
        + (f"; {len(constants) - known} left at their prior" if known < len(constants) else "")
    ]
    for stage in found.stages:
        blocks += [_title(stage), _constants(stage), _errors(stage)]
        if stage.correlated:
            blocks.append(_correlated(stage))
    if found.unused_ids:
        count = len(found.unused_ids)
        rows_are = "row" if count == 1 else "rows"
        blocks.append(f"no constant is fitted to {count} {rows_are}: {', '.join(found.unused_ids)}")
    if written:
        blocks.append("\n".join(f"wrote {path}" for path in written))
    if own:
        blocks.append(f"in effect with {own}")
    records = [
        {"stage": stage.stage, **flat(constant)} for stage in found.stages for constant in stage.constants
    ]
    return Report(blocks, records, found)


def _title(stage: StageResult) -> str:
    of_engine = any(constant.path.startswith("engine.") for constant in stage.constants)
    with_engine = f" with {stage.engine}" if of_engine else ""
    rows = len(stage.row_ids)
    return f"{stage.stage}: {rows} row{'s' if rows > 1 else ''} on {stage.hardware}{with_engine}"


def _correlated(stage: StageResult) -> str:
    """Constants of which the rows fix a combination better than each."""
    pairs = [
        f"{pair.first.rpartition('.')[2]} and {pair.second.rpartition('.')[2]} ({pair.correlation:+.2f})"
        for pair in stage.correlated
    ]
    return f"hardly told apart, with their correlation: {', '.join(pairs)}"


def _constants(stage: StageResult) -> Table:
    rows = [
        (
            constant.path,
            _value(constant.before, constant.unit),
            _value(constant.after, constant.unit),
            _value(constant.standard_error, constant.unit) if constant.identified else "",
            f"{_value(constant.bound_low, constant.unit)} to {_value(constant.bound_high, constant.unit)}",
            _remark(constant),
        )
        for constant in stage.constants
    ]
    return Table(("constant", "before", "after", "std. error", "bounds", ""), rows, "lrrrll")


def _value(value: float, unit: str) -> str:
    if value == 0:
        return "0"
    return f"{value:.4g}" if unit == "-" else with_unit(value, unit)


def _remark(constant: FittedConstant) -> str:
    if not constant.identified:
        return "the rows do not tell it: left at its prior"
    if constant.at_bound:
        upper = constant.after > (constant.bound_low + constant.bound_high) / 2
        return f"at its {'upper' if upper else 'lower'} bound"
    return ""


def _errors(stage: StageResult) -> Table:
    """Absolute errors of the rows; the last line is what to expect of a row that is not among them."""
    cases = [("before", stage.errors_before), ("after", stage.errors_after)]
    if stage.leave_one_out is not None:
        cases.append(("each row left out", stage.leave_one_out))
    rows = [
        (name, percent(errors.median_error), percent(errors.mean_error), percent(errors.worst_error))
        for name, errors in cases
    ]
    return Table(("absolute error", "median", "mean", "worst"), rows, "lrrr")
