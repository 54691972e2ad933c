from __future__ import annotations

import subprocess
import sys

import pytest

from cm384model.cli.exit_status import ExitStatus

WORKLOAD = "deepseek-r1-4k-256"


def test_the_numbers_are_a_contract():
    assert {s.name: s.value for s in ExitStatus} == {
        "YES": 0,
        "NO": 1,
        "BAD_INPUT": 2,
        "BUG": 3,
        "BROKEN_PIPE": 141,
        "INTERRUPTED": 130,
    }


def test_yes(run):
    result = run("predict", WORKLOAD, "--at", "ep=320,batch_per_die=48")
    assert (result.status, result.err) == (0, "")


def test_no_names_the_constraint_the_nearest_miss_and_one_hint(run):
    result = run("plan", WORKLOAD, "--slo", "tpot=5ms")
    assert result.status == 1
    assert result.err.startswith("infeasible: tpot: ")
    assert "the nearest takes" in result.err
    assert result.err.count("hint: ") == 1


def test_bad_input(run):
    result = run("plan", "nonsense")
    assert (result.status, result.out) == (2, "")


def test_usage_errors_are_bad_input(run):
    for arguments in (("plan",), ("plan", WORKLOAD, "more"), ("nope",), ("plan", WORKLOAD, "--nope")):
        result = run(*arguments)
        assert (result.status, result.out) == (2, ""), arguments
        assert result.err.startswith("error: ")


def test_no_arguments_show_the_help_with_status_2(run):
    result = run()
    assert result.status == 2
    assert result.out.startswith("Usage: cm384")


def _raise(error: BaseException):
    def fail(*arguments: object, **options: object) -> None:
        raise error

    return fail


def test_our_bug_is_short_and_says_how_to_see_the_traceback(run, monkeypatch):
    monkeypatch.delenv("CM384_TRACEBACK", raising=False)
    monkeypatch.setattr("cm384model.api.plan", _raise(ZeroDivisionError("division by zero")))
    result = run("plan", WORKLOAD)
    assert (result.status, result.out) == (3, "")
    assert "ZeroDivisionError: division by zero" in result.err
    assert "CM384_TRACEBACK=1" in result.err
    assert "Traceback" not in result.err


def test_traceback_on_demand(run, monkeypatch):
    monkeypatch.setenv("CM384_TRACEBACK", "1")
    monkeypatch.setattr("cm384model.api.plan", _raise(ZeroDivisionError("division by zero")))
    assert "Traceback" in run("plan", WORKLOAD).err


def test_interrupted(run, monkeypatch):
    monkeypatch.setattr("cm384model.api.plan", _raise(KeyboardInterrupt()))
    result = run("plan", WORKLOAD)
    assert (result.status, result.out, result.err) == (130, "", "interrupted\n")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
def test_broken_pipe_is_silent():
    code = "from cm384model.cli.main import main; import sys; sys.exit(main(['list', 'quantities']))"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    child.stdout.close()
    _, err = child.communicate()
    assert (child.returncode, err) == (141, "")
