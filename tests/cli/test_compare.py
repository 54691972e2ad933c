from __future__ import annotations

import csv
import io
import json
import math

import pytest

from cm384model.prediction.compare import WHOLE

A, B = "deepseek-r1-4k-256", "deepseek-r1-1k-1k"
AT = ("--at", "ep=320,batch_per_die=48,microbatches=2")
FP8 = ("--set-b", "model.precision.weights=fp8", "--set-b", "model.precision.activations=fp8")
CASES = {
    "deployments": (A, *AT, "--at-b", "ep=144"),
    "workloads": (A, B, *AT),
    "loads": (A, "--at", "ep=144,batch_per_die=48", "--at-b", "batch_per_die=96,draft_tokens=1"),
    "engines": (A, *AT, "--engine-b", "cann-recipes"),
    "machines": (
        A,
        "--at",
        "ep=144,batch_per_die=48",
        "--hardware-b",
        "h800",
        "--engine-b",
        "deepseek-h800",
        *FP8,
    ),
    "numbers": (A, *AT, "--set-b", "die.hbm_bandwidth=3.2TB/s"),
    "prefill": (A, "--phase", "prefill", "--at", "ep=32,tokens_per_npu=16384", "--at-b", "microbatches=1"),
    "colocated": (A, "--phase", "colocated", "--at", "ep=64,batch_per_die=16", "--at-b", "batch_per_npu=64"),
    "runs": (
        A,
        *("--phase", "colocated", "--at", "ep=64,concurrency=512,prompts=2048"),
        *("--at-b", "concurrency=1024,draft_tokens=1"),
    ),
    "too small": (A, "--at", "ep=32,batch_per_die=8", "--at-b", "ep=16"),
    "plans": (A, B, "--plan", "--npus", "64"),
    "plans of two limits": (A, "--plan", "--npus", "64", "--slo-b", "tpot=30ms"),
    "plans, one impossible": (A, "--plan", "--npus", "64", "--slo-b", "tpot=5ms"),
}
EVERY_CASE = pytest.mark.parametrize("arguments", CASES.values(), ids=CASES)
PREDICTED = [name for name in CASES if not name.startswith(("plans", "too"))]


@EVERY_CASE
def test_tables_are_plain_and_fit_120_columns(run, arguments):
    result = run("compare", *arguments)
    assert result.status == (1 if result.err else 0)
    assert max(map(len, result.out.splitlines())) <= 120
    assert "None" not in result.out


@EVERY_CASE
def test_json_and_csv(run, arguments):
    data = json.loads(run("compare", *arguments, "--format", "json").out)
    assert data["schema"] == 1
    assert data["differences"]
    rows = list(csv.DictReader(io.StringIO(run("compare", *arguments, "--format", "csv").out)))
    assert bool(rows) == data["feasible"]
    for row in rows:
        assert None not in row.values()


@pytest.mark.parametrize("name", PREDICTED)
def test_both_sides_are_those_of_predict(run, name):
    arguments = CASES[name]
    data = json.loads(run("compare", *arguments, "--format", "json").out)
    phase = data["phase"]
    total = WHOLE[phase][1]
    a, b = (data[side]["prediction"] for side in "ab")
    words = [word for word in arguments[1:] if word != B]
    first = words[: next((i for i, word in enumerate(words) if word.endswith("-b")), len(words))]
    assert json.loads(run("predict", A, *first, "--format", "json").out) == a
    figures = {figure["name"]: figure for figure in data["figures"]}
    assert figures[total]["ratio"] == pytest.approx(b[total] / a[total])
    shares = [term["share"] for term in data["terms"]]
    differences = [term["difference_s"] for term in data["terms"]]
    assert math.isclose(sum(differences), b[total] - a[total], rel_tol=1e-9, abs_tol=1e-12)
    assert sum(shares) == pytest.approx(1)
    assert data["main_term"] == max(data["terms"], key=lambda term: term["share"])["name"]
    for side, prediction in (("a", a), ("b", b)):
        cost = sum(term[side]["npu_time_s"] for term in data["terms"])
        assert cost == pytest.approx(1 / prediction["throughput_tokens_per_s_per_npu"])
        for term, own in zip(data["terms"], prediction["terms"], strict=False):
            assert (term["name"], term[side]["time_s"]) == (own["name"], own["time_s"])


@pytest.mark.parametrize("name", PREDICTED)
def test_the_ledger_of_both_sides_closes(run, name):
    ledger = json.loads(run("compare", *CASES[name], "--format", "json").out)["ledger"]
    sizes = [sum(part[side] for part in ledger) for side in "ab"]
    assert sizes[0] == pytest.approx(64e9)
    assert sizes[1] == pytest.approx(80e9 if name == "machines" else 64e9)


def test_what_is_said_of_b_replaces_what_is_said_of_both(run):
    def differences(*options: str) -> dict[str, tuple[object, object]]:
        data = json.loads(run("compare", A, *options, "--format", "json").out)
        return {figure["name"]: (figure["a"], figure["b"]) for figure in data["differences"]}

    assert differences("--at", "ep=32,batch_per_die=8", "--at-b", "batch_per_npu=8") == {
        "batch_per_die": (8, 4)
    }
    at = ("--at", "ep=32,batch_per_die=8,balance=perfect")
    assert differences(*at, "--at-b", "imbalance=2") == {"imbalance": (1, 2)}
    two = ("--set", "die.hbm_bandwidth=1.7TB/s", "--set-b", "die.hbm_bandwidth=1.8TB/s")
    assert differences(*at, *two) == {"hardware.die.hbm_bandwidth": ("1.7 TB/s", "1.8 TB/s")}
    assert differences(*at, "--set-b", "model.precision.kv=int8") == {"model.precision.kv": ("bf16", "int8")}


def test_the_sentence_names_the_largest_term(run):
    out = run("compare", A, "--at", "ep=144,batch_per_die=48", "--at-b", "kv_len=131000,batch_per_die=2").out
    assert "; most of it: " in out
    longer = run("compare", A, "--at", "ep=144,batch_per_die=2", "--at-b", "kv_len=131000").out
    (line,) = [line for line in longer.splitlines() if "most of it" in line]
    assert line.startswith("B's step is ")
    assert "longer; most of it: attention_core +" in line


def test_a_side_that_does_not_fit_shows_memory_and_no_times(run):
    result = run("compare", *CASES["too small"])
    assert result.status == 1
    assert result.err.startswith("infeasible: B: hbm: ")
    assert "hint: cm384 fit says what would fit" in result.err
    assert "memory of a die" in result.out
    assert "A [ms]" not in result.out


def test_plans_are_those_of_plan(run):
    data = json.loads(run("compare", *CASES["plans"], "--format", "json").out)
    for side, workload in (("a", A), ("b", B)):
        plan = json.loads(run("plan", workload, "--npus", "64", "--top", "1", "--format", "json").out)[
            "plans"
        ][0]
        figures = {figure["name"]: figure[side] for figure in data["figures"]}
        for name in ("requests_per_s", "tpot_s", "ttft_s", "npus", "dies"):
            assert figures[name] == plan[name]


def test_limits_of_b_alone_leave_the_others(run):
    arguments = ("compare", A, "--plan", "--npus", "64", "--slo", "tpot=30ms")
    data = json.loads(run(*arguments, "--slo-b", "ttft=2s", "--format", "json").out)
    assert [(f["name"], f["a"], f["b"]) for f in data["differences"]] == [("ttft_s", 5.0, 2.0)]
    data = json.loads(run(*arguments, "--slo-b", "e2e=8s", "--format", "json").out)
    assert [(f["name"], f["a"], f["b"]) for f in data["differences"]] == [("e2e_s", None, 8.0)]


BAD = {
    "the same": ((A, *AT), "A and B are the same"),
    "the same twice": ((A, A, "--plan", "--npus", "64"), "A and B are the same"),
    "no deployment": ((A, B), "needs ep and batch_per_die"),
    "unknown workload": ((A, "deepseek-r1-1k-1", *AT), "Did you mean 'deepseek-r1-1k-1k'?"),
    "unknown engine": ((A, *AT, "--engine-b", "vllm"), "no engine 'vllm'"),
    "unknown name of b": ((A, *AT, "--at-b", "epp=32"), "Did you mean 'ep'?"),
    "phase mismatch": (
        (A, *AT, "--at-b", "tokens_per_npu=4096"),
        "a decode deployment has no 'tokens_per_npu'",
    ),
    "prefill with a decode name": (
        (A, "--phase", "prefill", *AT),
        "a prefill deployment has no 'batch_per_die'",
    ),
    "deployment with plan": ((A, B, "--plan", *AT), "--at with --plan"),
    "limits without plan": ((A, *AT, "--slo-b", "tpot=30ms"), "--slo-b without --plan"),
    "unknown option": ((A, *AT, "--atb", "ep=32"), "no option '--atb'"),
    "constant that B lacks": ((A, *AT, "--hardware-b", "h800"), "error: B: h800 has no"),
    "a setting that helps B": ((A, *AT, "--hardware-b", "h800"), "--set-b model.precision.weights=fp8"),
    "unknown path of b": ((A, *AT, "--set-b", "die.hbm=3"), "error: B: --set-b die.hbm=3: unknown path"),
}


@pytest.mark.parametrize(("arguments", "said"), BAD.values(), ids=BAD)
def test_bad_input_is_one_clear_error(run, arguments, said):
    result = run("compare", *arguments)
    assert (result.status, result.out) == (2, "")
    assert "error: " in result.err
    assert said in result.err
