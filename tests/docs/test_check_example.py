"""The action, the hook and the example repository: what they say is run as they say it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "check"
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
WORKFLOW = yaml.safe_load((EXAMPLE / ".github" / "workflows" / "capacity.yml").read_text("utf-8"))
PRE_COMMIT = yaml.safe_load((EXAMPLE / ".pre-commit-config.yaml").read_text("utf-8"))
(JOB,) = WORKFLOW["jobs"].values()
(USE,) = [step for step in JOB["steps"] if "/cm384@" in step["uses"]]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs bash")


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A copy of the example, under git, with a branch ``origin/main``."""
    folder = tmp_path / "capacity"
    shutil.copytree(EXAMPLE, folder)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    git(folder, "branch", "origin/main")
    return folder


def value(expression: str, inputs: dict[str, str]) -> str:
    """The value of a string with ``${{ }}`` in it, as far as the action uses them."""

    def found(match: re.Match[str]) -> str:
        for alternative in match[1].split("||"):
            name = alternative.strip()
            known = {f"inputs.{key}": given for key, given in inputs.items()} | {
                "github.action_path": str(ROOT)
            }
            if known[name]:
                return known[name]
        return ""

    return re.sub(r"\$\{\{(.*?)\}\}", found, str(expression))


def run_step(
    step: dict[str, Any], inputs: dict[str, str], repository: Path, **more: str
) -> subprocess.CompletedProcess[str]:
    """One step of the action in the shell that GitHub gives it."""
    environment = {name: value(text, inputs) for name, text in step.get("env", {}).items()}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=repository / value(step.get("working-directory", "."), inputs),
        env={**os.environ, "PATH": path, "CI": "true", **environment, **more},
        capture_output=True,
        text=True,
        check=False,
    )


def steps(name: str) -> dict[str, Any]:
    (step,) = [step for step in ACTION["runs"]["steps"] if step.get("name", "").startswith(name)]
    return step


@pytest.fixture
def inputs() -> dict[str, str]:
    """What the workflow of the example gives to the action, defaults filled in."""
    given = {name: str(text).replace("${{ github.base_ref }}", "main") for name, text in USE["with"].items()}
    defaults = {name: entry.get("default", "") for name, entry in ACTION["inputs"].items()}
    return defaults | given


def move(repository: Path) -> None:
    path = repository / "hardware" / "half-rack.toml"
    text = re.sub(r"(?m)^(hbm_bandwidth *= \{ value = )\d+", r"\g<1>1700", path.read_text())
    assert text != path.read_text()
    path.write_text(text)


def test_the_workflow_gives_what_the_action_takes():
    assert set(USE["with"]) <= set(ACTION["inputs"])
    assert all(entry["description"] for entry in ACTION["inputs"].values())
    used = set(re.findall(r"inputs\.([a-z0-9-]+)", (ROOT / "action.yml").read_text("utf-8")))
    assert used == set(ACTION["inputs"])


def test_the_action_passes(repository, inputs, tmp_path):
    summary = tmp_path / "summary.md"
    done = run_step(steps("check"), inputs, repository, GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "same, 0 moved, 0 new, 0 missing" in done.stdout
    assert "::" not in done.stdout
    assert ElementTree.fromstring((repository / inputs["junit"]).read_text()).get("failures") == "0"
    assert "0 moved" in summary.read_text()
    compared = run_step(steps("compare"), inputs, repository, GITHUB_STEP_SUMMARY=str(summary))
    assert compared.returncode == 0, compared.stdout + compared.stderr
    assert "nothing changed" in summary.read_text()


def test_the_action_fails_when_a_number_moves(repository, inputs, tmp_path):
    move(repository)
    summary = tmp_path / "summary.md"
    done = run_step(steps("check"), inputs, repository, GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == 1
    assert "::error file=check/predictions.csv,line=" in done.stdout
    assert "../hardware/half-rack.toml says something else since the pin" in done.stdout
    assert int(ElementTree.fromstring((repository / inputs["junit"]).read_text()).get("failures") or 0) > 0
    assert "| case | quantity | golden |" in summary.read_text()
    compared = run_step(steps("compare"), inputs, repository, GITHUB_STEP_SUMMARY=str(summary))
    assert compared.returncode == 0, compared.stdout + compared.stderr
    assert "| die.hbm_bandwidth | 1600.0 GB/s | 1700.0 GB/s |" in summary.read_text()


def test_the_action_stops_when_the_check_cannot_run(repository, inputs, tmp_path):
    (repository / "check" / "cases.toml").write_text("schema = 1\n")
    done = run_step(steps("check"), inputs, repository, GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md"))
    assert done.returncode == 2
    assert "missing key 'cases'" in done.stderr
    done = run_step(
        steps("compare"), inputs | {"against": "v9"}, repository, GITHUB_STEP_SUMMARY=str(tmp_path / "s.md")
    )
    assert done.returncode != 0
    assert "no git revision" in done.stderr


def test_the_action_without_inputs_checks_what_ships(repository, tmp_path):
    defaults = {name: entry.get("default", "") for name, entry in ACTION["inputs"].items()}
    done = run_step(steps("check"), defaults, repository, GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_action_installs_cm384_and_its_golden_numbers(repository, inputs, tmp_path, monkeypatch):
    """The very command, offline: libraries and the build back end are those of the tests."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=True, symlinks=True)
    (packages,) = folder.glob("lib/*/site-packages")
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "libraries.pth").write_text("".join(f"{path}\n" for path in libraries))
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    offline = {"PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1", "PATH": path}
    done = run_step(steps("install"), inputs, repository, **offline)
    assert done.returncode == 0, done.stderr
    assert (packages / "cm384model" / "evidence" / "golden" / "predictions.csv").is_file()
    done = run_step(steps("check"), inputs, repository, PATH=path, GITHUB_STEP_SUMMARY=str(tmp_path / "s.md"))
    assert done.returncode == 0, done.stdout + done.stderr
    shipped = subprocess.run(
        [folder / "bin" / "cm384", "check", "--only-changed"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shipped.returncode == 0, shipped.stdout + shipped.stderr
    where = "import cm384model, sys; sys.stdout.write(cm384model.__file__)"
    found = subprocess.run(
        [folder / "bin" / "python", "-c", where], cwd=tmp_path, capture_output=True, text=True
    )
    assert found.stdout.startswith(str(packages))


def hook_command() -> list[str]:
    (configured,) = PRE_COMMIT["repos"][0]["hooks"]
    (hook,) = [hook for hook in HOOKS if hook["id"] == configured["id"]]
    return [*shlex.split(hook["entry"]), *configured["args"]]


@pytest.mark.parametrize("status", [0, 1])
def test_the_hook_runs_before_a_commit(repository, status):
    if status:
        move(repository)
    program, *arguments = hook_command()
    done = subprocess.run(
        [str(Path(sys.executable).parent / program), *arguments],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr


def test_the_hook_has_what_pre_commit_wants():
    for hook in HOOKS:
        assert {"id", "name", "entry", "language"} <= set(hook)
        assert hook["pass_filenames"] is False
