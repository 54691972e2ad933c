"""``cm384 calibrate``."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

import typer

from cm384model.cli import options
from cm384model.cli.exit_status import ExitStatus
from cm384model.specs.diagnostics import SpecError


def calibrate(
    measurements: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="Your measurements, csv or JSON; without a file the published rows.",
            show_default=False,
        ),
    ] = None,
    hardware: options.HardwareOption = None,
    engine: options.EngineOption = None,
    workload: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help="Workload whose model was measured.",
            autocompletion=options.complete("workload"),
        ),
    ] = "deepseek-r1-4k-256",
    stages: Annotated[
        list[str] | None,
        typer.Option("--stage", metavar="NAME", help="Only this stage. Repeatable.", show_default=False),
    ] = None,
    constants: Annotated[
        list[str] | None,
        typer.Option(
            "--constant",
            metavar="PATH",
            help="Only this constant, e.g. engine.constants.step_overhead. Repeatable.",
            show_default=False,
        ),
    ] = None,
    form: options.FormatOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.toml",
            help="Write the hardware file with the new constants.",
            show_default=False,
        ),
    ] = None,
    in_place: Annotated[
        bool,
        typer.Option("--in-place", help="Write the shipped data files again, from the published rows."),
    ] = False,
) -> ExitStatus:
    """Fit constants to measurements of your own.

    A file has the columns id, subject, at, quantity, value, unit, and may have
    against, source. A subject is decode, prefill, colocated, disaggregated,
    caching, loading or `op NAME`; at is what `cm384 predict` or `cm384 op`
    takes; times and rates in any unit.

    Constants start from the values of the machine and the engine, and stay there
    where the rows do not tell them. With -o, constants of the engine go to
    FILE.engine.toml.

    Exit status: 0 fitted, 2 bad input: no file is written.
    """
    from cm384model.cli.output import choose_format, deliver, progress_bar, write_together

    form = choose_format(form, None)
    _refuse_mixed(measurements, output, in_place, bool(hardware or engine or constants))
    from cm384model import api
    from cm384model.evidence.calibration import own_files, shipped_files
    from cm384model.report.calibrate import calibrate_report

    today = datetime.date.today().isoformat()
    with progress_bar("fitting") as tell:
        if measurements is None:
            found = api.calibrate(stages=stages or (), tell=tell)
            texts = shipped_files(found, today) if in_place else {}
        else:
            case = api.load_case(workload, hardware=hardware, engine=engine)
            found = api.calibrate(
                measurements, workload=case, stages=stages or (), constants=constants or (), tell=tell
            )
            texts = own_files(case, found, output, measurements.name, today) if output else {}
    write_together(texts)
    own = (
        "" if output is None else " ".join(f"--{o} {path}" for o, path in zip(_TAKEN_BY, texts, strict=False))
    )
    deliver(calibrate_report(found, [str(path) for path in texts], own), form, None)
    return ExitStatus.YES


_TAKEN_BY = ("hardware", "engine")
"""Options that take the files of a calibration, in the order in which they are written."""


def _refuse_mixed(
    measurements: Path | None,
    output: Path | None,
    in_place: bool,
    own: bool,
) -> None:
    """Refuse options that do not go together before anything is computed."""
    if measurements is None and (output or own):
        raise SpecError.of(
            "-o, --hardware, --engine and --constant go with a file of measurements",
            "without one, --in-place writes the shipped data files again",
        )
    if measurements is not None and in_place:
        raise SpecError.of("--in-place goes without a file of measurements", "use -o FILE.toml")
    if output is not None and output.suffix != ".toml":
        raise SpecError.of(
            f"'{output}' is no .toml file", "-o writes a hardware file; --format prints a report"
        )
