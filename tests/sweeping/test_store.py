"""Whatever stops a sweep, what it leaves is whole, says so, and is continued to the same file."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from cm384model.cli.main import main

WORKLOAD = "deepseek-r1-4k-256"
GRID = ("--grid", "ep=16:640:16", "--grid", "batch_per_die=1:100", "--grid", "kv_len=500:400000:500")
SLOW = ("sweep", WORKLOAD, *GRID, "--keep", "all", "--columns", "axes,tpot_s,free_bytes")
"""3.2 million rows in five parts."""
QUICK = ("sweep", WORKLOAD, "--grid", "ep=32,64", "--grid", "batch_per_die=1:9")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output that was never stopped."""
    path = tmp_path_factory.mktemp("whole") / "out.csv"
    assert main([*SLOW, "-o", str(path)]) == 0
    return path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for two parts of five; tests run as root."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_the_output_has_its_name_only_when_it_is_whole(folder, whole, start, after_parts):
    child = start(*SLOW, "-o", "out.csv")
    after_parts(folder / "out.csv.part", 1, child)
    assert not Path("out.csv").exists()
    _, said = child.communicate()
    assert child.returncode == 0
    assert "3,200,000 rows of 3,200,000 candidates in" in said
    assert {path.name for path in folder.iterdir()} == {"out.csv", "out.csv.meta.json"}
    assert Path("out.csv").read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["kill", "ctrl-c"])
def test_a_stopped_sweep_is_whole_and_goes_on(folder, whole, number, capsys, start, after_parts):
    child = start(*SLOW, "-o", "out.csv")
    after_parts(folder / "out.csv.part", 1, child)
    child.send_signal(number)
    _, said = child.communicate()
    parts = sorted(Path("out.csv.part").glob("part-*.csv"))
    assert 0 < len(parts) < 5
    for part in parts:  # every part is a file of its own
        assert len(pl.read_csv(part)) > 0
        assert part.read_bytes().endswith(b"\n")
    assert main(["show", "out.csv.part", "--top", "3"]) == 0
    assert "unfinished, --resume continues it" in capsys.readouterr().out
    if number == signal.SIGINT:
        assert child.returncode == 130
        assert "parts are whole" in said
        assert "the same command with --resume continues" in said
    assert main([*SLOW, "-o", "out.csv"]) == 2
    assert "an unfinished sweep is in 'out.csv.part'" in capsys.readouterr().err
    again = start(*SLOW, "-o", "out.csv", "--resume")
    _, said = again.communicate()
    assert again.returncode == 0, said
    assert "parts were there" in said
    assert Path("out.csv").read_bytes() == whole.read_bytes()
    assert not Path("out.csv.part").exists()


@pytest.mark.parametrize("room", [0.5, 1.5], ids=["while parts are made", "while they are joined"])
def test_a_full_disk(small_disk, whole, room, capsys, monkeypatch):
    size = int(room * whole.stat().st_size)
    subprocess.run(["mount", "-o", f"remount,size={size}", str(small_disk)], check=True)
    monkeypatch.chdir(small_disk)
    assert main([*SLOW, "-o", "out.csv"]) == 2
    said = capsys.readouterr().err
    assert "cannot write 'out.csv': No space left on device" in said
    assert "parts are whole" in said
    assert "--resume continues" in said
    assert not Path("out.csv").exists()
    assert not list(Path("out.csv.part").glob("*.tmp"))
    parts = sorted(Path("out.csv.part").glob("part-*.csv"))
    assert parts
    assert all(part.read_bytes().endswith(b"\n") for part in parts)
    subprocess.run(["mount", "-o", "remount,size=500m", str(small_disk)], check=True)
    assert main([*SLOW, "-o", "out.csv", "--resume"]) == 0
    assert Path("out.csv").read_bytes() == whole.read_bytes()
    monkeypatch.chdir("/")


def test_a_read_only_target(small_disk, capsys):
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert main([*QUICK, "-o", str(small_disk / "out.csv")]) == 2
    said = capsys.readouterr().err
    assert "Read-only file system" in said
    assert "nothing was written" in said
    assert said.count("error: ") == 1


def test_a_file_is_not_replaced_without_force(folder, run):
    Path("out.csv").write_text("mine")
    result = run(*QUICK, "-o", "out.csv")
    assert (result.status, result.out) == (2, "")
    assert "'out.csv' exists" in result.err
    assert Path("out.csv").read_text() == "mine"
    assert run(*QUICK, "-o", "out.csv", "--force").status == 0
    assert len(pl.read_csv("out.csv")) == 18


def test_another_sweep_is_not_continued(folder, run, monkeypatch):
    monkeypatch.setattr("cm384model.sweeping.store.Store.finish", lambda *_: 1 / 0)
    with pytest.MonkeyPatch.context():
        assert run(*QUICK, "-o", "out.csv").status == 3
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    other = run(*QUICK, "--at", "draft_tokens=1", "-o", "out.csv", "--resume")
    assert other.status == 2
    assert "is another one" in other.err
    assert run(*QUICK, "-o", "out.csv", "--resume").status == 0


def test_a_note_that_was_cut_off_costs_one_part(folder, run, monkeypatch):
    monkeypatch.setattr("cm384model.sweeping.parts.BOX", 4)
    monkeypatch.setattr("cm384model.sweeping.parts.PART_VALUES", 16)
    assert run(*QUICK, "-o", "whole.csv").status == 0
    monkeypatch.setattr("cm384model.sweeping.store.Store.finish", lambda *_: 1 / 0)
    assert run(*QUICK, "-o", "out.csv").status == 3
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    monkeypatch.setattr("cm384model.sweeping.parts.BOX", 4)
    monkeypatch.setattr("cm384model.sweeping.parts.PART_VALUES", 16)
    done = Path("out.csv.part/_done.jsonl")
    os.truncate(done, done.stat().st_size - 5)
    Path("out.csv.part/part-000001.csv.tmp").write_text("half a par")
    result = run(*QUICK, "-o", "out.csv", "--resume")
    assert result.status == 0
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()


def test_two_processes_do_not_write_the_same_sweep(folder, run, start, after_parts):
    child = start(*SLOW, "-o", "out.csv")
    after_parts(folder / "out.csv.part", 1, child)
    result = run(*SLOW, "-o", "out.csv", "--resume")
    assert (result.status, "another process is writing" in result.err) == (2, True)
    child.kill()
    child.communicate()


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize("keep", ["feasible", "all", "frontier", "top=7"])
def test_many_parts_join_to_the_rows_of_one(folder, run, monkeypatch, form, keep):
    grid = ("--grid", "balance=eplb,none", "--grid", "ep=32:768:32", "--grid", "batch_per_die=1:99:7")
    command = ("sweep", WORKLOAD, *grid, "--keep", keep, "--columns", "all")
    assert run(*command, "-o", f"one.{form}").status == 0
    monkeypatch.setattr("cm384model.sweeping.parts.BOX", 31)
    monkeypatch.setattr("cm384model.sweeping.parts.PART_VALUES", 2000)
    assert run(*command, "-o", f"many.{form}").status == 0
    read = {"csv": pl.read_csv, "parquet": pl.read_parquet, "jsonl": pl.read_ndjson}[form]
    one, many = read(f"one.{form}"), read(f"many.{form}")
    assert len(one)
    assert one.equals(many, null_equal=True)


def test_the_sidecar_says_where_the_rows_come_from(folder, run):
    assert run(*QUICK, "-o", "out.parquet").status == 0
    said = json.loads(Path("out.parquet.meta.json").read_text())
    inside = json.loads(pl.read_parquet_metadata("out.parquet")["cm384"])
    assert {name: value for name, value in said.items() if name not in ("rows", "elapsed_s")} == inside
    assert said["rows"] == 18
    assert said["cm384"] == "0.1.0"
    assert {file["kind"] for file in said["files"]} == {"hardware", "engine", "model", "workload"}
    assert all(len(file["sha256"]) == 64 for file in said["files"])
    assert said["command"].startswith("cm384 sweep deepseek-r1-4k-256")
    assert "stage serving, 13 rows" in " ".join(said["calibration"]["fits"])
    assert [column["name"] for column in said["columns"]] == pl.read_parquet("out.parquet").columns
    assert all(column["unit"] and column["meaning"] for column in said["columns"])


def test_no_name_of_a_user_is_removed(folder, run):
    """What stands beside the output stays."""
    Path("out.csv.partial").write_text("mine")
    shutil.copy("out.csv.partial", "other")
    assert run(*QUICK, "-o", "out.csv").status == 0
    assert {"out.csv.partial", "other"} < {path.name for path in folder.iterdir()}
