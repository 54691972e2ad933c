"""``cm384 validate``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cm384model.cli import options
from cm384model.cli.exit_status import ExitStatus
from cm384model.specs.diagnostics import SpecError, with_suggestion


def validate(
    groups: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            metavar="GROUP",
            help="Only groups that begin so, e.g. decode or operators. Repeatable.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show every row, and why the others are not predicted.")
    ] = False,
    leave_one_out: Annotated[
        bool,
        typer.Option(
            "--leave-one-out", help="Predict each decode row by a fit that never saw it; some seconds."
        ),
    ] = False,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="group|model|engine", help="The summary by one of these alone.", show_default=False
        ),
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Rows of your own, csv or JSON.", show_default=False),
    ] = None,
    form: options.FormatOption = None,
    output: options.OutputOption = None,
) -> ExitStatus:
    """Predict what was published, and say how far off.

    Every published row that ships with cm384 is predicted again: error, the
    band it has to stay in, whether it fitted a constant, whether the 80 %
    interval holds it, its source. Rows that fitted a constant are no evidence.

    Where a source does not say how many drafts were accepted, both ends of what
    is plausible are predicted; the error is the distance from the nearer one.

    A file of --rows has the columns id, subject, at, quantity, published, unit,
    band, and may have group, against, used_for_fit, workload, model, hardware,
    engine, settings, acceptance, source, reason.

    Exit status: 0 every row stays in its band, 1 one leaves it, 2 bad input.
    """
    from cm384model.cli.output import choose_format, deliver

    form = choose_format(form, output)
    if rows and leave_one_out:
        raise SpecError.of("--leave-one-out does not go with rows of your own", "they fitted nothing")
    from cm384model import api
    from cm384model.report.validate import BY, validate_report

    if by is not None and by not in BY:
        raise SpecError.of(with_suggestion(f"--by {by} is not known", by, BY), f"one of {', '.join(BY)}")

    found = api.validate(groups=groups or (), rows=rows, leave_one_out=leave_one_out)
    deliver(validate_report(found, every=every, chosen=bool(groups or rows), by=by), form, output)
    outside = found.summary.outside_band
    if not outside:
        return ExitStatus.YES
    said = "row leaves its" if len(outside) == 1 else "rows leave their"
    sys.stderr.write(f"{len(outside)} {said} band: {', '.join(outside)}\n")
    return ExitStatus.NO
