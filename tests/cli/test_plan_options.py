"""``cm384 plan``: every option, its exit status, and one error for bad input."""

from __future__ import annotations

import csv
import io
import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from cm384model.planning import colocated, layouts, space
from cm384model.specs.catalogue import data_root

WORKLOAD = "deepseek-r1-4k-256"
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SMALL = ("plan", WORKLOAD, "--npus", "64", "--slo", "tpot=50ms,ttft=2s")


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    monkeypatch.setattr(space, "core_shares", lambda case: np.array([1 / 2, 2 / 3]))
    monkeypatch.setattr(space, "MAX_DRAFT_TOKENS", 1)
    monkeypatch.setattr(layouts, "ATTENTION_TP", (1.0, 2.0))
    monkeypatch.setattr(space, "MAX_BATCH_PER_DIE", 96)
    monkeypatch.setattr(space, "TOKENS_STEP", 4096)


def answer(run, *arguments, status=0):
    result = run(*SMALL, *arguments, "--format", "json")
    assert result.status == status, result.err
    return json.loads(result.out)


def test_objective_and_rate(run):
    for objective in ("npus", "latency"):
        data = answer(run, "--objective", objective, "--rate", "20/s")
        assert (data["objective"], data["rate_requests_per_s"]) == (objective, 20.0)
        assert {plan["requests_per_s"] for plan in data["plans"]} == {20.0}
    fewest = answer(run, "--objective", "npus", "--rate", "20/s")["plans"][0]
    assert fewest["npus"] < 64


def test_a_rate_that_nothing_serves_is_no_plan(run):
    result = run(*SMALL, "--objective", "npus", "--rate", "100000/s")
    assert result.status == 1
    assert result.err.startswith("infeasible: rate: ")
    assert result.err.count("hint: ") == 1
    assert result.err.endswith("/s or more NPUs\n")
    whole = run("plan", WORKLOAD, "--npus", "384", "--objective", "npus", "--rate", "1000/s")
    assert " or a larger machine, such as one of cluster.supernodes=" in whole.err
    few = run(*SMALL, "--objective", "npus", "--rate", "100/s")
    npus = few.err.split(" or --npus ")[1].strip()
    assert answer(run, "--objective", "npus", "--rate", "100/s", "--npus", npus)["plans"]


def test_spare_nodes(run):
    data = answer(run, "--spare-nodes", "2")
    assert data["npus"] == 64
    assert all(plan["npus"] <= 48 for plan in data["plans"])


def test_reuse_serves_more(run):
    rates = [answer(run, "--reuse", reuse)["plans"][0]["requests_per_s"] for reuse in ("0", "0.5")]
    assert rates[0] < rates[1]
    without = answer(run, "--reuse", "0.5", "--without", "caching")["plans"][0]
    assert without["requests_per_s"] == rates[0]


def test_max_concurrency(run):
    data = answer(run, "--max-concurrency", "100")
    assert all(plan["concurrency"] <= 100 * (1 + 1e-9) for plan in data["plans"])


def test_without_is_repeatable(run):
    words = ("--without", "mtp", "--without", "microbatch", "--without", "attention-tp")
    for plan in answer(run, *words)["plans"]:
        decode, prefill = plan["decode"], plan["prefill"]
        assert (decode["draft_tokens"], decode["microbatches"], decode["attention_tp"]) == (0, 1, 1)
        assert prefill["microbatches"] == 1
    for plan in answer(run, "--without", "redundancy")["plans"]:
        assert plan["decode"]["redundant_experts"] == plan["prefill"]["redundant_experts"] == 0


def test_kv_precision(run):
    assert {p["decode"]["kv_precision"] for p in answer(run, "--kv-precision", "int8")["plans"]} == {"int8"}
    both = answer(run, "--kv-precision", "bf16,int8")
    assert both["candidates"] > answer(run, "--kv-precision", "int8")["candidates"]


def test_frontier(run):
    points = answer(run, "--frontier")["frontier"]
    assert len(points) >= 2
    assert [p["tpot_s"] for p in points] == sorted(p["tpot_s"] for p in points)
    text = run(*SMALL, "--frontier").out
    assert text.count("TPOT") > run(*SMALL).out.count("TPOT")


def test_vary(run):
    result = run(*SMALL, "--vary", "tpot=10ms:50ms:20ms", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(result.out)))
    assert result.status == 0
    assert [row["value"] for row in rows] == ["10ms", "30ms", "50ms"]
    assert {row["varied"] for row in rows} == {"tpot"}
    text = run(*SMALL, "--vary", "tpot=1ms:50ms:49ms")
    assert text.status == 0
    assert "no plan because" in text.out
    none = run(*SMALL, "--vary", "tpot=1ms:2ms:1ms")
    assert none.status == 1


def test_the_answers_are_printed(run):
    out = run(*SMALL).out
    for line in ("binding constraint: ", "requests/s if: ", "runner-up: ", "weakest inputs, requests/s: "):
        assert line in out
    assert "HBM bandwidth +10 %" in out
    at_rate = run(*SMALL, "--objective", "npus", "--rate", "20/s", "--slo", "e2e=20s").out
    for words in (
        "binding constraint above that rate: ",
        "most requests/s of its NPUs if: ",
        "E2E ",
        " slack ",
    ):
        assert words in at_rate


# --- the context cache --------------------------------------------------------------------------------------


def test_a_sized_cache_is_told_and_explained(run):
    result = run(*SMALL, "--reuse-curve", str(EXAMPLES / "hit-rates.csv"), "--cache-nodes", "4")
    assert result.status == 0, result.err
    assert "context cache: 4 of at most 4 nodes lend 50% (D) of their 1.5 TB (D) of DRAM: 3 TB" in result.out
    assert "size set by capacity" in result.out
    assert "cache node +1 +" in result.out
    (command,) = [line for line in result.out.splitlines() if " cache_load " in line]
    assert ",reuse=0.365" in command
    explained = run(*shlex.split(command)[1:])
    assert explained.status == 0, explained.err
    assert "block_transfer_time" in explained.out


def test_a_cache_of_json_and_csv(run):
    options = ("--reuse", "0.8", "--cache-retention", "5min", "--cache-plane", "vpc")
    plan = answer(run, *options)["plans"][0]
    assert plan["prefill"]["reuse"] == plan["cache"]["hit_rate"] > 0
    assert plan["prefill"]["plane"] == "vpc"
    assert plan["cache"]["load_bytes_per_s"] < plan["cache"]["load_limit_bytes_per_s"]
    (row, *_) = csv.DictReader(io.StringIO(run(*SMALL, *options, "--format", "csv").out))
    assert int(row["cache_nodes"]) == plan["cache"]["nodes"]
    assert answer(run)["plans"][0]["cache"] is None


def test_vary_the_nodes_of_the_cache(run):
    options = ("--reuse-curve", str(EXAMPLES / "conversations.jsonl"), "--vary", "cache_nodes=0:2:1")
    out = run(*SMALL, *options).out
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["0", "1", "2"]
    assert "hit" in out.splitlines()[0]
    assert "hit" not in run(*SMALL, "--vary", "npus=32:64:32").out.splitlines()[0]


@pytest.mark.parametrize("limit", ["decode", "prefill"])
def test_the_command_below_a_plan_explains_that_plan(run, limit):
    """The precision of its cache and its reuse are named."""
    options = ["--kv-precision", "int8", "--reuse", "0.9"]
    options += ["--set", f"traffic.output_len={1024 if limit == 'decode' else 8}"]
    result = run(*SMALL[:4], *options, "--top", "1")
    commands = [line.strip() for line in result.out.splitlines() if line.startswith("  cm384 explain")]
    assert f"--phase {limit}" in commands[0]
    assert ("--set model.precision.kv=int8" if limit == "decode" else ",reuse=0.9") in commands[0]
    for command in commands:
        assert run(*shlex.split(command)[1:]).status == 0, command


def test_an_int8_cache_is_handed_over_in_half_the_time(run):
    bf16, int8 = (answer(run, *words)["plans"][0] for words in ((), ("--kv-precision", "int8")))
    assert int8["kv_transfer_s"] == pytest.approx(bf16["kv_transfer_s"] / 2, rel=2e-3)


BAD = {
    "curve and share": (("--reuse-curve", "x.csv", "--reuse", "0.5"), "reuse_curve goes with neither"),
    "no such curve": (("--reuse-curve", "nowhere.csv"), "cannot read 'nowhere.csv'"),
    "retention alone": (("--cache-retention", "10min"), "cache_retention needs reuse"),
    "nodes of no cache": (("--cache-nodes", "4"), "cache_nodes needs reuse_curve"),
    "unknown plane": (("--cache-plane", "rdam"), "cache_plane = 'rdam' is not known"),
    "cache of colocated": (
        ("--reuse", "0.5", "--cache-retention", "1min", "--serving", "colocated"),
        "serving colocated takes a context cache without a size",
    ),
    "broken counts": (("--vary", "spare_nodes=0:2:0.5"), "spare_nodes = 0.5 is no whole number"),
    "unknown objective": (("--objective", "throughptu"), "Did you mean 'throughput'?"),
    "npus without a rate": (("--objective", "npus"), "objective npus needs a rate"),
    "throughput with a rate": (("--rate", "120/s"), "objective throughput takes no rate"),
    "rate without a unit": (("--objective", "npus", "--rate", "120"), "needs a unit"),
    "rate of zero": (("--objective", "npus", "--rate", "0/s"), "rate = 0/s is out of bounds"),
    "rate of the wrong unit": (("--objective", "npus", "--rate", "5GB"), "measures bytes"),
    "all nodes spare": (("--spare-nodes", "8"), "spare_nodes = 8 is out of bounds"),
    "spare nodes no number": (("--spare-nodes", "x"), "--spare-nodes = 'x' is not a whole number"),
    "reuse of one": (("--reuse", "1"), "reuse = 1 is out of bounds"),
    "reuse no number": (("--reuse", "half"), "--reuse: 'half' is not a value"),
    "concurrency of zero": (("--max-concurrency", "0"), "max_concurrency = 0 is out of bounds"),
    "unknown choice": (("--without", "mpt"), "Did you mean 'mtp'?"),
    "unknown precision": (("--kv-precision", "int4"), "'int4' is not known"),
    "vary without a range": (("--vary", "tpot"), "is not NAME=START:STOP:STEP"),
    "vary a half range": (("--vary", "tpot=10ms:50ms"), "is no range"),
    "vary backwards": (("--vary", "tpot=50ms:10ms:5ms"), "is an empty range"),
    "vary the unknown": (("--vary", "tpto=10ms:50ms:5ms"), "unknown path 'tpto'"),
    "vary out of bounds": (("--vary", "spare_nodes=7:8:1"), "spare_nodes = 8 is out of bounds"),
}


@pytest.mark.parametrize(("arguments", "said"), BAD.values(), ids=BAD)
def test_one_clear_error(run, arguments, said):
    result = run(*SMALL, *arguments)
    assert (result.status, result.out) == (2, "")
    assert result.err.count("error: ") == 1, result.err
    assert said in result.err


def test_all_errors_at_once(run):
    result = run(
        *SMALL, "--top", "0", "--reuse", "2", "--without", "x", "--kv-precision", "y", "--rate", "1/s"
    )
    assert result.status == 2
    assert result.err.count("error: ") == 5


def test_serving_on_the_same_dies(run, monkeypatch):
    monkeypatch.setattr(colocated, "MAX_BATCH_PER_DIE", 16)
    alone = answer(run, "--serving", "colocated", "--top", "2")
    assert alone["plans"] == []
    assert alone["serving"] == "colocated"
    assert [plan["rank"] for plan in alone["colocated"]] == [1, 2]
    both = answer(run, "--serving", "both", "--top", "2")
    assert both["plans"]
    assert both["colocated"] == alone["colocated"]
    text = run(*SMALL, "--serving", "both").out
    assert text.split("\n\n")[1].startswith("instances that do both beside pools apart: ")
    command = next(line.split() for line in text.splitlines() if "--phase colocated" in line)
    assert run(*command[1:]).status == 0


def test_no_instance_that_does_both_keeps_the_limits(run):
    result = run("plan", WORKLOAD, "--npus", "16", "--serving", "colocated", "--slo", "tpot=2ms,ttft=2s")
    assert result.status == 1
    assert result.err.startswith("infeasible: tpot: ")
    assert result.err.count("hint: ") == 1


def test_all_layouts_serve_no_less(run, monkeypatch):
    monkeypatch.setattr(layouts, "MORE_TP", (1.0, 2.0))
    monkeypatch.setattr(layouts, "CONTEXT_PARALLEL", (0.0, 1.0))
    monkeypatch.setattr(layouts, "PIPELINE_STAGES", (1.0, 2.0))
    few, every = answer(run), answer(run, "--layouts", "all")
    assert every["candidates"] > few["candidates"]
    assert every["plans"][0]["requests_per_s"] >= few["plans"][0]["requests_per_s"] * (1 - 1e-3)
    for plan in few["plans"]:
        assert (plan["prefill"]["context_parallel"], plan["prefill"]["pipeline_stages"]) == (0, 1)
    text = run(*SMALL, "--layouts", "all").out
    command = next(line.split() for line in text.splitlines() if line.startswith("  cm384 explain"))
    assert run(*command[1:]).status == 0


@pytest.mark.parametrize(
    ("option", "word", "meant"), [("--serving", "colocate", "colocated"), ("--layouts", "al", "all")]
)
def test_unknown_words_are_refused(run, option, word, meant):
    result = run(*SMALL, option, word)
    assert result.status == 2
    assert f"Did you mean '{meant}'?" in result.err


def test_a_plan_of_both_phases_by_one_input(run, monkeypatch):
    monkeypatch.setattr(colocated, "MAX_BATCH_PER_DIE", 16)
    options = ("plan", WORKLOAD, "--npus", "16", "--serving", "colocated", "--vary", "tpot=2ms:72ms:35ms")
    result = run(*options)
    assert result.status == 0, result.err
    assert "tpot: no colocated deployment keeps 2 ms" in result.out
    assert " x EP" in result.out
    rates = [row["requests_per_s"] for row in csv_rows(run(*options, "--format", "csv").out)]
    assert rates[0] == ""
    assert float(rates[1]) < float(rates[2])


def test_both_ways_to_serve_are_rows_of_one_table(run, monkeypatch):
    monkeypatch.setattr(colocated, "MAX_BATCH_PER_DIE", 16)
    rows = csv_rows(run(*SMALL, "--serving", "both", "--format", "csv").out)
    ways = [row["serving"] for row in rows]
    assert sorted(set(ways)) == ["colocated", "disaggregated"]
    for row in rows:
        apart = row["serving"] == "disaggregated"
        assert (row["decode_ep"] != "", row["ep"] == "") == (apart, apart)
        assert float(row["requests_per_s"]) > 0


def csv_rows(text):
    return list(csv.DictReader(text.splitlines()))


@pytest.mark.parametrize(
    "options",
    [
        ("--hardware", "b200", "--engine", "deepseek-h800", "--npus", "32", "--layouts", "all"),
        ("--hardware", "atlas-800i-a2-910b4-1", "--npus", "128", "--scale-out", "--reuse", "0.5"),
        ("--npus", "32", "--serving", "colocated", "--reuse", "0.5", "--kv-precision", "int8"),
    ],
    ids=["usual attention TP", "beyond one network", "colocated"],
)
def test_every_command_that_is_printed_runs_and_is_of_the_plan(run, tmp_path, options):
    text = (data_root() / "workloads" / "qwen3-32b-4k-1k.toml").read_text(encoding="utf-8")
    workload = tmp_path / "mine.toml"
    workload.write_text(text.replace('"qwen3-32b"', '"llama-3.1-70b"'), encoding="utf-8")
    asked = ("plan", str(workload), *options, "--slo", "tpot=60ms,ttft=20s")
    printed = run(*asked).out.splitlines()
    plan = json.loads(run(*asked, "--format", "json").out)
    commands = [shlex.split(line)[1:] for line in printed if line.startswith("  cm384 explain")]
    assert commands
    for command in commands:
        assert run(*command).status == 0
        words = [word for word in command[1:] if word != "cache_load"]
        found = json.loads(run("predict", *words, "--format", "json").out)
        pool = plan["colocated"][0] if found["phase"] == "colocated" else plan["plans"][0][found["phase"]]
        assert found["memory"]["free_bytes"] == pytest.approx(pool["free_bytes"], rel=1e-9)


def test_reuse_is_a_share_or_per_cent(run):
    a, b = (run("plan", "deepseek-r1-4k-256", "--npus", "64", "--reuse", text).out for text in ("0.5", "50%"))
    lines = [[line for line in out.splitlines() if "candidates in" not in line] for out in (a, b)]
    assert lines[0] == lines[1]


@pytest.mark.parametrize(("text", "said"), [("lots", "--reuse: "), ("150%", "reuse = 1.5 is out of bounds")])
def test_a_share_that_is_none(run, text, said):
    result = run("plan", "deepseek-r1-4k-256", "--npus", "64", "--reuse", text)
    assert result.status == 2
    assert said in result.err


def test_where_pools_do_not_fit_instances_that_do_both_are_named(run):
    machine = ("deepseek-r1-4k-256", "--hardware", "atlas-800i-a3", "--npus", "8")
    refused = run("plan", *machine)
    assert refused.status == 1
    rate = refused.err.partition("--serving colocated serves ")[2].split()[0]
    served = json.loads(run("plan", *machine, "--serving", "colocated", "--format", "json").out)
    assert f"{served['colocated'][0]['requests_per_s']:.4g}" == rate
    tight = run("plan", *machine, "--slo", "tpot=1ms")
    assert "colocated" not in tight.err
