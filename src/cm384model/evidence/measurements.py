"""A user's own measurements: read with their units, and refused where they cannot be right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cm384model.evidence.published import Row, dimension_of, predicted_value
from cm384model.evidence.rowfile import Line, read_lines
from cm384model.prediction.case import Case
from cm384model.prediction.evaluate import operator_term
from cm384model.specs.diagnostics import Problem, SpecError
from cm384model.specs.units import SI_UNIT

COLUMNS = ("id", "subject", "at", "against", "quantity", "value", "unit", "source")
REQUIRED = ("id", "subject", "at", "quantity", "value", "unit")
SUBJECTS = ("op", "decode", "prefill", "caching", "loading")


def read_measurements(path: Path, case: Case) -> list[Row]:
    """Measurements of a CSV or JSON file, made on the machine and engine of a case.

    Parameters
    ----------
    path : Path
        A file with the columns ``id, subject, at, quantity, value, unit`` and, if wanted,
        ``against, source``. Units may be mixed: each row is converted by its own.
    case : Case
        What the rows were measured on.

    Returns
    -------
    list of Row
        In SI units.

    Raises
    ------
    SpecError
        With every faulty line: what `read_lines` refuses, an unknown operator, quantity or name
        of ``at``, a value that is not finite and positive, a unit that is missing or measures
        something else.
    """
    problems: list[Problem] = []
    rows: list[Row] = []
    for line in read_lines(path, COLUMNS, REQUIRED):
        try:
            rows.append(_row(line, case))
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    return rows


def _row(line: Line, case: Case) -> Row:
    dimension = dimension_of(line)
    if line["subject"].split()[0] not in SUBJECTS:
        raise line.error(f"subject '{line['subject']}' cannot be measured", line["subject"])
    row = Row(
        id=line["id"],
        group="mine",
        subject=line["subject"],
        at=line["at"],
        against=line["against"],
        quantity=line["quantity"],
        published=line.si("value", dimension),
        unit=SI_UNIT[dimension],
        band=1.0,
        used_for_fit=True,
        tier="",
        workload=case.workload.name,
        model="",
        hardware=case.hardware.name,
        engine=case.engine.name,
        settings=(),
        acceptance=None,
        source=line["source"],
        reason="",
        line=line,
    )
    try:
        predicted_value(case, row)
        return replace(row, at=_with_words(case, row))
    except SpecError as error:
        raise line.located(error) from None


def _with_words(case: Case, row: Row) -> str:
    """``at`` with the words that it leaves to their defaults, such as the library: stages look at them."""
    if row.kind != "op":
        return row.at
    operands = operator_term(case, row.subject.partition(" ")[2], row.at)[1]
    given = {item.partition("=")[0].strip() for item in row.at.split(",")}
    words = [
        f"{name}={word}" for name, word in operands.items() if isinstance(word, str) and name not in given
    ]
    return ",".join([*filter(None, [row.at]), *words])
