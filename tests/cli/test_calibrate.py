from __future__ import annotations

import csv
import io
import json

import pytest

HEAD = "id,subject,at,quantity,value,unit\n"
DISPATCH = "".join(
    f'd{ep}{tokens},op dispatch,"ep={ep},tokens_per_die={tokens}",time_s,{time},us\n'
    for ep, tokens, time in ((8, 128, 121), (64, 64, 95), (128, 128, 160), (256, 32, 90))
)
STEP = 'a,decode,"ep=64,batch_per_die=4",tpot_s,33,ms\n'


@pytest.fixture
def measured(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "m.csv"
    path.write_text(HEAD + DISPATCH)
    return path


def test_a_report_says_before_after_and_how_sure(run, measured):
    result = run("calibrate", "m.csv")
    assert (result.status, result.err) == (0, "")
    for said in ("4 rows fitted 3 constants", "cann_ep_dispatch", "std. error", "each row left out"):
        assert said in result.out
    assert max(map(len, result.out.splitlines())) <= 120
    assert [path.name for path in measured.parent.iterdir()] == ["m.csv"]


def test_the_new_file_works(run, measured):
    result = run("calibrate", "m.csv", "-o", "mine.toml")
    assert result.out.endswith("wrote mine.toml\n\nin effect with --hardware mine.toml\n")
    own = run("op", "dispatch", "--at", "ep=8,tokens_per_die=128", "--hardware", "./mine.toml")
    assert own.status == 0
    assert "of m.csv" in own.out


def test_engine_constants_go_beside_and_both_files_work(run, measured):
    measured.write_text(HEAD + STEP)
    constant = ("--constant", "engine.constants.step_overhead")
    result = run("calibrate", "m.csv", *constant, "-o", "mine.toml")
    assert "wrote mine.engine.toml" in result.out
    assert "in effect with --hardware mine.toml --engine mine.engine.toml\n" in result.out
    at = ("--at", "ep=64,batch_per_die=4", "--format", "json")
    files = ("--hardware", "mine.toml", "--engine", "mine.engine.toml")
    tpot = json.loads(run("predict", "deepseek-r1-4k-256", *files, *at).out)["tpot_s"]
    assert tpot == pytest.approx(0.033, rel=0.01)


def test_json_and_csv(run, measured):
    data = json.loads(run("calibrate", "m.csv", "--format", "json").out)
    (stage,) = data["stages"]
    assert {"constants", "errors_before", "errors_after", "leave_one_out", "correlated"} <= set(stage)
    rows = list(csv.DictReader(io.StringIO(run("calibrate", "m.csv", "--format", "csv").out)))
    assert [row["path"] for row in rows] == [constant["path"] for constant in stage["constants"]]


def test_shipped_stages_by_name(run):
    result = run("calibrate", "--stage", "swiglu")
    assert result.status == 0
    assert "swiglu: 6 rows on cloudmatrix384" in result.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-o", "x.toml"), "go with a file of measurements"),
        (("--hardware", "h800"), "go with a file of measurements"),
        (("m.csv", "--in-place"), "--in-place goes without a file"),
        (("m.csv", "-o", "x.json"), "'x.json' is no .toml file"),
        (("m.csv", "-o", "no/such/folder/x.toml"), "cannot write"),
        (("m.csv", "--stage", "vectr"), "Did you mean 'vector'?"),
        (("m.csv", "--constant", "engine.x"), "no stage fits 'engine.x'"),
        (("none.csv",), "cannot read 'none.csv'"),
    ],
)
def test_bad_input_is_said_once_and_nothing_is_written(run, measured, arguments, said):
    result = run("calibrate", *arguments)
    assert (result.status, result.out) == (2, "")
    assert result.err.count("error: ") == 1
    assert said in result.err
    assert [path.name for path in measured.parent.iterdir()] == ["m.csv"]


def test_every_faulty_line_is_named(run, measured):
    measured.write_text(HEAD + "a,op gemn,m=1,time_s,1,us\nb,op gemm,m=1,time_s,1,GB\n")
    result = run("calibrate", "m.csv", "-o", "mine.toml")
    assert result.err.count("error: ") == 2
    assert "m.csv:2:" in result.err
    assert "m.csv:3:" in result.err
    assert not (measured.parent / "mine.toml").exists()
