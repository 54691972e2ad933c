"""``cm384 check`` as a user meets it; what it computes is tested in tests/evidence/."""

from __future__ import annotations

import csv
import io
import json
import re
from xml.etree import ElementTree

import pytest

from cm384model.evidence.golden.against import DEPLOYMENTS, SEED
from cm384model.report import check as report

CASES = """
schema = 1

[cases.decode]
kind = "decode"
workload = "deepseek-r1-4k-256"
at = "ep=64,batch_per_die=16"

[cases.law]
kind = "law"
law = "expected_tokens"
at = "draft_tokens=1,acceptance=0.7"
"""


@pytest.fixture
def mine(tmp_path, monkeypatch, run):
    """Pinned cases in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    (tmp_path / "cases.toml").write_text(CASES)
    assert run("check", "--cases", "cases.toml", "--update").status == 0
    return tmp_path


@pytest.fixture
def moved(mine):
    """The same with one golden number that is 1 % too high, and one that is not pinned."""
    golden = mine / "predictions.csv"
    text = golden.read_text()
    (value,) = re.findall(r"(?m)^decode,tpot_s,(.*),s$", text)
    text = text.replace(f"decode,tpot_s,{value}", f"decode,tpot_s,{float(value) * 1.01:.12g}")
    golden.write_text(re.sub(r"(?m)^law,.*\n", "", text))
    return mine


def check(run, *arguments: str):
    return run("check", "--cases", "cases.toml", *arguments)


def test_yes(run, mine):
    result = check(run)
    assert (result.status, result.err) == (0, "")
    assert re.match(r"\d+ numbers of 2 cases in [\d.]+ s .* 0 moved, 0 new, 0 missing\n", result.out)


def test_no_says_what_moved_why_and_what_to_do(run, moved):
    result = check(run)
    assert result.status == 1
    assert re.search(r"(?m)^decode +tpot_s +\S+ ms +\S+ ms +-0\.99 % +moved$", result.out)
    assert re.search(r"(?m)^law +result +1\.7\S* +new$", result.out)
    assert "code: the data files say the same, so cm384 itself changed (1 case)" in result.out
    assert result.err.endswith(
        "hint: if this is intended, run `cm384 check --update --cases cases.toml decode` "
        "and commit the difference with its reason\n"
    )


def test_cannot_run(run, mine):
    (mine / "cases.toml").write_text(CASES.replace("batch_per_die=16", "batch_per_die=-1"))
    result = check(run)
    assert (result.status, result.out) == (2, "")
    assert "case decode: batch_per_die" in result.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--cases", "no.toml"), "cannot read 'no.toml'"),
        (("--golden", "no.csv"), "there is no golden file 'no.csv'"),
        (("decd*",), "no case 'decd*'"),
        (("--format", "juint"), "Did you mean 'junit'?"),
        (("--against", "HEAD", "--update"), "--against takes no cases"),
        (("--against", "."), "'.' has neither hardware/ nor workloads/"),
        (("--against", ".", "--deployments", "0"), "--deployments must be at least 1"),
        (("--against", ".", "--deployments", "many"), "not a whole number"),
        (("-o", "check.xlsx"), "names no format"),
    ],
)
def test_bad_input(run, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    if "decd*" in arguments:
        (tmp_path / "cases.toml").write_text(CASES)
        arguments = ("--cases", "cases.toml", *arguments)
    result = run("check", *arguments)
    assert (result.status, result.out) == (2, "")
    assert said in result.err


def test_some_cases_only(run, moved):
    assert check(run, "l*", "--format", "csv").out.count("\n") == 2
    assert check(run, "decode", "--only-changed", "--format", "csv").out.count("\n") == 2


def test_update_adds_and_says_what_is_left(run, moved):
    result = check(run, "--update")
    assert result.status == 1
    assert result.err.startswith("predictions.csv: 1 added, 0 moved, 0 removed\n")
    assert "1 moved, 0 new, 0 missing" in result.out
    assert check(run, "--update", "decode").status == 0
    assert check(run).status == 0


def test_update_does_not_run_on_a_build_machine(run, moved, monkeypatch):
    monkeypatch.setenv("CI", "true")
    before = (moved / "predictions.csv").read_bytes()
    result = check(run, "--update", "*")
    assert (result.status, result.out) == (2, "")
    assert "--update does not run where CI is set" in result.err
    assert (moved / "predictions.csv").read_bytes() == before
    assert check(run).status == 1


def test_update_writes_whole_or_not_at_all(run, moved, monkeypatch):
    before = (moved / "predictions.csv").read_bytes()

    def full(self: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    result = check(run, "--update", "*")
    assert (result.status, result.out) == (2, "")
    assert "No space left on device" in result.err
    assert (moved / "predictions.csv").read_bytes() == before
    assert {path.name for path in moved.iterdir()} == {"cases.toml", "predictions.csv"}


def test_a_case_that_fails_writes_nothing(run, moved):
    before = (moved / "predictions.csv").read_bytes()
    (moved / "cases.toml").write_text(CASES.replace("acceptance=0.7", "acceptance=inf"))
    assert check(run, "--update", "*").status == 2
    assert (moved / "predictions.csv").read_bytes() == before


def test_the_golden_file_can_stand_elsewhere(run, mine):
    (mine / "predictions.csv").rename(mine / "other.csv")
    assert check(run, "--golden", "other.csv").status == 0
    assert check(run).status == 1


# --- formats ---------------------------------------------------------------------------------------------


def test_csv_has_every_number_or_the_changed_ones(run, moved):
    rows = list(csv.DictReader(io.StringIO(check(run, "--format", "csv").out)))
    assert len(rows) > 50
    assert [row["status"] for row in rows[:2]] == ["moved", "new"]
    assert {row["status"] for row in rows[2:]} == {"same"}
    changed = list(csv.DictReader(io.StringIO(check(run, "--format", "csv", "--only-changed").out)))
    assert changed == rows[:2]


def test_json_is_strict_and_counts(run, moved):
    data = json.loads(check(run, "--format", "json").out)
    assert (data["schema"], data["moved"], data["new"], data["missing"]) == (1, 1, 1, 0)
    assert data["changes"][0]["delta"] == pytest.approx(1 / 1.01 - 1)
    assert data["cases"][0] | {"same": 0} == {
        "case": "decode",
        "same": 0,
        "moved": 1,
        "new": 0,
        "missing": 0,
        "cause": "code",
        "changed": [],
    }


def test_github_annotates_the_line_of_the_golden_file(run, moved):
    result = check(run, "--format", "github")
    first, second = result.out.splitlines()
    place, title, message = re.fullmatch(r"::error (.*),title=([^:,]*)::(.*)", first).groups()
    file, line = re.fullmatch(r"file=(.*),line=(\d+)", place).groups()
    assert file == "predictions.csv"
    assert (moved / file).read_text().splitlines()[int(line) - 1].startswith("decode,tpot_s,")
    assert title == "cm384 check%3A decode"
    assert "%0Atpot_s: " in message
    assert "(-0.99 %25)" in message
    assert "law" in second


def test_github_says_when_nothing_changed(run, mine):
    result = check(run, "--format", "github")
    assert result.out == "::notice title=cm384 check::2 checked, nothing changed\n"


def test_junit_has_a_test_for_every_case(run, moved):
    assert check(run, "-o", "check.xml").out == ""
    root = ElementTree.fromstring((moved / "check.xml").read_text())
    (suite,) = root
    assert (suite.get("tests"), suite.get("failures")) == ("2", "2")
    assert [case.get("name") for case in suite] == ["decode", "law"]
    failure = suite[0][0]
    assert failure.tag == "failure"
    assert "1 moved" in failure.get("message")
    assert "tpot_s" in failure.text


def test_junit_of_what_is_the_same_has_no_failure(run, mine):
    root = ElementTree.fromstring(check(run, "--format", "junit").out)
    assert root[0].get("failures") == "0"
    assert not list(root.iter("failure"))


def test_markdown_is_a_table(run, moved):
    out = check(run, "--format", "markdown", "--only-changed").out
    assert "| case | quantity | golden | now | delta | status |" in out
    assert re.search(r"\| decode \| tpot_s \| .* \| -0\.99 % \| moved \|", out)


def test_a_tiny_move_is_shown_with_all_its_digits(run, mine):
    golden = mine / "predictions.csv"
    (value,) = re.findall(r"(?m)^decode,tpot_s,(.*),s$", golden.read_text())
    doctored = f"{float(value) * (1 + 1e-8):.12g}"
    golden.write_text(golden.read_text().replace(f"decode,tpot_s,{value}", f"decode,tpot_s,{doctored}"))
    assert doctored in check(run).out


def test_a_long_table_is_cut_and_says_so(run, mine, monkeypatch):
    monkeypatch.setattr(report, "SHOWN", 3)
    (mine / "predictions.csv").unlink()
    out = check(run).out
    assert re.search(r"\d+ smaller changes are not shown: --format csv has all of them", out)


def test_help_names_the_defaults_of_the_code(run):
    words = run("check", "--help").out.replace("]", " ").split()
    assert {str(DEPLOYMENTS), str(SEED)} <= set(words)
