"""``cm384 explain``."""

from __future__ import annotations

import shlex
from typing import Annotated, cast

import typer

from cm384model.cli import options
from cm384model.cli.exit_status import ExitStatus
from cm384model.specs.diagnostics import SpecError


def explain(
    workload: options.Workload,
    term: Annotated[
        str | None,
        typer.Argument(metavar="TERM", help="Term to explain; without it a summary.", show_default=False),
    ] = None,
    sensitivity: Annotated[
        bool,
        typer.Option("--sensitivity", help="List the inputs that move TPOT or batch time most."),
    ] = False,
    phase: options.ServedOption = "decode",
    at: options.AtOption = None,
    model: options.ModelOption = None,
    hardware: options.HardwareOption = None,
    engine: options.EngineOption = None,
    form: options.FormatOption = None,
    output: options.OutputOption = None,
    settings: options.SettingsOption = None,
) -> ExitStatus:
    """Explain a prediction: terms, formulas, sources.

    {served}
    """
    from cm384model.cli.output import choose_format, deliver

    form = choose_format(form, output)
    from cm384model import api
    from cm384model.prediction.explain import Phase
    from cm384model.prediction.explain import explain as explained
    from cm384model.report.explain import explain_report

    if sensitivity and term:
        raise SpecError.of(
            f"'{term}' and --sensitivity do not go together", "--sensitivity looks at the whole"
        )
    case = api.load_case(workload, model=model, hardware=hardware, engine=engine, settings=settings or ())
    if sensitivity:
        from cm384model.evidence.sensitivity import sensitivity as effects
        from cm384model.report.sensitivity import sensitivity_report

        found = effects(case, cast(Phase, phase), at or ())
        deliver(sensitivity_report(case, found), form, output)
        return _status(found.reasons)
    explanation = explained(case, cast(Phase, phase), at or (), term)
    words = options.case_words(workload, model=model, hardware=hardware, engine=engine, settings=settings)
    command = f"cm384 explain {words} --phase {phase} --at {shlex.quote(','.join(at or ()))}"
    deliver(explain_report(case, explanation, command), form, output)
    return _status(explanation.reasons)


def _status(reasons: tuple[str, ...]) -> ExitStatus:
    from cm384model.cli.output import say_no

    if not reasons:
        return ExitStatus.YES
    say_no(", ".join(reasons), "", "cm384 predict shows the memory ledger")
    return ExitStatus.NO
