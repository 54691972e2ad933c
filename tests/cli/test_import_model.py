"""``cm384 import-model`` and ``cm384 list models``."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

CONFIGS = Path(__file__).parents[1] / "specs" / "configs"
GLM = CONFIGS / "glm-4.5.json"


def test_a_model_file_that_plans(run, tmp_path):
    target = tmp_path / "models" / "mine.toml"
    target.parent.mkdir()
    result = run("import-model", CONFIGS / "qwen3-30b-a3b.json", "-o", target, "--quantisation", "w8a8")
    assert result.status == 0
    assert result.err == ""
    assert result.out.startswith("mine: gqa-moe, 30.53 G parameters, 3.042 G active\n")
    assert "num_key_value_heads" in result.out
    workload = tmp_path / "traffic.toml"
    shipped = Path(__file__).parents[2] / "workloads" / "deepseek-r1-4k-256.toml"
    workload.write_text(shipped.read_text().replace('model = "deepseek-r1"', 'model = "mine"'))
    predicted = run("predict", workload, "--at", "ep=16,batch_per_die=8", "--format", "json")
    assert predicted.status == 0
    assert json.loads(predicted.out)["tpot_s"] > 0


def test_without_a_file_the_model_is_printed(run):
    result = run("import-model", GLM)
    assert result.status == 0
    assert tomllib.loads(result.out)["name"] == "glm-4.5"
    assert "key without effect" in result.err


def test_report_in_json_and_csv(run, tmp_path):
    target = tmp_path / "m.toml"
    data = json.loads(run("import-model", GLM, "-o", target, "--format", "json").out)
    assert data["family"] == "gqa-moe"
    assert data["used"]["n_routed_experts"] == "architecture.routed_experts"
    assert data["unmapped"] == []
    rows = run("import-model", GLM, "-o", target, "--format", "csv").out.splitlines()
    assert rows[0] == "key,outcome,meaning"


def test_a_refused_config_writes_nothing(run, tmp_path):
    target = tmp_path / "m.toml"
    result = run("import-model", CONFIGS / "qwen3-next-80b-a3b.json", "-o", target)
    assert result.status == 2
    assert result.out == ""
    assert result.err.startswith("error: not modelled: Qwen3NextForCausalLM: linear attention")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written(run, tmp_path):
    result = run("import-model", GLM, "-o", tmp_path / "none" / "m.toml")
    assert result.status == 2
    assert "cannot write" in result.err


@pytest.mark.parametrize("name", ["config.json", "other.json"])
def test_the_name_comes_from_the_folder_or_the_file(run, tmp_path, name):
    folder = tmp_path / "My Model"
    folder.mkdir()
    (folder / name).write_text(GLM.read_text())
    printed = tomllib.loads(run("import-model", folder / name).out)
    assert printed["name"] == ("my-model" if name == "config.json" else "other")


def test_list_models(run):
    rows = {row["name"]: row for row in json.loads(run("list", "models", "--format", "json").out)}
    assert len(rows) >= 13
    r1 = rows["deepseek-r1"]
    assert r1["kv_bytes_per_token"] == 70272
    assert r1["smallest_npus"] == 8
    assert r1["total_parameters"] == pytest.approx(671e9, rel=0.001)
    assert rows["qwen3-8b"]["smallest_npus"] == 1
