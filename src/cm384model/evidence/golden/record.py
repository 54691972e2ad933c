"""The golden file: one number a line, sorted, with what it was computed from in the comments above.

::

    # data 9f2c1a2b hardware/cloudmatrix384.toml
    # case decode-ep320 1a2b3c4d 0.1.0 9f2c1a2b 77aa0011
    case,quantity,value,unit
    decode-ep320,tpot_s,0.0489549717804,s
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cm384model.evidence.golden.cases import WORD, Evaluated, Provenance, Value
from cm384model.specs.diagnostics import Problem, SpecError

HEADER = "case,quantity,value,unit"
_TITLE = "# Written by cm384 check --update. A number moves only when its case is named."


@dataclass(frozen=True)
class Golden:
    """Pinned cases by name.

    Attributes
    ----------
    cases : mapping of str to Evaluated
    lines : mapping of (str, str) to int
        The line of every case and quantity in the file.
    """

    cases: Mapping[str, Evaluated]
    lines: Mapping[tuple[str, str], int] = field(default_factory=dict)


def read_golden(path: Path) -> Golden:
    """The golden numbers of a file; none where there is no file.

    Raises
    ------
    SpecError
        With every faulty line.
    """
    if not path.exists():
        return Golden({})
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SpecError.of(f"cannot read '{path}': {reason}") from error
    rows = text.splitlines()
    problems: list[Problem] = []
    data: dict[str, str] = {}
    provenance: dict[str, Provenance] = {}
    values: dict[str, dict[str, tuple[Value, str]]] = {}
    lines: dict[tuple[str, str], int] = {}
    headed = False
    for number, row in enumerate(rows, start=1):
        try:
            if row.startswith("#"):
                _read_comment(row, data, provenance)
            elif not headed:
                headed = row == HEADER
                if not headed:
                    raise ValueError(f"the first line is not {HEADER}")
            elif row:
                case, quantity, value, unit = _read_row(row)
                if (case, quantity) in lines:
                    raise ValueError(f"stands in line {lines[case, quantity]} too")
                lines[case, quantity] = number
                values.setdefault(case, {})[quantity] = (value, unit)
        except ValueError as error:
            problems.append(Problem(str(error), str(path), number, 1, len(row), row))
            if not headed and not row.startswith("#"):
                break
    if problems:
        raise SpecError(problems)
    unknown = Provenance("", "", {})
    return Golden({n: Evaluated(v, provenance.get(n, unknown)) for n, v in values.items()}, lines)


def golden_text(cases: Mapping[str, Evaluated]) -> str:
    """The contents of a golden file; the same cases give the same bytes."""
    used = sorted(
        {(name, digest) for case in cases.values() for name, digest in case.provenance.data.items()}
    )
    lines = [_TITLE, *(f"# data {digest} {name}" for name, digest in used)]
    for name, case in sorted(cases.items()):
        p = case.provenance
        if p.case:
            lines.append(" ".join(["# case", name, p.case, p.version, *sorted(p.data.values())]))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for name, case in sorted(cases.items()):
        for quantity, (value, unit) in sorted(case.values.items()):
            writer.writerow([name, quantity, f"{value:.12g}" if isinstance(value, float) else value, unit])
    return "\n".join([*lines, HEADER, text.getvalue()])


def _read_comment(row: str, data: dict[str, str], provenance: dict[str, Provenance]) -> None:
    match row.split(maxsplit=3):
        case ["#", "data", digest, name]:
            data[f"{digest} {name}"] = digest
        case ["#", "case", name, rest]:
            own, version, *digests = rest.split()
            files = {entry.partition(" ")[2]: digest for entry, digest in data.items() if digest in digests}
            provenance[name] = Provenance(own, version, files)


def _read_row(row: str) -> tuple[str, str, Value, str]:
    cells = next(csv.reader([row]))
    if len(cells) != 4 or not all(cells):
        raise ValueError(f"needs four values, {HEADER}")
    case, quantity, text, unit = cells
    value: Value = text
    if unit != WORD:
        value = float(text)
        if not math.isfinite(value):
            raise ValueError(f"{text} is not finite")
    return case, quantity, value, unit
