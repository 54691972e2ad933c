"""Wall time, peak memory and where the time goes of ``cm384 sweep``; and the two writing libraries.

Without options: one million rows of 20 columns to CSV, Parquet and JSON lines. ``--large`` writes 100
million rows of 10 columns to Parquet, once; ``--libraries`` measures polars against pyarrow.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

WORKLOAD = "deepseek-r1-4k-256"
BASE = ("--grid", "ep=16:640:16", "--grid", "batch_per_die=1:100", "--grid", "kv_len=500:125000:500")
MILLION = (*BASE, "--keep", "all", "--columns")
TWENTY = (
    "axes,tpot_s,step_time_s,layer_time_s,throughput_tokens_per_s_per_npu,tokens_per_step,weights_bytes,"
    "kv_cache_bytes,buffers_bytes,free_bytes,mla_prolog_time_s,attention_core_time_s,o_proj_time_s,"
    "gate_time_s,dispatch_time_s,experts_time_s,combine_time_s,lm_head_time_s"
)
LARGE = (
    *("--grid", "acceptance=0.05:1:n20", "--grid", "hardware.die.hbm_bandwidth=1.6TB/s:3.2TB/s:5", *BASE),
    *("--at", "draft_tokens=1", "--keep", "all", "--columns"),
)
TEN = "axes,tpot_s,step_time_s,throughput_tokens_per_s_per_npu,kv_cache_bytes,free_bytes"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--large", action="store_true", help="write 100 million rows, some 0.8 GB")
    parser.add_argument("--libraries", action="store_true", help="polars against pyarrow")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.libraries:
            libraries(Path(folder))
        elif options.large:
            print(f"{'rows':>12} {'columns':>8} {'format':>8} {'wall':>8} {'CPU':>8} {'peak':>9} {'file':>9}")
            once(Path(folder) / "out.parquet", (*LARGE, TEN), 100_000_000, 10)
            breakdown(LARGE, TEN, "parquet", parts=8)
        else:
            print(f"{'rows':>12} {'columns':>8} {'format':>8} {'wall':>8} {'CPU':>8} {'peak':>9} {'file':>9}")
            for form in ("csv", "parquet", "jsonl"):
                for _ in range(options.runs):
                    once(Path(folder) / f"out.{form}", (*MILLION, TWENTY), 1_000_000, 20)
            for form in ("csv", "parquet"):
                breakdown(MILLION, TWENTY, form, parts=None)


def once(path: Path, options: tuple[str, ...], rows: int, columns: int) -> None:
    """A whole process, from start to exit."""
    code = "from cm384model.cli.main import main; import sys; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "sweep", WORKLOAD, *options, "-o", str(path), "--force"]
    start = time.perf_counter()
    child = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    wall = time.perf_counter() - start
    assert status == 0
    cpu, peak, size = used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3, path.stat().st_size / 1e6
    form = path.suffix.removeprefix(".")
    print(
        f"{rows:>12,} {columns:>8} {form:>8} {wall:>6.2f} s {cpu:>6.2f} s {peak:>6.0f} MB {size:>6.0f} MB",
        flush=True,
    )


def breakdown(options: tuple[str, ...], columns: str, form: str, *, parts: int | None) -> None:
    """Seconds per million rows of each step, one after the other, on one thread of Python."""
    import polars as pl

    from cm384model.sweeping import parts as module
    from cm384model.sweeping.build import Wanted, study_of
    from cm384model.sweeping.store import Store

    grid = dict(option.split("=", 1) for option in options if "=" in option and ":" in option)
    at = [o for o in options if o.startswith("draft_tokens")]
    study = study_of(Wanted(WORKLOAD, grid, at=at, keep="all", columns=columns))
    cut = module.layout(study)
    numbers = range(min(parts or cut.parts, cut.parts))
    spent: dict[str, float] = {}
    rows = 0
    with tempfile.TemporaryDirectory() as folder:
        store = Store(study, Path(folder) / f"out.{form}", form)
        store.folder.mkdir()
        for number in numbers:
            outcomes = timed(spent, "model", evaluated, study, cut, number)
            frame = timed(spent, "columns", framed, study, outcomes)
            content = timed(spent, "encode", module.encode, frame, form)
            timed(spent, "write", store._write, store._file(number), content)
            store.done[number] = (len(frame), len(frame))
            rows += len(frame)
        if len(numbers) == cut.parts:
            timed(spent, "join", store.finish, {})
        else:
            files = [store._file(number) for number in numbers]
            whole = Path(folder) / "whole.parquet"
            timed(spent, "join", pl.scan_parquet(files).sink_parquet, whole)
    total = sum(spent.values())
    print(f"{form}, {rows:,} rows, seconds per million rows:")
    for name, seconds in spent.items():
        print(f"  {name:<8} {seconds / rows * 1e6:>6.3f} s  {seconds / total:>5.0%}")


def evaluated(study: Any, cut: Any, number: int) -> list[Any]:
    from cm384model.sweeping.evaluate import evaluate

    outcomes = [evaluate(study, *cut.box(box)) for box in cut.part(number)]
    for outcome in outcomes:  # a column is computed when it is asked for
        _ = [outcome.columns[name]() for name in study.columns if name in outcome.columns]
    return outcomes


def framed(study: Any, outcomes: list[Any]) -> Any:
    import polars as pl

    from cm384model.sweeping.parts import _box_frame

    return pl.concat([_box_frame(study, outcome) for outcome in outcomes])


def timed(spent: dict[str, float], name: str, work: Callable[..., Any], *arguments: Any) -> Any:
    start = time.perf_counter()
    result = work(*arguments)
    spent[name] = spent.get(name, 0.0) + time.perf_counter() - start
    return result


def libraries(folder: Path) -> None:
    """Installed size, import time and write rate of polars and pyarrow, one million rows x 20 columns."""
    import numpy as np

    rng = np.random.default_rng(0)
    columns = {f"axis{i}": np.repeat(np.arange(1000.0), 1000) for i in range(5)}
    columns |= {f"value{i}": rng.random(1_000_000) * 10.0 ** (i - 8) for i in range(15)}
    for name in ("polars", "pyarrow"):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", f"import {name}"], check=True)
        took = time.perf_counter() - start
        packages = ["polars", "polars-runtime-32"] if name == "polars" else ["pyarrow"]
        files = [file.locate() for package in packages for file in metadata.files(package) or []]
        size = sum(file.stat().st_size for file in files if file.is_file()) / 1e6
        print(f"{name} {metadata.version(name)}: {size:.0f} MB, import {took:.2f} s", end="")
        writers = polars_writers(columns) if name == "polars" else pyarrow_writers(columns)
        for form, write in writers.items():
            path = folder / f"out.{form}"
            spent: dict[str, float] = {}
            for run in range(3):
                timed(spent, str(run), write, path)
            print(f", {form} {min(spent.values()):.2f} s ({path.stat().st_size / 1e6:.0f} MB)", end="")
        print()


def polars_writers(columns: dict[str, Any]) -> dict[str, Callable[[Path], Any]]:
    frame = importlib.import_module("polars").DataFrame(columns)
    return {"csv": frame.write_csv, "parquet": frame.write_parquet}


def pyarrow_writers(columns: dict[str, Any]) -> dict[str, Callable[[Path], Any]]:
    table = importlib.import_module("pyarrow").table(columns)
    csv, parquet = importlib.import_module("pyarrow.csv"), importlib.import_module("pyarrow.parquet")
    return {
        "csv": lambda path: csv.write_csv(table, path),
        "parquet": lambda path: parquet.write_table(table, path, compression="zstd"),
    }


if __name__ == "__main__":
    main()
