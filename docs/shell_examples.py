"""The console blocks of the documentation: read them, run them, compare what they print.

A block is fenced as ``console``. A line that starts with ``$`` is a command, what follows is its
output. Commands must succeed, or be followed by ``$ echo $?`` and their exit status. In an
output a line ``...`` stands for any lines. ``cm384`` runs in this process, through its own main
function, as at a person's desk: without the ``CI`` of a build machine, which ``check`` looks at. The
few file commands of a worked example run as they are. Elapsed times are not compared.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
FILE_COMMANDS = ("cp", "sed", "mkdir", "cat", "diff")

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ELAPSED = re.compile(r"\bin [\d.,]+ m?s \([^()]*/s\)")
_CONTINUED = re.compile(r"\n  (?=\S)")
_ELAPSED_KEY = re.compile(r'("elapsed_s": )[\d.e-]+')


@dataclass(frozen=True)
class Step:
    """A command, what the page says it prints, and the exit status the page states."""

    command: str
    output: str
    status: int


@dataclass(frozen=True)
class Block:
    """A console block: where its text starts and ends in the page, and its steps."""

    start: int
    end: int
    line: int
    steps: tuple[Step, ...]


def pages() -> list[Path]:
    """The README and every page of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("benchmarks/*.md"))]


def blocks(text: str) -> Iterator[Block]:
    """All console blocks of a page."""
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield Block(match.start(1), match.end(1), line, tuple(_steps(match[1])))


def _steps(text: str) -> Iterator[Step]:
    parts = [part.partition("\n") for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]]
    for (command, _, output), following in zip(parts, [*parts[1:], ("", "", "")], strict=True):
        if command != "echo $?":
            yield Step(command, output, int(following[2]) if following[0] == "echo $?" else 0)


def run(command: str) -> tuple[int, str]:
    """Exit status of a command and what it prints, errors included, in the current folder.

    Raises
    ------
    ValueError
        For a command that the documentation may not run.
    """
    program, *arguments = shlex.split(command)
    if program in FILE_COMMANDS:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr
    if program != "cm384":
        raise ValueError(f"no example may run '{program}'")
    from cm384model.cli.main import main

    printed = io.StringIO()
    at_a_desk = mock.patch.dict(os.environ)
    with at_a_desk, contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        os.environ.pop("CI", None)
        status = main(arguments)
    return status, printed.getvalue()


def same(said: str, printed: str) -> bool:
    """Whether a page's output stands for what was printed."""
    parts = [re.escape(part) for part in re.split(r"^\.\.\.\n", normal(said), flags=re.MULTILINE)]
    return re.fullmatch("(.*\n)?".join(parts), normal(printed), re.DOTALL) is not None


def normal(output: str) -> str:
    """An output without what may differ between two runs: elapsed times, and where a line breaks for them."""
    output = _ELAPSED_KEY.sub(r"\g<1>0", _ELAPSED.sub("in 0 s", tidy(output)))
    return _CONTINUED.sub(" ", output)


def tidy(output: str) -> str:
    """An output without empty lines around it and without blanks at line ends."""
    return "".join(line.rstrip() + "\n" for line in output.strip("\n").split("\n")) if output.strip() else ""


def prepare(folder: Path) -> None:
    """Give a folder the data files that the examples copy, as in a checkout."""
    for name in ("hardware", "workloads", "docs"):
        (folder / name).symlink_to(ROOT / name)
