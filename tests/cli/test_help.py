from __future__ import annotations

import subprocess
import sys

import pytest
import typer

from cm384model.cli.main import COMMANDS, app
from cm384model.specs.deployment import DECODE_FIELDS, PREFILL_FIELDS

GROUP = typer.main.get_command(app)
PAGES = ((), *((name,) for name in COMMANDS))
HEAVY = ("numpy", "scipy", "pydantic", "rich", "click", "polars", "distributed")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: " ".join(page) or "cm384")
def test_help_fits_80_columns_and_ends_with_an_example(run, page, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    result = run(*page, "--help")
    assert (result.status, result.err) == (0, "")
    lines = result.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-2].strip() == "Example:"
    assert lines[-1].strip().startswith(" ".join(["cm384", *page]))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_argument_and_option_has_help(name):
    command = GROUP.commands[name]  # type: ignore[attr-defined]
    assert command.help
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{name}: {parameter.name}"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_short_help_is_not_cut(run, name):
    (line,) = [line for line in run("--help").out.splitlines() if line.startswith(f"  {name} ")]
    assert not line.endswith("...")


@pytest.mark.parametrize("name", ("predict", "explain", "fit", "compare"))
def test_help_names_everything_that_at_takes(run, name):
    words = set(run(name, "--help").out.replace(",", " ").replace(".", " ").split())
    assert set(DECODE_FIELDS) | set(PREFILL_FIELDS) <= words


def test_help_names_the_defaults_of_the_code(run):
    from cm384model.prediction.case import DEFAULT_ENGINE, DEFAULT_HARDWARE, DEFAULT_WORKLOAD

    words = run("op", "--help").out.replace(".", " ").replace("]", " ").split()
    assert {DEFAULT_ENGINE, DEFAULT_HARDWARE, DEFAULT_WORKLOAD} <= set(words)


def _loaded(*arguments: str, **environment: str) -> list[str]:
    code = (
        "import sys; from cm384model.cli.main import main; main(sys.argv[1:]);"
        f"print(*(m for m in {HEAVY!r} if m in sys.modules), file=sys.stderr)"
    )
    child = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True, env=environment
    )
    return child.stderr.split()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: " ".join(page) or "cm384")
def test_help_loads_nothing_heavy(page):
    assert _loaded(*page, "--help") == []


def test_version_loads_nothing_heavy(run):
    assert _loaded("--version") == []
    assert run("--version").out == "cm384 0.1.0\n"


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("cm384 plan deep", "deepseek-r1-4k-256"),
        ("cm384 plan x --hardware cl", "cloudmatrix384"),
        ("cm384 plan x --engine cl", "cloudmatrix-infer"),
        ("cm384 op disp", "dispatch"),
        ("cm384 plan x --format ma", "markdown"),
        ("cm384 list qu", "quantities"),
    ],
)
def test_names_are_completed_without_numpy(typed, expected):
    code = (
        "import sys; from cm384model.cli.main import main;"
        "main([]); print(*(m for m in ('numpy', 'scipy') if m in sys.modules), file=sys.stderr)"
    )
    child = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"_CM384_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))},
        check=False,
    )
    assert expected in child.stdout.split()
    assert child.stderr.split() == []
