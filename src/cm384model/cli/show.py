"""``cm384 show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cm384model.cli import options
from cm384model.cli.exit_status import ExitStatus
from cm384model.specs.diagnostics import SpecError

ROWS = 10


def show(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Output of cm384 sweep, or its .part.", show_default=False),
    ],
    top: Annotated[
        int, typer.Option(parser=options.whole("--top"), metavar="N", help="Rows to show.")
    ] = ROWS,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="COLUMN",
            help="Best by this column; else by throughput.",
            show_default=False,
        ),
    ] = None,
    smallest: Annotated[bool, typer.Option("--smallest", help="The smallest is the best.")] = False,
    frontier: Annotated[
        bool, typer.Option("--frontier", help="All rows that no row beats in throughput and time.")
    ] = False,
    head: Annotated[bool, typer.Option("--head", help="The first rows, in the order of the file.")] = False,
    form: options.FormatOption = None,
    output: options.OutputOption = None,
) -> ExitStatus:
    """Look at a written sweep: its origin, best rows, frontier.

    Parquet files and folders are read in bounded memory, whatever their size.
    """
    from cm384model.cli.output import choose_format, deliver

    form = choose_format(form, output)
    if top < 1:
        raise SpecError.of(f"--top = {top} is out of bounds", "at least 1")
    given = [name for name, on in (("--frontier", frontier), ("--head", head), ("--by", by)) if on]
    if len(given) > 1:
        raise SpecError.of(f"{' and '.join(given)} choose different rows", "give one of them")
    from cm384model.report.sweep import result_title, sweep_report
    from cm384model.sweeping.results import open_result, reading

    with reading(file):
        result = open_result(file)
        if frontier:
            frame = result.frontier()
        elif head or not (by or result.has_gain):
            frame = result.head(top)
        else:
            frame = result.best(top, by or result.gain(), ascending=smallest)
        columns = result.columns
        title = result_title(str(file), result.rows, len(columns), result.said, finished=result.finished)
    deliver(sweep_report(title, frame.to_dicts(), columns), form, output)
    return ExitStatus.YES if len(frame) else ExitStatus.NO
