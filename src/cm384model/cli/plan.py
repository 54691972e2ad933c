"""``cm384 plan``."""

from __future__ import annotations

from typing import Annotated

import typer

from cm384model.cli import options
from cm384model.cli.exit_status import ExitStatus


def plan(
    workload: options.Workload,
    hardware: options.HardwareOption = None,
    engine: options.EngineOption = None,
    npus: Annotated[
        int, typer.Option(parser=options.whole("--npus"), metavar="N", help="NPUs to spend.")
    ] = 384,
    slo: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=TIME,...",
            help="Limits, e.g. tpot=50ms,ttft=2s; by default the workload's.",
            show_default=False,
        ),
    ] = None,
    top: Annotated[int, typer.Option(parser=options.whole("--top"), metavar="N", help="Plans to show.")] = 5,
    form: options.FormatOption = None,
    output: options.OutputOption = None,
    settings: options.SettingsOption = None,
) -> ExitStatus:
    """Find the pools of instances that serve the most requests.

    Every deployment of prefill and decode is predicted; the plans within the
    NPUs and the limits are ranked by requests per second.

    Exit status: 0 a plan, 1 no plan is feasible, 2 bad input.
    """
    from cm384model.cli.output import choose_format, deliver, say_no

    form = choose_format(form, output)
    from cm384model import api
    from cm384model.report.plan import plan_report

    case = api.load_case(workload, hardware=hardware, engine=engine, settings=settings or ())
    result = api.plan(case, npus=npus, slo=slo, top=top)
    case_words = options.case_words(workload, hardware, engine, settings)
    deliver(plan_report(case, result, case_words), form, output)
    if result.infeasible is None:
        return ExitStatus.YES
    say_no(result.infeasible.constraint, result.infeasible.nearest, result.infeasible.hint)
    return ExitStatus.NO
