"""``--model``: another model under the traffic of a workload."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

W = "deepseek-r1-4k-256"
AT = ("--at", "ep=64,batch_per_die=8")
COMMANDS = {
    "predict": (W, *AT),
    "explain": (W, *AT),
    "fit": (W, "--at", "ep=64"),
    "plan": (W, "--npus", "64"),
}


@pytest.fixture
def model(run, tmp_path):
    """A model file of the user's."""
    path = tmp_path / "mine.toml"
    run("import-model", "docs/examples/config.json", "-o", str(path), "--quantisation", "w8a8")
    return str(path)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_report_names_the_model_and_the_traffic(run, model, command):
    out = run(command, *COMMANDS[command], "--model", model).out
    assert out.startswith(f"mine at {W} on cloudmatrix384")


def test_a_model_of_a_workload_needs_no_word(run):
    assert run("predict", W, *AT, "--model", "deepseek-r1").out.startswith(f"{W} on cloudmatrix384")


def test_it_is_the_model_that_a_workload_would_name(run, model, tmp_path):
    traffic = tmp_path / "traffic.toml"
    text = Path(f"workloads/{W}.toml").read_text()
    traffic.write_text(text.replace('model = "deepseek-r1"', 'model = "./mine.toml"'))
    named = json.loads(run("predict", str(traffic), *AT, "--format", "json").out)
    assert json.loads(run("predict", W, *AT, "--model", model, "--format", "json").out) == named


def test_the_command_below_a_plan_names_it(run, model):
    out = run("plan", W, "--npus", "64", "--model", model).out
    (command,) = [line.split() for line in out.splitlines() if line.startswith("  cm384 explain")]
    assert command[2:5] == [W, "--model", model]
    assert run(*command[1:]).status == 0


def test_both_sides_of_a_comparison(run, model):
    data = json.loads(run("compare", W, *AT, "--model-b", model, "--format", "json").out)
    assert (data["a"]["model"], data["b"]["model"]) == ("deepseek-r1", "mine")


def test_operators_take_its_sizes(run):
    a, b = (
        json.loads(run("op", "dispatch", "--model", name, "--format", "json").out)["operands"]
        for name in ("deepseek-r1", "qwen3-235b-a22b")
    )
    assert (a["message_bytes"], b["message_bytes"]) == (7680, 4608)


def test_a_sweep_takes_one_or_has_them_as_an_axis(run):
    grid = ("--grid", "ep=64", "--at", "batch_per_die=8", "--format", "csv")
    one = run("sweep", W, *grid, "--model", "kimi-k2").out.splitlines()[-1]
    both = run("sweep", W, *grid, "--grid", "model=deepseek-r1,kimi-k2").out.splitlines()[-1]
    assert both.endswith(one)
    refused = run("sweep", W, *grid, "--model", "kimi-k2", "--grid", "model=deepseek-r1,kimi-k2")
    assert refused.status == 2
    assert "model is an axis and given with --model" in refused.err


def test_an_unknown_model_is_said(run):
    result = run("predict", W, *AT, "--model", "kimi-k3")
    assert result.status == 2
    assert "no model 'kimi-k3'. Did you mean 'kimi-k2'?" in result.err


def test_a_setting_that_names_a_model_leads_here(run):
    result = run("predict", W, *AT, "--set", "workload.model=kimi-k2")
    assert result.status == 2
    assert "'workload.model' is a whole file, not one of its values" in result.err
    assert "--model NAME|FILE" in result.err
