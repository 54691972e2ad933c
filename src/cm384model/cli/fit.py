"""``cm384 fit``."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from cm384model.cli import options
from cm384model.cli.exit_status import ExitStatus


def fit(
    workload: options.Workload,
    phase: options.PhaseOption = "decode",
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at",
            metavar="NAME=VALUE,...",
            help="The deployment, as for predict; all of it may be left out. Repeatable.",
            show_default=False,
        ),
    ] = None,
    npus: Annotated[
        int | None,
        typer.Option(
            parser=options.whole("--npus"),
            metavar="N",
            help="NPUs at hand for one instance; by default all of the machine.",
            show_default=False,
        ),
    ] = None,
    model: options.ModelOption = None,
    hardware: options.HardwareOption = None,
    engine: options.EngineOption = None,
    form: options.FormatOption = None,
    output: options.OutputOption = None,
    settings: options.SettingsOption = None,
) -> ExitStatus:
    """Tell what fits: NPUs, memory, context against batch.

    Prints the fewest NPUs that hold the model, where the memory of a die goes,
    the largest batch for each context, the longest context for each batch, and
    what single changes would give. Without ep the smallest instances and the
    paper's EP320 are shown; without a load, one request per die.

    Exit status: 0 it fits, 1 it does not, 2 bad input.

    {at}
    """
    from cm384model.cli.output import choose_format, deliver, say_no

    form = choose_format(form, output)
    from cm384model import api
    from cm384model.prediction.capacity import Phase
    from cm384model.report.fit import fit_report

    case = api.load_case(workload, model=model, hardware=hardware, engine=engine, settings=settings or ())
    result = api.fit(case, phase=cast(Phase, phase), at=at or (), npus=npus)
    deliver(fit_report(case, result), form, output)
    if result.infeasible is None:
        return ExitStatus.YES
    say_no(result.infeasible.constraint, result.infeasible.nearest, result.infeasible.hint)
    return ExitStatus.NO
