"""``cm384 list``."""

from __future__ import annotations

from typing import Annotated

import typer

from cm384model.cli import options
from cm384model.cli.exit_status import ExitStatus
from cm384model.report.listing import KINDS, ON_A_MACHINE, listing
from cm384model.specs.diagnostics import SpecError

KIND_NAMES = tuple(KINDS)


def list_names(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="One of " + ", ".join(KIND_NAMES) + ".",
            callback=options.one_of("kind", KIND_NAMES),
            autocompletion=options.complete_words(KIND_NAMES),
            show_default=False,
        ),
    ],
    hardware: Annotated[
        str | None,
        typer.Option(
            "--hardware",
            metavar="NAME|FILE",
            help="Machine that the sizes of models are for; by default cloudmatrix384.",
            autocompletion=options.complete("hardware"),
            show_default=False,
        ),
    ] = None,
    form: options.FormatOption = None,
    output: options.OutputOption = None,
) -> ExitStatus:
    """List data files, laws, operators, names, units.

    `quantities` are the names of options, JSON keys and csv columns.
    """
    from cm384model.cli.output import choose_format, deliver

    if hardware is not None and kind not in ON_A_MACHINE:
        raise SpecError.of(
            f"{kind} do not depend on a machine", f"--hardware is for {', '.join(ON_A_MACHINE)}"
        )
    deliver(listing(kind, hardware), choose_format(form, output), output)
    return ExitStatus.YES
