"""``cm384 plan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cm384model.cli import options
from cm384model.cli.exit_status import ExitStatus
from cm384model.specs.diagnostics import SpecError

if TYPE_CHECKING:
    from cm384model.prediction.case import Case


def plan(
    workload: options.Workload,
    model: options.ModelOption = None,
    hardware: options.HardwareOption = None,
    engine: options.EngineOption = None,
    npus: Annotated[
        int | None,
        typer.Option(
            parser=options.whole("--npus"),
            metavar="N",
            help="NPUs to spend; by default all of the machine, at most 384.",
            show_default=False,
        ),
    ] = None,
    slo: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=TIME,...",
            help="Limits, e.g. tpot=50ms,ttft=2s; by default the workload's.",
            show_default=False,
        ),
    ] = None,
    objective: Annotated[
        str,
        typer.Option(
            metavar="throughput|npus|latency",
            help="Most requests/s; fewest NPUs or lowest TPOT for --rate.",
            autocompletion=options.complete_words(("throughput", "npus", "latency")),
        ),
    ] = "throughput",
    rate: Annotated[
        str | None,
        typer.Option(metavar="N/s", help="Requests to serve, e.g. 120/s.", show_default=False),
    ] = None,
    top: Annotated[int, typer.Option(parser=options.whole("--top"), metavar="N", help="Plans to show.")] = 5,
    max_concurrency: Annotated[
        int | None,
        typer.Option(
            parser=options.whole("--max-concurrency"),
            metavar="N",
            help="Most requests that may decode at once.",
            show_default=False,
        ),
    ] = None,
    spare_nodes: Annotated[
        int,
        typer.Option(
            parser=options.whole("--spare-nodes"), metavar="N", help="Nodes kept free for failures."
        ),
    ] = 0,
    reuse: Annotated[
        float,
        typer.Option(
            parser=options.share("--reuse"),
            metavar="SHARE",
            help="Share of prompt tokens found in the context cache: 0.5 or 50%.",
        ),
    ] = 0.0,
    reuse_curve: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Hit rate by cache size, a CSV table or a trace; sizes the cache.",
            show_default=False,
        ),
    ] = None,
    reuse_rate: Annotated[
        str | None,
        typer.Option(
            metavar="N/s",
            help="Requests that the sizes of the curve are for; by default the trace's own.",
            show_default=False,
        ),
    ] = None,
    cache_retention: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time the cache keeps a token to reach --reuse; sizes the cache.",
            show_default=False,
        ),
    ] = None,
    cache_nodes: Annotated[
        int | None,
        typer.Option(
            parser=options.whole("--cache-nodes"),
            metavar="N",
            help="Most nodes whose DRAM holds the cache; by default those of --npus.",
            show_default=False,
        ),
    ] = None,
    cache_plane: Annotated[
        str,
        typer.Option(
            metavar="ub|vpc",
            help="Network over which prefill loads from the cache.",
            autocompletion=options.complete_words(("ub", "vpc")),
        ),
    ] = "ub",
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHOICE",
            help="Take a choice away: microbatch, mtp, attention-tp, expert-tp, redundancy, "
            "caching. Repeatable.",
            show_default=False,
        ),
    ] = None,
    kv_precision: Annotated[
        str | None,
        typer.Option(
            metavar="bf16,int8",
            help="Precisions of the KV cache to choose from; by default the model's.",
            show_default=False,
        ),
    ] = None,
    serving: Annotated[
        str,
        typer.Option(
            metavar="disaggregated|colocated|both",
            help="Pools of prefill and decode, instances that do both, or each.",
            autocompletion=options.complete_words(("disaggregated", "colocated", "both")),
        ),
    ] = "disaggregated",
    layouts: Annotated[
        str,
        typer.Option(
            metavar="default|all",
            help="How dies may share a model: what pays for its family, or every way.",
            autocompletion=options.complete_words(("default", "all")),
        ),
    ] = "default",
    scale_out: Annotated[
        bool,
        typer.Option("--scale-out", help="Let an instance reach beyond one scale-up network."),
    ] = False,
    arrivals: Annotated[
        Path | None,
        typer.Option(
            metavar="TRACE",
            help="A request trace: also tell the mean TTFT where the rate drifts as it does there.",
            show_default=False,
        ),
    ] = None,
    frontier: Annotated[
        bool, typer.Option("--frontier", help="Show the throughput-TPOT frontier too.")
    ] = False,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Look for decode instances of different sizes too.")
    ] = False,
    vary: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=A:B:STEP",
            help="Plan once per value of a limit, npus, cache_nodes or any number: tpot=10ms:50ms:5ms "
            "or tpot=20ms,50ms.",
            show_default=False,
        ),
    ] = None,
    form: options.FormatOption = None,
    output: options.OutputOption = None,
    settings: options.SettingsOption = None,
) -> ExitStatus:
    """Find the pools of instances that serve the most requests.

    Every deployment of prefill and decode is predicted; the plans within the
    NPUs and the limits are ranked by the objective. What binds, what would
    help and the weakest inputs follow.

    Exit status: 0 a plan, 1 no plan is feasible, 2 bad input.
    """
    from cm384model.cli.output import choose_format, deliver, progress_bar, say_no

    form = choose_format(form, output)
    from cm384model import api
    from cm384model.report.plan import plan_report, vary_report

    words = options.case_words(workload, model=model, hardware=hardware, engine=engine, settings=settings)
    asked: dict[str, Any] = {
        "npus": npus,
        "slo": slo,
        "objective": objective,
        "rate": rate,
        "top": top,
        "max_concurrency": max_concurrency,
        "spare_nodes": spare_nodes,
        "reuse": reuse,
        "reuse_curve": reuse_curve,
        "reuse_rate": reuse_rate,
        "cache_retention": cache_retention,
        "cache_nodes": cache_nodes,
        "cache_plane": cache_plane,
        "without": without or (),
        "scale_out": scale_out,
        "arrivals": arrivals,
        "kv_precisions": kv_precision.split(",") if kv_precision else (),
        "serving": serving,
        "layouts": layouts,
    }
    case = api.load_case(workload, model=model, hardware=hardware, engine=engine, settings=settings or ())
    if vary is not None:
        varied = api.vary_plan(case, vary, **asked)
        deliver(vary_report(case, varied), form, output)
        return ExitStatus.YES if any(r.result.feasible for r in varied) else ExitStatus.NO
    with progress_bar("candidates") as progress:
        result = api.plan(case, frontier=frontier, mixed=mixed, progress=progress, **asked)
    deliver(plan_report(case, result, words), form, output)
    if result.feasible or result.infeasible is None:
        return ExitStatus.YES
    missed, hint = result.infeasible, result.infeasible.hint
    if missed.constraint.startswith(("hbm: ", "npus: ")):
        hint += _on_the_same_dies(case, asked)
    say_no(missed.constraint, missed.nearest, hint)
    return ExitStatus.NO


def _on_the_same_dies(case: Case, asked: dict[str, Any]) -> str:
    """What instances that do both would serve where two pools do not fit."""
    from cm384model import api

    if asked["serving"] != "disaggregated":
        return ""
    try:
        other = api.plan(case, **{**asked, "serving": "colocated", "top": 1})
    except SpecError:  # it takes no such cache or arrivals
        return ""
    if not other.colocated:
        return ""
    return f"; --serving colocated serves {other.colocated[0].requests_per_s:.4g} requests/s"
