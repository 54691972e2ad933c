"""``cm384 explain``."""

from __future__ import annotations

import shlex
from typing import Annotated, cast

import typer

from cm384model.cli import options
from cm384model.cli.exit_status import ExitStatus


def explain(
    workload: options.Workload,
    term: Annotated[
        str | None,
        typer.Argument(metavar="TERM", help="Term to explain; without it a summary.", show_default=False),
    ] = None,
    phase: options.PhaseOption = "decode",
    at: options.AtOption = None,
    hardware: options.HardwareOption = None,
    engine: options.EngineOption = None,
    form: options.FormatOption = None,
    output: options.OutputOption = None,
    settings: options.SettingsOption = None,
) -> ExitStatus:
    """Explain a prediction: terms, formulas, sources.

    {at}
    """
    from cm384model.cli.output import choose_format, deliver, say_no

    form = choose_format(form, output)
    from cm384model import api
    from cm384model.prediction.explain import Phase
    from cm384model.prediction.explain import explain as explained
    from cm384model.report.explain import explain_report

    case = api.load_case(workload, hardware=hardware, engine=engine, settings=settings or ())
    explanation = explained(case, cast(Phase, phase), at or (), term)
    words = options.case_words(workload, hardware, engine, settings)
    command = f"cm384 explain {words} --phase {phase} --at {shlex.quote(','.join(at or ()))}"
    deliver(explain_report(case, explanation, command), form, output)
    if explanation.feasible:
        return ExitStatus.YES
    say_no(", ".join(explanation.reasons), "", "cm384 predict shows the memory ledger")
    return ExitStatus.NO
