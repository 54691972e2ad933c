from __future__ import annotations

import csv
import functools
import io
import itertools
import json
import math
import shlex
from pathlib import Path

import pytest

from cm384model import api
from cm384model.report.listing import KINDS
from cm384model.specs.catalogue import names
from cm384model.specs.deployment import OPERATOR_FIELDS

WORKLOAD = "deepseek-r1-4k-256"
DECODE = ("--at", "ep=320,batch_per_die=48", "--at", "microbatches=2,draft_tokens=1")
PREFILL = ("--phase", "prefill", "--at", "ep=32,tokens_per_npu=16384")
COMMANDS = {
    "plan": ("plan", WORKLOAD),
    "plan none": ("plan", WORKLOAD, "--slo", "tpot=5ms"),
    "decode": ("predict", WORKLOAD, *DECODE),
    "prefill": ("predict", WORKLOAD, *PREFILL),
    "too large": ("predict", WORKLOAD, "--at", "ep=16,batch_per_die=96"),
    "fit": ("fit", WORKLOAD),
    "fit none": ("fit", WORKLOAD, "--npus", "8"),
    "fit prefill": ("fit", WORKLOAD, "--phase", "prefill"),
    "compare": ("compare", WORKLOAD, *DECODE, "--at-b", "batch_per_die=96"),
    "compare prefill": ("compare", WORKLOAD, *PREFILL, "--at-b", "microbatches=1"),
    "compare plans": ("compare", WORKLOAD, "--plan", "--npus", "64", "--slo-b", "tpot=30ms"),
    "explain": ("explain", WORKLOAD, *DECODE),
    "explain experts": ("explain", WORKLOAD, *DECODE, "experts"),
    "explain draft_layers": ("explain", WORKLOAD, *DECODE, "draft_layers"),
    "explain prefill": ("explain", WORKLOAD, *PREFILL, "dense_layers"),
    "explain sensitivity": ("explain", WORKLOAD, *DECODE, "--sensitivity"),
    "explain sensitivity prefill": ("explain", WORKLOAD, *PREFILL, "--sensitivity"),
    "validate": ("validate",),
    "validate all": ("validate", "--all"),
    "calibrate": ("calibrate", "--stage", "swiglu", "--stage", "gqa_prefill"),
    **{f"op {name}": ("op", name) for name in OPERATOR_FIELDS},
    **{f"list {kind}": ("list", kind) for kind in KINDS},
}
EVERY_COMMAND = pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)


@pytest.fixture(autouse=True, scope="module")
def one_validation():
    """The shipped rows are predicted once for all forms of their report."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "validate", functools.cache(api.validate))
        yield


@EVERY_COMMAND
def test_tables_are_plain_and_fit_120_columns(run, arguments):
    result = run(*arguments)
    assert result.status == (1 if result.err else 0)
    lines = [line for line in result.out.splitlines() if not line.startswith("  cm384 ")]
    assert max(map(len, lines)) <= 120
    assert not set(result.out) & set("─│┃━╭╮\x1b")
    assert result.out.endswith("\n")


@EVERY_COMMAND
def test_json_is_strict(run, arguments):
    def refuse(word: str) -> None:
        raise AssertionError(word)

    json.loads(run(*arguments, "--format", "json").out, parse_constant=refuse)


@EVERY_COMMAND
def test_csv_rows_are_complete(run, arguments):
    rows = list(csv.DictReader(io.StringIO(run(*arguments, "--format", "csv").out)))
    for row in rows:
        assert None not in row
        assert None not in row.values()
        assert not {"nan", "inf", "-inf"} & set(row.values())


@EVERY_COMMAND
def test_markdown_tables_have_equal_rows(run, arguments):
    lines = run(*arguments, "--format", "markdown").out.splitlines()
    for first, second in itertools.pairwise(lines):
        if first.startswith("| ") and second.startswith("| "):
            assert first.replace("\\|", "").count("|") == second.replace("\\|", "").count("|")


def load(run, *arguments: str):
    return json.loads(run(*arguments, "--format", "json").out)


def test_plan_json_has_the_agreed_names(run):
    data = load(run, "plan", WORKLOAD)
    assert {"schema", "feasible", "reasons", "plans", "candidates", "elapsed_s"} <= set(data)
    assert data["schema"] == 1
    assert data["candidates"] >= 500_000
    assert [plan["rank"] for plan in data["plans"]] == [1, 2, 3, 4, 5]
    plan = data["plans"][0]
    assert {
        "decode",
        "prefill",
        "tpot_s",
        "ttft_s",
        "requests_per_s",
        "throughput_tokens_per_s_per_npu",
        "concurrency",
        "bound_by",
    } <= set(plan)
    pool = {"ep", "microbatches", "instances", "npus"}
    assert pool | {"batch_per_die", "draft_tokens"} <= set(plan["decode"])
    assert pool | {"tokens_per_npu"} <= set(plan["prefill"])
    assert all(isinstance(plan["decode"][name], int) for name in pool)


def test_predict_json_has_the_agreed_names(run):
    decode, prefill = load(run, "predict", WORKLOAD, *DECODE), load(run, "predict", WORKLOAD, *PREFILL)
    common = {"schema", "feasible", "reasons", "throughput_tokens_per_s_per_npu", "terms", "memory"}
    assert common | {"tpot_s", "step_time_s", "layer_time_s"} <= set(decode)
    assert common | {"batch_time_s"} <= set(prefill)
    ledger = {"capacity", "weights", "kv_cache", "buffers", "reserve", "free"}
    for data, total in ((decode, "step_time_s"), (prefill, "batch_time_s")):
        assert "raw_terms" not in data
        assert {frozenset(term) for term in data["terms"]} == {
            frozenset(("name", "time_s", "flop", "bytes", "bound"))
        }
        summed = sum(term["time_s"] for term in data["terms"])
        assert math.isclose(summed - data["hidden_time_s"], data[total])
        assert {f"{name}_bytes" for name in ledger} <= set(data["memory"])


def test_the_memory_ledger_closes_and_its_parts_stand_under_the_right_sum(run):
    for arguments in (DECODE, PREFILL):
        lines = run("predict", WORKLOAD, *arguments).out.split("memory of a die")[1].splitlines()[1:]
        sums: dict[str, float] = {}
        head = ""
        for line in lines:
            name, size, *_ = line.split()
            if line.startswith("  "):
                sums[head] -= float(size)
            else:
                head, sums[name] = name, float(size)
        assert abs(sums["weights"]) < 0.01
        assert abs(sums["buffers"]) < 0.01


def test_op_json_has_the_agreed_names(run):
    data = load(run, "op", "dispatch", "--at", "ep=256,tokens_per_die=128")
    assert {"time_s", "flop", "bytes", "bound", "efficiency"} <= set(data)
    assert "raw_term" not in data
    assert all(number["source"] for number in data["efficiency"])


def test_infeasible_json_goes_to_stdout(run):
    result = run("plan", WORKLOAD, "--slo", "tpot=5ms", "--format", "json")
    data = json.loads(result.out)
    assert (result.status, data["feasible"], data["plans"]) == (1, False, [])
    assert data["reasons"]


def test_csv_names_carry_units_and_pools(run):
    (row, *_) = csv.DictReader(io.StringIO(run("plan", WORKLOAD, "--format", "csv").out))
    assert {"rank", "decode_ep", "prefill_instances", "tpot_s", "requests_per_s"} <= set(row)


@pytest.mark.parametrize("workload", names("workload"))
@pytest.mark.parametrize("npus", ["64", "384"])
def test_the_plan_can_be_explained_by_the_command_it_prints(run, workload, npus):
    out = run("plan", workload, "--npus", npus, "--top", "20", "--set", "die.hbm_bandwidth=1.7TB/s").out
    assert max(len(line) for line in out.splitlines() if not line.startswith("  cm384 ")) <= 120
    command = shlex.split(out.strip().splitlines()[-1])
    assert command[0] == "cm384"
    assert "die.hbm_bandwidth=1.7TB/s" in command
    explained = run(*command[1:])
    assert (explained.status, explained.err) == (0, "")
    following = shlex.split(explained.out.strip().splitlines()[-1])
    assert run(*following[1:]).status == 0


def test_explain_shows_formula_operands_source_and_share(run):
    out = run("explain", WORKLOAD, *DECODE, "dispatch").out
    for words in (
        "dispatch: ",
        "% of the sum of all terms",
        "t = α + (E - 1) α_p",
        "hardware.ops.cann_ep_dispatch.floor",
        "fitted",
        "zuo2025: Serving Large Language Models on Huawei CloudMatrix384",
    ):
        assert words in out


def test_a_setting_is_marked_as_such(run):
    out = run("op", "gemm", "--set", "ops.gemm_int8.efficiency=0.8").out
    (line,) = [line for line in out.splitlines() if line.startswith("ops.gemm_int8.efficiency")]
    assert line.split()[1:] == ["0.8", "-", "D", "command", "line"]


@pytest.mark.parametrize("suffix", [".json", ".csv", ".md", ".txt"])
def test_the_suffix_of_the_output_chooses_the_format(run, tmp_path, suffix):
    form = {".json": "json", ".csv": "csv", ".md": "markdown", ".txt": "table"}[suffix]
    path = tmp_path / f"units{suffix}"
    result = run("list", "units", "-o", str(path))
    assert (result.status, result.out, result.err) == (0, "", "")
    assert path.read_text() == run("list", "units", "--format", form).out


def test_format_wins_over_the_suffix(run, tmp_path):
    path = tmp_path / "units.data"
    assert run("list", "units", "-o", str(path), "--format", "json").status == 0
    assert json.loads(path.read_text())


def test_a_failed_write_leaves_the_old_file_and_no_other(run, tmp_path, monkeypatch):
    path = tmp_path / "units.json"
    path.write_text("old")

    def fail(self: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    result = run("list", "units", "-o", str(path))
    assert (result.status, result.out) == (2, "")
    assert "No space left on device" in result.err
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["units.json"]


def test_a_device_is_written_and_not_replaced(run):
    assert run("list", "units", "-o", "/dev/null", "--format", "json").status == 0
    assert not Path("/dev/null").is_file()


def test_permissions_of_a_replaced_file_stay(run, tmp_path):
    path = tmp_path / "units.json"
    path.write_text("old")
    path.chmod(0o640)
    run("list", "units", "-o", str(path))
    assert path.stat().st_mode & 0o777 == 0o640
