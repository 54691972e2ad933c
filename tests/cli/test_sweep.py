"""``cm384 sweep`` and ``cm384 show``: bad grids, what is on the screen, study files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from cm384model.report.glossary import GLOSSARY
from cm384model.report.sweep import column_entries
from cm384model.sweeping.build import Wanted, study_of

WORKLOAD = "deepseek-r1-4k-256"
SWEEP = ("sweep", WORKLOAD)
LOAD = ("--grid", "ep=32,64", "--grid", "batch_per_die=8,16")

BAD = {
    "unknown axis": (("--grid", "kv_lem=1K", *LOAD), "there is no axis 'kv_lem'. Did you mean 'kv_len'?"),
    "unknown path": (
        ("--grid", "hardware.die.hbm_bandwith=1TB/s", *LOAD),
        "Did you mean 'hardware.die.hbm_bandwidth'?",
    ),
    "axis of another phase": (("--grid", "tokens_per_npu=1K", *LOAD), "it is one of --phase prefill"),
    "empty range": (("--grid", "kv_len=128K:1K", *LOAD), "'128K:1K' is an empty range"),
    "no values": (("--grid", "kv_len=", *LOAD), "is not AXIS=VALUES"),
    "a billion rows": (
        ("--grid", "kv_len=1:1000", "--grid", "ep=2:768:2", "--grid", "batch_per_die=1:10000"),
        "the sweep has 3,840,000,000 candidates: kv_len 1,000 x ep 384 x batch_per_die 10,000",
    ),
    "a billion values": (("--grid", "kv_len=1:1000000000", *LOAD), "has 1,000,000,000 values"),
    "wrong unit": (("--grid", "die.hbm_bandwidth=1GB:2GB:5", *LOAD), "measures bytes, not bytes per second"),
    "no unit": (("--grid", "die.hbm_bandwidth=1:2", *LOAD), "'1' needs a unit"),
    "out of bounds": (("--grid", "acceptance=0.5,1.5", *LOAD), "acceptance = 1.5 is out of bounds"),
    "out of bounds in a file": (("--grid", "memory.reserve_share=2:1", *LOAD), "is an empty range"),
    "no whole number": (("--grid", "ep=32,33.5", "--at", "batch_per_die=8"), "allowed: a whole number"),
    "unknown word": (("--grid", "balance=eplb,perfct", *LOAD), "Did you mean 'perfect'?"),
    "unknown word of a file": (("--grid", "precision.kv=int9", *LOAD), "'int9' is not allowed"),
    "unknown machine": (("--grid", "hardware=cloudmatrix384,h80", *LOAD), "Did you mean 'h800'?"),
    "two names for one thing": (("--grid", "batch_per_npu=16", *LOAD), "batch_per_die and batch_per_npu set"),
    "axis twice": (("--grid", "ep=320", *LOAD), "ep is an axis twice"),
    "path twice": (
        ("--grid", "die.hbm_bandwidth=2TB/s", "--grid", "hardware.die.hbm_bandwidth=1TB/s", *LOAD),
        "hardware.die.hbm_bandwidth is an axis twice",
    ),
    "value twice": (("--grid", "kv_len=1K,1024", *LOAD), "1024 is given twice"),
    "axis and at": (("--at", "ep=32", *LOAD), "ep is an axis and given with --at"),
    "axis and set": (
        ("--set", "die.hbm_bandwidth=2TB/s", "--grid", "hardware.die.hbm_bandwidth=1TB/s", *LOAD),
        "is an axis and given with --set",
    ),
    "axis and option": (
        ("--hardware", "h800", "--grid", "hardware=cloudmatrix384", *LOAD),
        "with --hardware",
    ),
    "axis and slo": (("--slo", "tpot=50ms", "--grid", "slo.tpot=30ms", *LOAD), "given with --slo"),
    "another workload": (("--grid", "workload=deepseek-r1-1k-1k", *LOAD), "is none of its values"),
    "missing batch": (("--grid", "ep=32"), "a decode sweep needs batch_per_die"),
    "no axis": ((), "a sweep needs an axis"),
    "unknown column": (("--columns", "axes,tpto_s", *LOAD), "Did you mean 'tpot_s'?"),
    "unknown keep": (("--keep", "feasable", *LOAD), "Did you mean 'feasible'?"),
    "top of zero": (("--keep", "top=0", *LOAD), "one of feasible, all, frontier, top=N"),
    "too many npus": (("--phase", "plan", "--grid", "npus=64,512"), "npus = 512 is more than the 384"),
    "unknown suffix": (("-o", "out.xlsx", *LOAD), "use one of .csv, .parquet, .jsonl"),
    "no such folder": (("-o", "no/such/out.csv", *LOAD), "No such file or directory"),
    "parquet on the screen": (("--format", "parquet", *LOAD), "Parquet is not for the screen"),
    "workers without a file": (("--workers", "local", *LOAD), "needs -o FILE"),
    "workers and csv": (("--workers", "local", "-o", "out.csv", *LOAD), "writes a folder of Parquet files"),
    "resume without a file": (("--resume", *LOAD), "--resume is about a file"),
    "at of another phase": (("--at", "plane=ub", *LOAD), "a decode sweep has no 'plane'"),
}


@pytest.mark.parametrize(("arguments", "said"), BAD.values(), ids=BAD)
def test_one_clear_error_and_nothing_written(run, arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = () if {"-o", "--format", "--workers", "--resume"} & set(arguments) else ("-o", "out.csv")
    result = run(*SWEEP, *arguments, *output)
    assert (result.status, result.out) == (2, "")
    assert result.err.count("error: ") == 1, result.err
    assert said in result.err
    assert list(tmp_path.iterdir()) == []


def test_all_faults_of_the_axes_at_once(run):
    result = run(*SWEEP, "--grid", "epp=1", "--grid", "kv_len=9:1", "--grid", "batch_per_die=x")
    assert (result.status, result.err.count("error: ")) == (2, 3)


def test_a_large_sweep_that_is_meant(run, monkeypatch):
    monkeypatch.setattr("cm384model.sweeping.build.MANY_ROWS", 3)
    assert run(*SWEEP, *LOAD).status == 2
    assert run(*SWEEP, *LOAD, "--yes").status == 0


def test_a_table(run):
    result = run(*SWEEP, *LOAD)
    assert (result.status, result.err) == (0, "")
    lines = result.out.splitlines()
    assert "[ms]" in result.out
    assert len([line for line in lines if line.startswith(("32 ", "64 "))]) == 4


def test_a_table_of_many_rows_ends(run):
    result = run(*SWEEP, "--grid", "ep=32:320:2", "--grid", "batch_per_die=1,2")
    assert "and 190 more rows; -o FILE keeps them all" in result.out


def test_machine_formats_on_the_screen(run):
    rows = [json.loads(line) for line in run(*SWEEP, *LOAD, "--format", "jsonl").out.splitlines()]
    text = run(*SWEEP, *LOAD, "--format", "csv").out
    assert list(rows[0]) == text.splitlines()[0].split(",")
    assert [str(row["tpot_s"]) for row in rows] == [line.split(",")[2] for line in text.splitlines()[1:]]
    assert run(*SWEEP, *LOAD, "--keep", "top=1", "--format", "csv").out.count("\n") == 2


def test_nothing_feasible_is_an_answer(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*SWEEP, "--grid", "ep=8", "--grid", "batch_per_die=100")
    assert (result.status, result.out) == (1, "")
    assert "none of the 1 candidates is feasible" in result.err
    result = run(*SWEEP, "--grid", "ep=8", "--grid", "batch_per_die=100", "-o", "out.csv")
    assert result.status == 1
    assert Path("out.csv").read_text().count("\n") == 1
    told = run(
        *SWEEP, "--grid", "ep=8,33,800", "--grid", "batch_per_die=100", "--keep", "all", "--format", "csv"
    )
    assert [line.split(",")[3] for line in told.out.splitlines()[1:]] == ["hbm", "ep", "ep"]


STUDY = """
workload = "deepseek-r1-4k-256"
keep = "all"
columns = ["axes", "tpot_s"]
set = ["memory.reserve_share=0.05"]

[at]
draft_tokens = 1

[grid]
ep = [32, 64]
batch_per_die = "8,16"
hardware.die.hbm_bandwidth = "1.6TB/s:3.2TB/s:3"
"""


def test_a_saved_study(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(STUDY)
    result = run("sweep", "--spec", "study.toml", "--format", "csv")
    axis = (
        "--grid",
        "hardware.die.hbm_bandwidth=1.6TB/s:3.2TB/s:3",
        "--at",
        "draft_tokens=1",
        "--keep",
        "all",
    )
    others = ("--set", "memory.reserve_share=0.05", "--columns", "axes,tpot_s")
    assert (result.status, result.out) == (0, run(*SWEEP, *LOAD, *axis, *others, "--format", "csv").out)
    assert result.out.startswith("ep,batch_per_die,hardware.die.hbm_bandwidth_bytes_per_s,tpot_s\n")
    fewer = run("sweep", "--spec", "study.toml", "--grid", "ep=320", "--keep", "top=1", "--format", "csv")
    assert fewer.out.splitlines()[1].startswith("320,16,")
    Path("study.toml").write_text(STUDY.replace("keep =", "kepe ="))
    result = run("sweep", "--spec", "study.toml")
    assert result.status == 2
    assert "unknown key 'kepe'. Did you mean 'keep'?" in result.err
    assert "study.toml:3:1" in result.err


@pytest.mark.parametrize("phase", ["decode", "prefill", "plan"])
def test_every_column_is_explained(phase):
    load = {"decode": {"batch_per_die": "8"}, "prefill": {"tokens_per_npu": "8K"}, "plan": {"npus": "64"}}[
        phase
    ]
    grid = (
        load
        | ({} if phase == "plan" else {"ep": "32"})
        | {"hardware": "cloudmatrix384", "die.l2_capacity": "1GB"}
    )
    study = study_of(Wanted(WORKLOAD, grid, phase=phase, columns="all"))
    entries = column_entries(study)
    assert [entry["name"] for entry in entries] == list(study.columns)
    assert all(entry["unit"] and entry["meaning"] for entry in entries)
    known = {entry.name for entry in GLOSSARY}
    strange = [entry["name"] for entry in entries if entry["name"] not in known and "." not in entry["name"]]
    ends = ("_time_s", "_low", "_high")
    assert all(name.endswith(ends) or name.startswith(("decode_", "prefill_")) for name in strange)


@pytest.fixture
def written(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    grid = ("--grid", "ep=32:320:32", "--grid", "batch_per_die=1:64", "--grid", "microbatches=1,2")
    for form in ("csv", "parquet", "jsonl"):
        assert run(*SWEEP, *grid, "-o", f"out.{form}").status == 0
    return pl.read_csv("out.csv")


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_show(run, written, form):
    result = run("show", f"out.{form}")
    assert (result.status, result.err) == (0, "")
    assert f"out.{form}: {len(written):,} rows x 7 columns" in result.out
    assert "decode of deepseek-r1-4k-256 on cloudmatrix384" in result.out
    best = run("show", f"out.{form}", "--top", "3", "--format", "csv").out.splitlines()
    order = written.sort("throughput_tokens_per_s_per_npu", descending=True)
    assert [float(line.split(",")[3]) for line in best[1:]] == order["tpot_s"].to_list()[:3]
    least = run(
        "show", f"out.{form}", "--by", "free_bytes", "--smallest", "--top", "1", "--format", "csv"
    ).out
    assert float(least.splitlines()[1].split(",")[-1]) == written["free_bytes"].min()
    first = run("show", f"out.{form}", "--head", "--top", "1", "--format", "csv").out.splitlines()[1]
    assert first.startswith("1,32,1,")


def test_show_frontier_is_the_frontier_of_the_sweep(run, written, monkeypatch):
    monkeypatch.setattr("cm384model.sweeping.results.BATCH", 100)
    grid = ("--grid", "ep=32:320:32", "--grid", "batch_per_die=1:64", "--grid", "microbatches=1,2")
    expected = run(*SWEEP, *grid, "--keep", "frontier", "--format", "csv").out
    shown = run("show", "out.parquet", "--frontier", "--format", "csv").out
    column = [[line.split(",")[3] for line in text.splitlines()] for text in (expected, shown)]
    assert column[0] == column[1]


def test_show_says_what_is_wrong(run, written):
    assert "Did you mean 'out.csv'?" in run("show", "ot.csv").err
    assert "Did you mean 'free_bytes'?" in run("show", "out.csv", "--by", "free_byte").err
    assert "give one of them" in run("show", "out.csv", "--head", "--frontier").err
    Path("bad.parquet").write_text("no")
    result = run("show", "bad.parquet")
    assert (result.status, "cannot be read" in result.err) == (2, True)


def test_a_bar_on_a_terminal_only(run, tmp_path, monkeypatch):
    pty = pytest.importorskip("pty")
    monkeypatch.chdir(tmp_path)
    ours, theirs = pty.openpty()
    code = "import cm384model.report.progress as p; p.PATIENCE_S = 0.0\n" + (
        "from cm384model.cli.main import main; import sys; sys.exit(main(sys.argv[1:]))"
    )
    grid = ("--grid", "ep=16:640:16", "--grid", "batch_per_die=1:100", "--grid", "kv_len=500:250000:500")
    child = subprocess.Popen(
        [sys.executable, "-c", code, *SWEEP, *grid, "--keep", "all", "-o", "out.parquet"],
        stderr=theirs,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"},
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:
            break
        if not chunk:
            break
        said += chunk
    assert child.wait() == 0
    os.close(ours)
    assert b"%" in said
    assert b"of 2.0 M" in said
    assert b"2,000,000 rows of 2,000,000 candidates in" in said
    assert "%" not in run(*SWEEP, *grid[:4], "-o", "other.csv").err
