"""The same sweep on a real Dask scheduler with two worker processes, one of them killed on purpose."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from cm384model.cli.main import main

WORKLOAD = "deepseek-r1-4k-256"
GRID = ("--grid", "ep=16:640:16", "--grid", "batch_per_die=1:100", "--grid", "kv_len=500:400000:500")

COMMAND = ("sweep", WORKLOAD, *GRID, "--keep", "all")
COLUMNS = ("--columns", "axes,tpot_s,reasons,free_bytes,kv_cache_bytes")


@dataclass
class Dask:
    address: str
    workers: list[subprocess.Popen[bytes]]
    folder: Path

    def add_worker(self) -> None:
        module = [sys.executable, "-m", "distributed.cli.dask_worker", self.address]
        options = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(self.folder)]
        self.workers.append(
            subprocess.Popen([*module, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )


@pytest.fixture
def dask(tmp_path: Path) -> Iterator[Dask]:
    """A scheduler and two workers on the loopback address."""
    module = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((tmp_path / "scheduler.log").open("w+"))
        scheduler = subprocess.Popen([*module, *options], stdout=log, stderr=log)
        stack.callback(scheduler.wait)
        stack.callback(scheduler.kill)
        deadline = time.monotonic() + 30
        while not (found := re.search(r"tcp://127\.0\.0\.1:\d+", (tmp_path / "scheduler.log").read_text())):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        cluster = Dask(found[0], [], tmp_path)
        for _ in range(2):
            cluster.add_worker()
        yield cluster
        for worker in cluster.workers:
            worker.kill()
            worker.wait()


def test_a_killed_worker_loses_nothing(dask, folder, start, after_parts):
    child = start(*COMMAND, *COLUMNS, "--workers", dask.address, "-o", "there.parquet")
    after_parts(folder / "there.parquet.part", 1, child)
    dask.workers[0].send_signal(signal.SIGKILL)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 0, said
    assert "3,200,000 rows" in said
    assert main([*COMMAND, *COLUMNS, "-o", "here.parquet"]) == 0
    parts = sorted(Path("there.parquet").iterdir())
    assert len(parts) > 3
    assert all(re.fullmatch(r"part-\d{6}\.parquet", part.name) for part in parts)
    assert pl.read_parquet(parts).equals(pl.read_parquet("here.parquet"), null_equal=True)


def test_no_worker_left_leaves_what_is_whole(dask, folder, start, after_parts):
    impatient = "import cm384model.sweeping.cluster as c; c.PATIENCE_S = c.FETCH_S = 1.0; "
    arguments = (*COMMAND, *COLUMNS, "--workers", dask.address, "-o", "there.parquet")
    child = start(*arguments, before=impatient)
    after_parts(folder / "there.parquet.part", 1, child)
    for worker in dask.workers:
        worker.send_signal(signal.SIGKILL)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 2
    assert "are gone" in said
    assert "parts are whole" in said
    assert "--resume continues" in said
    dask.add_worker()
    again = start(*COMMAND, *COLUMNS, "--workers", dask.address, "-o", "there.parquet", "--resume")
    _, said = again.communicate(timeout=60)
    assert again.returncode == 0, said
    assert "parts were there" in said
    assert main([*COMMAND, *COLUMNS, "-o", "here.parquet"]) == 0
    there = pl.read_parquet(sorted(Path("there.parquet").iterdir()))
    assert there.equals(pl.read_parquet("here.parquet"), null_equal=True)


def test_no_scheduler_is_one_clear_error(folder, run, monkeypatch):
    monkeypatch.setattr("cm384model.sweeping.cluster.PATIENCE_S", 0.5)
    result = run("sweep", WORKLOAD, *GRID[:4], "--workers", "tcp://127.0.0.1:1", "-o", "there.parquet")
    assert result.status == 2
    assert "no Dask scheduler with workers at 'tcp://127.0.0.1:1'" in result.err


def test_without_dask_the_command_says_how_to_install_it(folder, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    result = run("sweep", WORKLOAD, *GRID[:4], "--workers", "local", "-o", "there.parquet")
    assert result.status == 2
    assert "pip install 'cm384model[dask]'" in result.err
