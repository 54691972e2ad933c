"""A row of a sweep is the prediction of its deployment, to the last bit."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import cm384model
from cm384model.prediction.case import load_case
from cm384model.prediction.evaluate import predict_decode, predict_prefill
from cm384model.prediction.evaluate_colocated import predict_colocated
from cm384model.specs.catalogue import data_root
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.quantity import Quantity
from cm384model.specs.spec import node_at, quantity_paths
from cm384model.sweeping.evaluate import MEMORY_COLUMNS

WORKLOAD = "deepseek-r1-4k-256"
SAMPLE = 60

DECODE_GRID = {
    "ep": "2:800:31",
    "batch_per_die": "1:120:7",
    "kv_len": "1K:128K:x3",
    "draft_tokens": "0:3",
    "acceptance": "0.1:0.9:n3",
    "balance": "eplb,none,perfect",
    "microbatches": "1,2",
    "redundant_experts": "0,32,100",
}
PREFILL_GRID = {
    "ep": "2:800:31",
    "tokens_per_npu": "1K:64K:x2",
    "prompt_len": "1K:16K:x4",
    "reuse": "0:0.9:0.3",
    "microbatches": "1,2",
    "plane": "ub,vpc",
}
COLOCATED_GRID = {
    "ep": "2:800:62",
    "concurrency": "16:4K:x4",
    "output_len": "128,1024",
    "prompt_len": "1K:16K:x4",
    "tokens_per_npu": "1K:16K:x4",
    "draft_tokens": "0,2",
    "prompts": "100,10K",
    "microbatches": "1,2",
    "prefill_microbatches": "1,2",
    "plane": "ub,local",
}
GRIDS = {"decode": DECODE_GRID, "prefill": PREFILL_GRID, "colocated": COLOCATED_GRID}
LOADS = {
    "decode": {"ep": "32,320", "batch_per_die": "8"},
    "prefill": {"ep": "32", "tokens_per_npu": "8K"},
    "colocated": {"ep": "32,64", "batch_per_npu": "4", "tokens_per_npu": "4K"},
}
PREDICT = {"decode": predict_decode, "prefill": predict_prefill, "colocated": predict_colocated}


def check(case, phase, row, at):
    """Compare one row with the prediction of its deployment."""
    try:
        expected = PREDICT[phase](case, at)
    except SpecError:
        assert not row["feasible"]
        assert row["reasons"] is not None
        assert row["throughput_tokens_per_s_per_npu"] is None
        return
    assert row["feasible"] == expected.feasible, (row, at)
    for name, value in row.items():
        if name in MEMORY_COLUMNS:
            assert value == getattr(expected.memory, name), name
        elif name == "reasons":
            assert (value is None) == expected.feasible
        elif hasattr(expected, name) and name != "feasible" and name not in at:
            assert value == getattr(expected, name), name
        elif name.removesuffix("_time_s") in {term.name for term in expected.terms}:
            assert value == next(t.time_s for t in expected.terms if t.name == name.removesuffix("_time_s"))


@pytest.mark.parametrize(("phase", "grid"), GRIDS.items())
def test_a_random_sample_agrees_exactly(study, rows, case, phase, grid):
    found = rows(study(grid, phase=phase, keep="all", columns="all"))
    sample = (
        found.sample(SAMPLE, seed=7).to_dicts() + found.filter("feasible").sample(SAMPLE, seed=8).to_dicts()
    )
    assert sum(row["feasible"] for row in sample) > SAMPLE
    for row in sample:
        check(case, phase, row, {name: row[name] for name in grid})


@pytest.mark.parametrize("phase", LOADS)
def test_every_number_of_every_file_can_be_an_axis(study, rows, case, phase):
    """One sweep per number, two values each; the second is checked against ``--set``."""
    load = LOADS[phase]
    count = 0
    for kind in ("hardware", "engine", "model", "workload"):
        spec = getattr(case, kind)
        for path in quantity_paths(spec):
            node = node_at(spec, path)
            assert isinstance(node, Quantity)
            if path.split(".")[0] in spec.not_settable or (path.startswith("ops.") and count % 7):
                count += 1
                continue
            count += 1
            unit = "" if node.unit in ("-", "1", "tokens") else node.unit
            other = node.value * 2 if node.dimension != "number" or node.value >= 1 else node.value / 2
            name = f"{kind}.{path}"
            grid = {name: f"{node.value!r}{unit},{other!r}{unit}" if other else f"{node.value!r}{unit}"}
            try:
                found = rows(study(grid | load, phase=phase, keep="all", columns="default,terms,memory"))
            except SpecError as error:  # out of the bounds of that number
                assert "must be" in error.render() or "is out of bounds" in error.render(), error.render()
                continue
            row = found.to_dicts()[-1]
            changed = load_case(WORKLOAD, settings=[f"{name}={other!r}{unit}"] if other else [])
            check(changed, phase, row, {key: row[key] for key in load})
    assert count > 100


def test_words_and_whole_files_can_be_axes(study, rows):
    grid = {"model.precision.kv": "bf16,int8", "ep": "32,64", "batch_per_die": "8,48"}
    found = rows(study(grid, keep="all", columns="all"))
    for row in found.to_dicts():
        changed = load_case(WORKLOAD, settings=[f"model.precision.kv={row['model.precision.kv']}"])
        check(changed, "decode", row, {name: row[name] for name in ("ep", "batch_per_die")})
    grid = {"engine": "cloudmatrix-infer,cann-recipes", "workload": f"{WORKLOAD},deepseek-r1-1k-1k"} | {
        "ep": "32,64",
        "batch_per_die": "8,48",
    }
    found = rows(study(grid, keep="all", columns="all"))
    assert len(found) == 16
    for row in found.to_dicts():
        changed = load_case(row["workload"], engine=row["engine"])
        check(changed, "decode", row, {name: row[name] for name in ("ep", "batch_per_die")})


def test_machines_are_compared(study, rows, folder):
    text = (data_root() / "hardware" / "cloudmatrix384.toml").read_text("utf-8")
    changed = text.replace('name = "cloudmatrix384"', 'name = "faster"').replace(
        "value = 1600", "value = 3200"
    )
    (folder / "faster.toml").write_text(changed)
    grid = {"hardware": "cloudmatrix384,faster.toml", "ep": "32,64", "batch_per_die": "8"}
    found = rows(study(grid, columns="axes,tpot_s"))
    assert found["hardware"].to_list() == ["cloudmatrix384"] * 2 + ["faster.toml"] * 2
    for row in found.to_dicts():
        machine = load_case(WORKLOAD, hardware=row["hardware"])
        check_tpot = predict_decode(machine, {"ep": row["ep"], "batch_per_die": 8}).tpot_s
        assert row["tpot_s"] == check_tpot


def test_a_machine_that_lacks_a_kernel_is_named_before_anything_is_written(study):
    with pytest.raises(SpecError, match=r"at hardware=h800: h800 has no product in int8"):
        study({"hardware": "cloudmatrix384,h800", "ep": "32", "batch_per_die": "8"})


def test_batch_per_npu_is_batch_per_die_twice(study, rows):
    found = rows(study({"ep": "320", "batch_per_npu": "96"}))
    assert found["tpot_s"].to_list() == rows(study({"ep": "320", "batch_per_die": "48"}))["tpot_s"].to_list()


def test_limits_are_masks(study, rows):
    grid = {"ep": "32,320", "batch_per_die": "1:96"}
    every = rows(study(grid, keep="all", columns="all"))
    within = rows(study(grid, slo="tpot=50ms"))
    expected = every.filter(pl.col("feasible") & (pl.col("tpot_s") <= 0.05))
    assert within["tpot_s"].to_list() == expected["tpot_s"].to_list()
    reasons = rows(study(grid, slo="tpot=50ms", keep="all", columns="all"))["reasons"].unique().to_list()
    assert set(reasons) <= {None, "tpot", "hbm"}
    assert "tpot" in reasons
    axis = rows(study(grid | {"slo.tpot": "30ms,50ms"}))
    assert (
        axis.filter(pl.col("workload.slo.tpot_s") == 0.05)["tpot_s"].to_list() == within["tpot_s"].to_list()
    )


def test_top_and_frontier_are_those_of_all_rows(study, rows):
    grid = {"ep": "32:320:32", "batch_per_die": "1:96", "microbatches": "1,2"}
    every = rows(study(grid))
    best = every.sort(["throughput_tokens_per_s_per_npu", "tpot_s"], descending=[True, False]).head(20)
    assert rows(study(grid, keep="top=20"))["tpot_s"].to_list() == best["tpot_s"].to_list()
    frontier = rows(study(grid, keep="frontier"))
    gain, cost = (every[name].to_numpy() for name in ("throughput_tokens_per_s_per_npu", "tpot_s"))
    beaten = [
        bool(np.any((gain >= g) & (cost <= c) & ((gain > g) | (cost < c))))
        for g, c in zip(gain, cost, strict=True)
    ]
    assert sorted(frontier["tpot_s"].to_list()) == sorted(
        every.filter(~pl.Series(beaten))["tpot_s"].unique().to_list()
    )


def test_boxes_and_parts_do_not_change_the_rows(study, rows, monkeypatch):
    grid = {"balance": "eplb,none", "ep": "32:320:32", "batch_per_die": "1:9", "kv_len": "1K:8K:x2"}
    whole = rows(study(grid, keep="all"))
    monkeypatch.setattr("cm384model.sweeping.parts.BOX", 7)
    monkeypatch.setattr("cm384model.sweeping.parts.PART_VALUES", 300)
    assert rows(study(grid, keep="all")).equals(whole, null_equal=True)


def test_rows_are_in_the_order_of_the_axes(study, rows):
    found = rows(study({"batch_per_die": "2,1", "ep": "32,64", "microbatches": "2,1"}))
    names = ["microbatches", "batch_per_die", "ep"]
    assert found.columns[:3] == names
    assert found.select(names).rows() == [(m, b, e) for m in (2, 1) for b in (2, 1) for e in (32, 64)]


def test_a_sweep_over_plans_is_a_plan_per_row(study, rows):
    found = rows(study({"npus": "32", "slo.tpot": "5ms,50ms"}, phase="plan", keep="all"))
    assert found["feasible"].to_list() == [False, True]
    for row in found.to_dicts():
        result = cm384model.plan(WORKLOAD, npus=row["npus"], slo={"tpot": row["workload.slo.tpot_s"]}, top=1)
        assert row["feasible"] == result.feasible
        if result.plans:
            best = result.plans[0]
            assert (row["requests_per_s"], row["tpot_s"]) == (best.requests_per_s, best.tpot_s)
            assert (row["decode_ep"], row["prefill_instances"]) == (best.decode.ep, best.prefill.instances)


def test_the_plan_is_on_the_masked_sweep_and_no_row_beats_it(study, rows, case):
    """``plan`` is ``sweep`` plus a mask and a choice: its decode pool is a row that none dominates."""
    best = cm384model.plan(WORKLOAD, npus=64, top=1).plans[0].decode
    fixed = {
        "draft_tokens": best.draft_tokens,
        "attention_tp": best.attention_tp,
        "redundant_experts": best.redundant_experts,
    }
    found = rows(
        study(
            {"microbatches": "1,2", "ep": f"{best.ep}", "batch_per_die": "1:128"},
            at=[f"{name}={value}" for name, value in fixed.items()],
            slo="workload",
            columns="all",
        )
    )
    row = found.filter(
        (pl.col("batch_per_die") == best.batch_per_die) & (pl.col("microbatches") == best.microbatches)
    )
    assert row["step_time_s"].item() == pytest.approx(best.step_time_s, rel=1e-12)
    assert row["free_bytes"].item() == pytest.approx(best.free_bytes, rel=1e-12)
    better = found.filter(
        (
            pl.col("throughput_tokens_per_s_per_npu")
            > row["throughput_tokens_per_s_per_npu"].item() * (1 + 1e-9)
        )
        & (pl.col("tpot_s") < row["tpot_s"].item() * (1 - 1e-9))
    )
    assert better.is_empty()


def test_no_law_uses_the_power_operator():
    """``x ** y`` of two floats and of two arrays differ in the last bit; ``np.power`` does not."""
    used = ("attention", "caching", "comm", "gemm", "memory", "moe", "mtp", "overlap", "roofline", "vector")
    for path in (Path(cm384model.__file__).parent / "laws" / f"{name}.py" for name in used):
        found = [
            node.lineno
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)
        ]
        assert not found, f"{path.name}, lines {found}: write np.power(x, y)"


def test_the_usual_attention_tp_has_to_divide_the_dies_too(study, rows):
    machine = load_case("qwen3-32b-4k-1k", hardware="atlas-800i-a2-910b3", engine="cloudmatrix-infer")
    with pytest.raises(SpecError, match="attention_tp = 2 does not divide ep = 1"):
        predict_decode(machine, {"ep": 1, "batch_per_die": 8})
    fixed: dict[str, Any] = {"hardware": "atlas-800i-a2-910b3", "engine": "cloudmatrix-infer", "keep": "all"}
    grid = {"ep": "1,2,3,4", "batch_per_die": "8"}
    found = rows(study(grid, workload="qwen3-32b-4k-1k", **fixed))
    assert found.filter(pl.col("feasible"))["ep"].to_list() == [2, 4]
