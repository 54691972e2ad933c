"""``cm384 sweep``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cm384model.cli import options
from cm384model.cli.exit_status import ExitStatus
from cm384model.specs.diagnostics import SpecError, with_suggestion

if TYPE_CHECKING:
    from cm384model.sweeping.build import Wanted
    from cm384model.sweeping.study import Study

PHASES = ("decode", "prefill", "colocated", "plan")
FILE_FORMATS = ("csv", "parquet", "jsonl")
FORMATS = ("table", *FILE_FORMATS, "markdown")
SCREEN_ROWS = 100


def sweep(
    workload: Annotated[
        str | None,
        typer.Argument(
            metavar="WORKLOAD",
            help="Name of a workload (cm384 list workloads) or a TOML file; or in --spec.",
            autocompletion=options.complete("workload"),
            show_default=False,
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="AXIS=VALUES",
            help="An axis: ep=32,64,128; batch_per_die=1:64; kv_len=1K:128K:x2. Repeatable.",
            show_default=False,
        ),
    ] = None,
    phase: Annotated[
        str | None,
        typer.Option(
            "--phase",
            metavar="|".join(PHASES),
            help="What every row is; by default decode.",
            callback=options.one_of("--phase", PHASES),
            autocompletion=options.complete_words(PHASES),
            show_default=False,
        ),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option("--at", metavar="NAME=VALUE,...", help="Fixed values. Repeatable.", show_default=False),
    ] = None,
    slo: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=TIME,...|workload",
            help="Limits that a feasible row keeps; by default only the memory counts.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="feasible|all|frontier|top=N",
            help="Rows to keep; by default the feasible ones.",
            show_default=False,
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Columns: names, patterns (*_time_s), or axes, default, deployment, terms, memory, all.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write: .csv, .parquet or .jsonl. Without it, rows are shown.",
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="|".join(FORMATS),
            help="By default the suffix of -o, else a table.",
            callback=options.one_of("--format", FORMATS),
            autocompletion=options.complete_words(FORMATS),
            show_default=False,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an unfinished sweep.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="More than 200 million candidates are meant.")] = False,
    spec: Annotated[
        Path | None,
        typer.Option(
            "--spec",
            metavar="FILE",
            help="A saved study; options go before it.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            "--workers",
            metavar="ADDRESS|local",
            help="Dask cluster that computes; the output becomes a folder of Parquet files.",
            show_default=False,
        ),
    ] = None,
    model: options.ModelOption = None,
    hardware: options.HardwareOption = None,
    engine: options.EngineOption = None,
    settings: options.SettingsOption = None,
) -> ExitStatus:
    """Predict every combination of some values.

    An axis is a field of a deployment (as in --at), any number or word of a
    data file (as in --set), or whole files: hardware=cloudmatrix384,h800.
    Values: a,b,c; 1:64 every whole number; 1:64:4 steps of 4; 1K:128K:x2 a
    factor; 0.5:0.9:n5 or 30ms:60ms:5 five points.

    Exit status: 0 rows, 1 no row is feasible, 2 bad input.
    """
    from cm384model.cli.output import tell_notes
    from cm384model.sweeping.build import Wanted, study_of

    given = {
        "workload": workload,
        "grid": _axes(grid or ()),
        "phase": phase,
        "model": model,
        "hardware": hardware,
        "engine": engine,
        "settings": settings,
        "at": at,
        "slo": slo,
        "keep": keep,
        "columns": columns,
    }
    merged = _merged(given, spec)
    if merged.get("workload") is None:
        raise SpecError.of("missing argument 'WORKLOAD'", "see cm384 sweep --help")
    file_form = _file_format(output, form, workers)
    wanted = Wanted(**merged, yes=yes)
    study = study_of(wanted)
    tell_notes(study.notes)
    if output is None:
        return _on_screen(study, form or "table", force=force, resume=resume)
    command = "cm384 " + shlex.join(sys.argv[1:]) if sys.argv[1:2] == ["sweep"] else _command(wanted, output)
    return _to_file(study, output, file_form, command, force=force, resume=resume, workers=workers)


def _axes(grid: list[str] | tuple[str, ...]) -> dict[str, str]:
    axes: dict[str, str] = {}
    for item in grid:
        name, equals, values = (part.strip() for part in item.partition("="))
        if not (name and equals and values):
            raise SpecError.of(f"--grid '{item}' is not AXIS=VALUES", "for example --grid ep=32,64,128")
        if name in axes:
            raise SpecError.of(f"{name} is an axis twice", f"give all its values at once: {name}=a,b,c")
        axes[name] = values
    return axes


def _merged(given: dict[str, Any], spec: Path | None) -> dict[str, Any]:
    """The options given, before those of the study file; axes, --at and --set of both."""
    if spec is None:
        return {name: value for name, value in given.items() if value is not None}
    from cm384model.specs.sweep import axis_texts, load_sweep

    saved = load_sweep(spec)
    merged = {
        name: getattr(saved, name)
        for name in ("workload", "phase", "model", "hardware", "engine", "slo", "keep", "columns")
    }
    merged |= {name: value for name, value in given.items() if value is not None}
    merged["grid"] = axis_texts(saved.grid) | given["grid"]
    named = {item.partition("=")[0].strip() for text in given["at"] or () for item in text.split(",")}
    merged["at"] = [f"{name}={value}" for name, value in saved.at.items() if name not in named] + (
        given["at"] or []
    )
    merged["settings"] = [*saved.settings, *(given["settings"] or [])]
    return {name: value for name, value in merged.items() if value is not None}


def _command(wanted: Wanted, output: Path) -> str:
    """The sweep as it would be typed."""
    words = ["sweep", wanted.workload, "--phase", wanted.phase, "--keep", wanted.keep]
    words += [word for name, text in wanted.grid.items() for word in ("--grid", f"{name}={text}")]
    words += [word for item in wanted.at for word in ("--at", item)]
    words += [word for item in wanted.settings for word in ("--set", item)]
    for name in ("model", "hardware", "engine", "slo"):
        value = getattr(wanted, name)
        words += [f"--{name}", value] if value else []
    if wanted.columns:
        words += [
            "--columns",
            wanted.columns if isinstance(wanted.columns, str) else ",".join(wanted.columns),
        ]
    return "cm384 " + shlex.join([*words, "-o", str(output)])


def _file_format(output: Path | None, form: str | None, workers: str | None) -> str:
    if output is None:
        if form == "parquet":
            raise SpecError.of("Parquet is not for the screen", "add -o FILE")
        if workers:
            raise SpecError.of("--workers writes files and needs -o FILE")
        return form or "table"
    known = ", ".join(f".{name}" for name in FILE_FORMATS)
    chosen = form or output.suffix.removeprefix(".")
    if chosen not in FILE_FORMATS:
        if form:
            raise SpecError.of(f"--format {form} is for the screen", f"files are {known}")
        message = with_suggestion(
            f"the suffix of '{output}' names no format", output.suffix, known.split(", ")
        )
        raise SpecError.of(message, f"use one of {known}, or add --format")
    if workers and chosen != "parquet":
        raise SpecError.of(
            f"--workers writes a folder of Parquet files, not {chosen}", "name the output *.parquet"
        )
    return chosen


def _on_screen(study: Study, form: str, *, force: bool, resume: bool) -> ExitStatus:
    for name, value in (("--force", force), ("--resume", resume)):
        if value:
            raise SpecError.of(f"{name} is about a file", "add -o FILE")
    from cm384model.sweeping.screen import first_rows, texts

    if form in ("csv", "jsonl"):
        rows = 0
        for text, count in texts(study, form):
            sys.stdout.write(text)
            rows += count
        return _answer(study, rows)
    from cm384model.cli.output import deliver
    from cm384model.report.sweep import sweep_report

    shown, rows = first_rows(study, SCREEN_ROWS)
    if rows:
        deliver(sweep_report("", shown, study.columns, rows - len(shown)), form, None)
    return _answer(study, rows)


def _to_file(
    study: Study, output: Path, form: str, command: str, *, force: bool, resume: bool, workers: str | None
) -> ExitStatus:
    from cm384model.report.sweep import column_entries
    from cm384model.sweeping.provenance import provenance
    from cm384model.sweeping.run import sweep as run_sweep
    from cm384model.sweeping.store import Store

    maker = None
    if workers:
        from cm384model.sweeping.cluster import Cluster

        maker = Cluster(workers)
    store = Store(study, output, form, dataset=workers is not None)
    said = provenance(study, command, column_entries(study))
    try:
        with _progress() as tell:
            done = run_sweep(study, store, said, resume=resume, force=force, maker=maker, progress=tell)
    except KeyboardInterrupt:
        sys.stderr.write(f"{store.state()} in '{store.folder}'; the same command with --resume continues\n")
        raise
    again = f", {done.resumed:,} of {store.parts:,} parts were there" if done.resumed else ""
    rate = done.candidates / max(done.elapsed_s, 1e-9)
    sys.stderr.write(
        f"{output}: {done.rows:,} rows of {done.candidates:,} candidates "
        f"in {done.elapsed_s:.2f} s ({_rate(rate)}){again}\n"
    )
    return _answer(study, done.rows)


def _answer(study: Study, rows: int) -> ExitStatus:
    if rows:
        return ExitStatus.YES
    from cm384model.cli.output import say_no

    say_no(
        f"none of the {study.candidates:,} candidates is feasible", "", "--keep all tells the reasons of each"
    )
    return ExitStatus.NO


def _rate(rate: float) -> str:
    return (
        f"{rate / 1e6:.1f} M/s"
        if rate >= 1e6
        else f"{rate / 1e3:.0f} k/s"
        if rate >= 1e4
        else f"{rate:.0f}/s"
    )


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr with rate and remaining time, after a second; none where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from cm384model.report.progress import RateBar

    bar = RateBar()
    try:
        yield bar.tell
    finally:
        bar.stop()
