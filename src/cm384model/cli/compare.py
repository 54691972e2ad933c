"""``cm384 compare``."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from cm384model.cli import options
from cm384model.cli.exit_status import ExitStatus


def compare(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="Name of a workload (cm384 list workloads) or a TOML file.",
            autocompletion=options.complete("workload"),
            show_default=False,
        ),
    ],
    b: Annotated[
        str | None,
        typer.Argument(
            metavar="B",
            help="The other workload; A again by default.",
            autocompletion=options.complete("workload"),
            show_default=False,
        ),
    ] = None,
    phase: options.ServedOption = "decode",
    at: options.AtOption = None,
    at_b: Annotated[
        list[str] | None,
        typer.Option("--at-b", metavar="NAME=VALUE,...", help="The same for B alone.", show_default=False),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Compare the best plans instead of one deployment.")
    ] = False,
    npus: Annotated[
        int | None,
        typer.Option(
            parser=options.whole("--npus"),
            metavar="N",
            help="NPUs to spend, with --plan; by default as in plan.",
            show_default=False,
        ),
    ] = None,
    npus_b: Annotated[
        int | None,
        typer.Option(
            "--npus-b",
            parser=options.whole("--npus-b"),
            metavar="N",
            help="The same for B alone.",
            show_default=False,
        ),
    ] = None,
    slo: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=TIME,...",
            help="Limits, with --plan; by default the workload's.",
            show_default=False,
        ),
    ] = None,
    slo_b: Annotated[
        str | None,
        typer.Option("--slo-b", metavar="NAME=TIME,...", help="The same for B alone.", show_default=False),
    ] = None,
    model: options.ModelOption = None,
    model_b: Annotated[str | None, options.of_file("--model-b", "model", "The same for B alone.")] = None,
    hardware: options.HardwareOption = None,
    hardware_b: Annotated[
        str | None, options.of_file("--hardware-b", "hardware", "The same for B alone.")
    ] = None,
    engine: options.EngineOption = None,
    engine_b: Annotated[str | None, options.of_file("--engine-b", "engine", "The same for B alone.")] = None,
    settings: options.SettingsOption = None,
    settings_b: Annotated[
        list[str] | None,
        typer.Option(
            "--set-b", metavar="PATH=VALUE", help="One more change, of B alone.", show_default=False
        ),
    ] = None,
    form: options.FormatOption = None,
    output: options.OutputOption = None,
) -> ExitStatus:
    """Put two deployments, machines or engines side by side.

    One rule: an option holds for both sides, and its twin that ends in -b
    changes side B alone.

    Exit status: 0 both fit, 1 one of them does not, 2 bad input.

    {served}
    """
    from cm384model.cli.output import choose_format, deliver, say_no

    form = choose_format(form, output)
    from cm384model import api
    from cm384model.prediction.compare import told_of_b
    from cm384model.report.compare import compare_plans_report, compare_report

    of_plans = {"--npus": npus, "--npus-b": npus_b, "--slo": slo, "--slo-b": slo_b}
    _check(plan, {"--at": at, "--at-b": at_b} if plan else of_plans)
    case_a = api.load_case(a, model=model, hardware=hardware, engine=engine, settings=settings or ())
    with told_of_b():
        case_b = api.load_case(
            b or a,
            model=model_b or model,
            hardware=hardware_b or hardware,
            engine=engine_b or engine,
            settings=[*(settings or ()), *(settings_b or ())],
        )
    if plan:
        plans = api.compare_plans(case_a, case_b, npus=npus, npus_b=npus_b, slo=slo, slo_b=slo_b)
        deliver(compare_plans_report(plans), form, output)
        feasible, reasons = plans.feasible, plans.reasons
    else:
        found = api.compare(case_a, case_b, phase=cast(api.Served, phase), at=at or (), at_b=at_b or ())
        deliver(compare_report(found), form, output)
        feasible, reasons = found.feasible, found.reasons
    if feasible:
        return ExitStatus.YES
    say_no("; ".join(reasons), "", f"cm384 {'plan' if plan else 'fit'} says what would fit")
    return ExitStatus.NO


def _check(plan: bool, misplaced: dict[str, Any]) -> None:
    """Refuse options of the other kind of comparison.

    Raises
    ------
    SpecError
        For every such option that is given.
    """
    from cm384model.specs.diagnostics import SpecError

    given = [name for name, value in misplaced.items() if value is not None]
    if given:
        reason = "chooses the deployments itself" if plan else "is what they are for"
        raise SpecError.of(f"{', '.join(given)} {'with' if plan else 'without'} --plan", f"--plan {reason}")
