"""``cm384 op``."""

from __future__ import annotations

from typing import Annotated

import typer

from cm384model.cli import options
from cm384model.cli.exit_status import ExitStatus
from cm384model.specs.deployment import OPERATOR_FIELDS


def op(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Operator: " + ", ".join(OPERATOR_FIELDS) + ".",
            autocompletion=options.complete_words(tuple(OPERATOR_FIELDS)),
            show_default=False,
        ),
    ],
    at: options.AtOption = None,
    workload: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help="Workload whose model gives the sizes that --at does not.",
            autocompletion=options.complete("workload"),
        ),
    ] = "deepseek-r1-4k-256",
    model: options.ModelOption = None,
    hardware: options.HardwareOption = None,
    engine: options.EngineOption = None,
    form: options.FormatOption = None,
    output: options.OutputOption = None,
    settings: options.SettingsOption = None,
) -> ExitStatus:
    """Predict one operator on one die, with its sources.

    `cm384 list operators` tells what --at takes for each.
    """
    from cm384model.cli.output import choose_format, deliver

    form = choose_format(form, output)
    from cm384model import api
    from cm384model.report.op import op_report

    case = api.load_case(workload, model=model, hardware=hardware, engine=engine, settings=settings or ())
    deliver(op_report(case, api.op(name, at=at or (), workload=case)), form, output)
    return ExitStatus.YES
