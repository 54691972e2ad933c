from __future__ import annotations

import csv
import io
import json
import re
import shlex

import pytest

WORKLOAD = "deepseek-r1-4k-256"
PAPER = ("--at", "ep=320,batch_per_die=48,draft_tokens=1")
CASES = {
    "default": (),
    "paper": PAPER,
    "16 dies": ("--at", "ep=16"),
    "32 dies": ("--at", "ep=32,kv_len=131072"),
    "8 NPUs": ("--npus", "8"),
    "prefill": ("--phase", "prefill"),
    "prefill batch": ("--phase", "prefill", "--at", "ep=32,tokens_per_npu=16384"),
    "int8 cache": ("--set", "model.precision.kv=int8"),
}
EVERY_CASE = pytest.mark.parametrize("options", CASES.values(), ids=CASES)


@EVERY_CASE
def test_tables_are_plain_and_fit_120_columns(run, options):
    result = run("fit", WORKLOAD, *options)
    assert result.status == (1 if result.err else 0)
    assert max(map(len, result.out.splitlines())) <= 120
    assert "None" not in result.out


@EVERY_CASE
def test_npus_and_dies_are_always_named(run, options):
    out = run("fit", WORKLOAD, *options).out
    assert re.search(r"\d+ NPUs \(\d+ dies\)", out)
    head = next(line for line in out.splitlines() if line.startswith("instance"))
    assert head.split()[1:3] == ["NPUs", "dies"]


@EVERY_CASE
def test_json_csv_and_markdown(run, options):
    data = json.loads(run("fit", WORKLOAD, *options, "--format", "json").out)
    rows = list(csv.DictReader(io.StringIO(run("fit", WORKLOAD, *options, "--format", "csv").out)))
    assert len(rows) == sum(len(i["by_context"]) + len(i["by_batch"]) for i in data["instances"])
    assert set(rows[0]) == {"ep", "npus", "dies", "context", "batch", "requests"}
    assert "| memory of a die |" in run("fit", WORKLOAD, *options, "--format", "markdown").out
    for instance in data["instances"]:
        assert sum(part["size_bytes"] for part in instance["ledger"]) == pytest.approx(
            instance["capacity_bytes"]
        )


def test_the_papers_settings(run):
    result = run("fit", WORKLOAD, *PAPER)
    assert (result.status, result.err) == (0, "")
    assert "exchange_buffers: 645.0 MiB on EP320, for 96 tokens of every die" in result.out


def test_16_dies_no_and_why(run):
    result = run("fit", WORKLOAD, "--at", "ep=16")
    assert result.status == 1
    assert result.err.startswith("infeasible: hbm: 8.04 GB over the capacity of a die on 8 NPUs (16 dies)\n")
    assert "routed_experts: 40.9 GB, 64% of a die" in result.err
    assert "the smallest instance that fits is 11 NPUs (22 dies)" in result.err
    assert result.err.endswith("hint: try --at ep=22\n")


@pytest.mark.parametrize(
    "options",
    [("--at", "ep=16"), ("--npus", "8"), ("--at", "ep=32,batch_per_die=60"), ("--at", "batch_per_die=500")],
)
def test_what_the_hint_says_fits(run, options):
    hint = run("fit", WORKLOAD, *options).err.rpartition("hint: try ")[2].strip()
    for change in hint.split(" or "):
        given = list(options) if options[0] == "--at" else []
        name = change.rpartition(" ")[2].partition("=")[0]
        if given and change.startswith("--at"):
            kept = [item for item in given[1].split(",") if not item.startswith(f"{name}=")]
            given = ["--at", ",".join(kept)] if kept else []
        assert run("fit", WORKLOAD, *given, *shlex.split(change)).status == 0, change


def test_json_of_no_is_complete(run):
    result = run("fit", WORKLOAD, "--at", "ep=16", "--format", "json")
    data = json.loads(result.out)
    assert (result.status, data["feasible"], data["phase"]) == (1, False, "decode")
    assert data["reasons"]
    assert set(data["infeasible"]) == {"constraint", "nearest", "hint"}
    assert data["smallest"] == {"dies": 22, "npus": 11, "nodes": 2}


def test_a_setting_counts(run):
    plain, smaller = (
        json.loads(run("fit", WORKLOAD, "--at", "ep=320", *more, "--format", "json").out)["instances"][0]
        for more in ((), ("--set", "model.precision.kv=int8"))
    )
    assert smaller["largest_batch"] > 1.9 * plain["largest_batch"]
    assert not any("kv=int8" in what_if["change"] for what_if in smaller["what_ifs"])


BAD = {
    "unknown at": (("--at", "epp=32"), "Did you mean 'ep'?"),
    "half an NPU": (("--at", "ep=31"), "nearest: 30 or 32"),
    "no number": (("--at", "ep=many"), "ep: 'many' is not a value"),
    "zero context": (("--at", "kv_len=0"), "is out of bounds"),
    "prefill name in decode": (
        ("--at", "tokens_per_npu=4096"),
        "a decode deployment has no 'tokens_per_npu'",
    ),
    "decode name in prefill": (
        ("--phase", "prefill", "--at", "kv_len=4096"),
        "a prefill deployment has no 'kv_len'",
    ),
    "too many NPUs": (("--npus", "385"), "cloudmatrix384 has 384 NPUs"),
    "no whole number": (("--npus", "x"), "--npus = 'x' is not a whole number"),
    "more dies than NPUs": (("--npus", "8", "--at", "ep=32"), "ep = 32 is more than the 16 dies of 8 NPUs"),
    "unknown phase": (("--phase", "prefil"), "Did you mean 'prefill'?"),
    "unknown hardware": (("--hardware", "cloudmatrix"), "Did you mean 'cloudmatrix384'?"),
    "unknown path": (("--set", "engine.memory.reserve=0.1"), "unknown path"),
    "batch without a prompt": (
        ("--phase", "prefill", "--at", "ep=2,tokens_per_npu=10"),
        "a batch of 10 tokens holds no prompt of 4096",
    ),
}


@pytest.mark.parametrize(("options", "said"), BAD.values(), ids=BAD)
def test_bad_input_is_one_clear_error(run, options, said):
    result = run("fit", WORKLOAD, *options)
    assert (result.status, result.out) == (2, "")
    assert result.err.count("error: ") == 1
    assert said in result.err


def test_an_unknown_workload(run):
    result = run("fit", "deepseek-r1-4k-265")
    assert (result.status, result.out) == (2, "")
    assert "Did you mean 'deepseek-r1-4k-256'?" in result.err


def test_instances_beyond_one_network_are_named(run):
    result = run("fit", WORKLOAD, "--hardware", "atlas-800i-a3")
    assert "note: EP22, EP32 span scale-up networks of 16 dies; predict needs scale_out=yes" in result.out
