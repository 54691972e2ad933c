"""``cm384 check``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cm384model.cli import options
from cm384model.cli.exit_status import ExitStatus
from cm384model.report.ci import CI_FORMATS, CI_SUFFIXES
from cm384model.specs.diagnostics import SpecError

if TYPE_CHECKING:
    from cm384model.evidence.golden.check import Check


def check(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CASE",
            help="Cases to check, e.g. 'decode-*'; all by default.",
            show_default=False,
        ),
    ] = None,
    cases: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Cases of your own, TOML; files that it names are looked for beside it.",
            show_default=False,
        ),
    ] = None,
    golden: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Golden numbers; by default predictions.csv beside the cases.",
            show_default=False,
        ),
    ] = None,
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="Write the golden file: add what is missing, and move the numbers of the CASEs named; "
            "'*' names all.",
        ),
    ] = False,
    only_changed: Annotated[bool, typer.Option("--only-changed", help="Leave out what is the same.")] = False,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="REV|DIR",
            help="Compare with the data of a git revision or of a folder, or with the cm384 of another "
            "virtual environment, on random deployments.",
            show_default=False,
        ),
    ] = None,
    deployments: Annotated[
        int,
        typer.Option(
            parser=options.whole("--deployments"), metavar="N", help="Deployments to draw for --against."
        ),
    ] = 200_000,
    seed: Annotated[
        int,
        typer.Option(parser=options.whole("--seed"), metavar="N", help="Seed of the random deployments."),
    ] = 384,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="|".join(CI_FORMATS),
            help="Output format; by default table, or by the suffix of -o.",
            callback=options.one_of("--format", CI_FORMATS),
            autocompletion=options.complete_words(CI_FORMATS),
            show_default=False,
        ),
    ] = None,
    output: options.OutputOption = None,
) -> ExitStatus:
    """Check that predicted numbers have not changed.

    Every case is predicted and compared with the golden file, number by number,
    and the report says whether code or data changed since. Numbers are the same
    up to 1e-9. Without --cases the cases that ship with cm384 are checked.

    Exit status: 0 all the same, 1 a number moved, is new or is missing, 2 the
    check cannot run.
    """
    from cm384model.cli.output import choose_format, deliver

    if form is None and output is not None and output.suffix == ".xml":
        form = CI_SUFFIXES[output.suffix]
    form = choose_format(form, output)
    if against is not None:
        if names or cases or golden or update:
            raise SpecError.of("--against takes no cases, no golden file and no --update")
        from cm384model.evidence.golden.against import against as compared
        from cm384model.report.against import against_report

        if deployments < 1 or seed < 0:
            raise SpecError.of("--deployments must be at least 1 and --seed at least 0")
        result = compared(against, deployments, seed)
        deliver(against_report(result, only_changed=only_changed), form, output)
        return ExitStatus.YES if result.ok else ExitStatus.NO

    done = checked(names or [], cases, golden, update=update)
    from cm384model.report.check import check_report

    deliver(check_report(done, only_changed=only_changed), form, output)
    if done.result.ok:
        return ExitStatus.YES
    _hint(done, cases, golden)
    return ExitStatus.NO


def checked(names: list[str], cases: Path | None, golden: Path | None, *, update: bool = False) -> Check:
    """Check, write the golden file where that is asked for, and check again what was written.

    Raises
    ------
    SpecError
        For faulty files and names, and for an update where a build machine runs.
    """
    from cm384model import api
    from cm384model.cli.output import write_whole
    from cm384model.evidence.golden.cases import shipped_cases, shipped_golden
    from cm384model.evidence.golden.check import check as compared
    from cm384model.evidence.golden.check import update as updated

    if golden is not None and cases is None and not golden.exists():
        raise SpecError.of(f"there is no golden file '{golden}'")
    cases_file = cases or shipped_cases()
    golden_file = golden or (shipped_golden() if cases is None else cases.parent / "predictions.csv")
    if update and os.environ.get("CI"):
        raise SpecError.of(
            "--update does not run where CI is set", "golden numbers are moved by people, who say why"
        )
    done = compared(cases_file, golden_file, api.plan, names)
    if not update:
        return done
    change = updated(done, names)
    write_whole(golden_file, change.text)
    sys.stderr.write(
        f"{golden_file}: {change.added:,} added, {change.moved:,} moved, {change.removed:,} removed\n"
    )
    return compared(cases_file, golden_file, api.plan, names)


def _hint(done: Check, cases: Path | None, golden: Path | None) -> None:
    """What to do about it, on stderr."""
    changed = [c for c in done.result.cases if c.moved or c.missing]
    new = not changed
    words = ["cm384 check --update"]
    words += [f"--cases {cases}"] if cases else []
    words += [f"--golden {golden}"] if golden else []
    words += [case.case for case in changed[:3]] if len(changed) <= 3 else ["'*'"]
    what = f"`{' '.join(words)}`" + (" to add what is new" if new else "")
    sys.stderr.write(f"\nhint: if this is intended, run {what} and commit the difference with its reason\n")
