"""``cm384 list``."""

from __future__ import annotations

from typing import Annotated

import typer

from cm384model.cli import options
from cm384model.cli.exit_status import ExitStatus
from cm384model.report.listing import KINDS, listing

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
    form: options.FormatOption = None,
    output: options.OutputOption = None,
) -> ExitStatus:
    """List data files, laws, operators, names, units.

    `quantities` are the names of options, JSON keys and csv columns.
    """
    from cm384model.cli.output import choose_format, deliver

    deliver(listing(kind), choose_format(form, output), output)
    return ExitStatus.YES
