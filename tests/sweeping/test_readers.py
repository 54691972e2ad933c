"""Other programs read the same numbers from what a sweep writes."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pytest

COMMAND = (
    *("sweep", "deepseek-r1-4k-256", "--grid", "ep=32:320:32", "--grid", "batch_per_die=1:90:3"),
    *("--grid", "balance=eplb,none", "--keep", "all", "--columns", "all"),
)


@pytest.fixture
def written(folder, run) -> pl.DataFrame:
    """The rows as they are, beside a CSV and a Parquet file of them."""
    for form in ("csv", "parquet"):
        assert run(*COMMAND, "-o", f"out.{form}").status == 0
    return pl.read_parquet("out.parquet")


def columns(frame: pl.DataFrame) -> dict[str, list[object]]:
    return {name: [None if v is None else v for v in frame[name].to_list()] for name in frame.columns}


def without_nan(values: list[object]) -> list[object]:
    return [None if pd.isna(value) else value for value in values]


def test_polars(written):
    assert columns(pl.read_csv("out.csv", infer_schema_length=None)) == columns(written)


def test_pandas(written):
    for read in (
        lambda: pd.read_csv("out.csv"),
        lambda: pd.read_parquet("out.parquet"),
    ):
        found = read()
        assert {name: without_nan(found[name].tolist()) for name in found.columns} == columns(written)


@pytest.mark.parametrize("file", ["out.csv", "out.parquet"])
def test_duckdb(written, file):
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT * FROM '{file}'")
        names = [entry[0] for entry in found.description]
        rows = found.fetchall()
    assert {name: [row[i] for row in rows] for i, name in enumerate(names)} == columns(written)


def test_the_csv_is_plain(written):
    with Path("out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == written.columns
    assert [float(row["tpot_s"]) if row["tpot_s"] else None for row in rows] == written["tpot_s"].to_list()
    assert not re.search(r"(^|,)-?(nan|inf)(,|$)", Path("out.csv").read_text(), re.IGNORECASE | re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("out.csv", b"\n64,", b"\n64,1,2,3,4,5,6,7,8,9,", "cannot be read"),
        ("out.csv", b"\n64,1,", b"\n64,\xff\xff,", "cannot be read"),
        ("out.csv", b"\n320,8,", b"\n320,inf,", "'batch_per_die' holds a number that is not finite"),
        ("out.csv.meta.json", b'"kind":', b'"knd":', "is no provenance of a sweep"),
        ("out.csv.meta.json", b'"candidates": 16', b'"candidates": "x"', "is no provenance of a sweep"),
        ("out.parquet", None, None, "cannot be read"),
    ],
)
def test_a_damaged_sweep_is_bad_input(folder, run, name, old, new, said):
    form = "parquet" if "parquet" in name else "csv"
    grid = ("--grid", "ep=64,320", "--grid", "batch_per_die=1:8")
    assert run("sweep", "deepseek-r1-4k-256", *grid, "-o", f"out.{form}").status == 0
    content = Path(name).read_bytes()
    if old is None:
        damaged = content[:200] + bytes(800) + content[1000:]
    else:
        assert old in content
        damaged = content.replace(old, new, 1)
    Path(name).write_bytes(damaged)
    result = run("show", f"out.{form}", "-o", "shown.json")
    assert (result.status, result.out) == (2, "")
    assert said in result.err
    assert not Path("shown.json").exists()
