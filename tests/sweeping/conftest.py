from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cm384model.cli.main import main
from cm384model.sweeping.build import Wanted, study_of
from cm384model.sweeping.parts import frames, reduced
from cm384model.sweeping.study import Study

WORKLOAD = "deepseek-r1-4k-256"
Make = Callable[..., Study]


@pytest.fixture
def study() -> Make:
    """A study of the shipped workload from its axes."""

    def make(grid: dict[str, str], **options: Any) -> Study:
        return study_of(Wanted(options.pop("workload", WORKLOAD), grid, **options))

    return make


@pytest.fixture
def rows() -> Callable[[Study], pl.DataFrame]:
    """All rows of a study."""
    return lambda study: reduced(study, pl.concat([frame for frame, _ in frames(study)]))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """The command line in this process: exit status, stdout, stderr."""

    def call(*arguments: str) -> Result:
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Result(int(status), captured.out, captured.err)

    return call


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[str]]:
    """The command line in a process of its own."""
    code = "from cm384model.cli.main import main; import sys; sys.exit(main(sys.argv[1:]))"

    def call(*arguments: str, before: str = "") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", before + code, *arguments],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )

    return call


@pytest.fixture
def after_parts() -> Callable[..., None]:
    """Wait until some parts of a sweep are whole."""

    def wait(folder: Path, count: int, child: subprocess.Popen[str]) -> None:
        done = folder / "_done.jsonl"
        while child.poll() is None:
            if done.exists() and len(done.read_text().splitlines()) >= count:
                return
            time.sleep(0.01)
        pytest.fail(f"the sweep ended first: {child.communicate()[1]}")

    return wait
