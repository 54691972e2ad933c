from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from cm384model.cli.main import main


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line in this process: exit status, stdout, stderr."""

    def call(*arguments: str) -> Result:
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Result(int(status), captured.out, captured.err)

    return call
