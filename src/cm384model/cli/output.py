"""Where a report goes: stdout, or a file that is written whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from cm384model.report.report import SUFFIXES, Report
from cm384model.specs.diagnostics import SpecError


def choose_format(form: str | None, output: Path | None) -> str:
    """The format asked for, else by the suffix of the file, else a table.

    Raises
    ------
    SpecError
        For a suffix that names no format, unless ``--format`` does.
    """
    if form is not None or output is None:
        return form or "table"
    if output.suffix not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise SpecError.of(
            f"the suffix of '{output}' names no format", f"use one of {known}, or add --format"
        )
    return SUFFIXES[output.suffix]


def deliver(report: Report, form: str, output: Path | None) -> None:
    """Print a report, or write it to a file.

    Raises
    ------
    SpecError
        If the file cannot be written.
    """
    if form == "csv":
        tell_notes(report.notes)
    if output is not None:
        write_whole(output, report.render(form))
    elif form == "table" and sys.stdout.isatty():
        from cm384model.report.terminal import show

        show(report.page)
    else:
        sys.stdout.write(report.render(form))


def tell_notes(notes: Sequence[str]) -> None:
    """Say on stderr what a format without room for it leaves out."""
    sys.stderr.write("".join(f"note: {note}\n" for note in notes))


def write_whole(path: Path, text: str) -> None:
    """Write a file through a temporary one beside it; devices and pipes are written directly."""
    target = path.resolve()
    if target.exists() and not target.is_file():
        with _writing(path):
            target.write_text(text, encoding="utf-8")
        return
    write_together({path: text})


def write_together(texts: Mapping[Path, str]) -> None:
    """Write some files, all of them or none: each to a temporary one beside it before any is replaced."""
    staged: dict[Path, Path] = {}
    try:
        for path, text in texts.items():
            target = path.resolve()
            with _writing(path):
                descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
                staged[target] = Path(name)
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write(text)
                Path(name).chmod(_mode(target))
        for target, temporary in staged.items():
            with _writing(target):
                temporary.replace(target)
    finally:
        for temporary in staged.values():
            with suppress(FileNotFoundError):
                temporary.unlink()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SpecError.of(f"cannot write '{path}': {error.strerror}") from error


def _mode(target: Path) -> int:
    """Permissions of the file that is replaced, or of a new one."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def say_no(constraint: str, nearest: str, hint: str) -> None:
    """Tell on stderr why the answer is no."""
    lines = [f"infeasible: {constraint}", *([nearest] if nearest else [])]
    lines += ["", f"hint: {hint}"] if hint else []
    sys.stderr.write("\n".join(lines) + "\n")


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[float], None] | None]:
    """A bar on stderr that appears after two seconds; none where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    started = time.monotonic()
    bar = Progress(
        TextColumn(what),
        BarColumn(),
        TextColumn("{task.percentage:.0f} %"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(what, total=1.0)

    def tell(share: float) -> None:
        if not bar.live.is_started and time.monotonic() - started > PATIENCE:
            bar.start()
        bar.update(task, completed=share)

    try:
        yield tell
    finally:
        if bar.live.is_started:
            bar.stop()


PATIENCE = 2.0
"""Work that takes less shows no bar. [s]"""
