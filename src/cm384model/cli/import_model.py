"""``cm384 import-model``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cm384model.cli import options
from cm384model.cli.exit_status import ExitStatus


def import_model(
    config: Annotated[
        Path,
        typer.Argument(metavar="CONFIG", help="A config.json of Hugging Face, on disk.", show_default=False),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Model file to write; by default it is printed.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name; by default from the file.", show_default=False),
    ] = None,
    quantisation: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help="How it is served if not as stored: bf16, w8a8, w8a16, w4a8, w4a16, fp8.",
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Where the config is published, for the sources.", show_default=False
        ),
    ] = None,
    form: options.FormatOption = None,
) -> ExitStatus:
    """Write a model file from a Hugging Face config.

    Nothing is downloaded. Every key is reported: used, without effect, or unknown.
    With -o the report is printed; without, the model file is, and the report goes to stderr.
    """
    from cm384model.cli.output import write_whole
    from cm384model.report.import_model import import_report
    from cm384model.specs.huggingface import import_config, read_config
    from cm384model.specs.huggingface.importer import plain_name

    usual = output.stem if output else config.parent.name if config.stem == "config" else config.stem
    imported = import_config(
        read_config(config),
        name=plain_name(name or usual or config.stem),
        reference=source or config.name,
        quantisation=quantisation,
    )
    report = import_report(imported, None if output is None else str(output)).render(form or "table")
    if output is None:
        sys.stdout.write(imported.text)
        sys.stderr.write(report)
    else:
        write_whole(output, imported.text)
        sys.stdout.write(report)
    return ExitStatus.YES
