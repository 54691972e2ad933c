"""Layouts as axes: what a sweep calls impossible prediction refuses, and the rest it predicts."""

from __future__ import annotations

import itertools

import pytest

from cm384model.prediction.case import load_case
from cm384model.prediction.evaluate import predict_decode, predict_prefill
from cm384model.specs.diagnostics import SpecError

DECODE = {"ep": "16,24", "batch_per_die": "2", "attention_tp": "1,4", "expert_tp": "1,4,16"}
PREFILL = {
    "ep": "16,24",
    "tokens_per_npu": "2K,16K",
    "attention_tp": "1,8",
    "context_parallel": "0,1,2,3",
    "pipeline_stages": "1,2",
    "chunks": "1,4",
}


@pytest.mark.parametrize("workload", ["qwen3-235b-a22b-4k-1k", "qwen3-32b-4k-1k", "deepseek-v3.2-32k-1k"])
@pytest.mark.parametrize(
    ("phase", "grid", "predict", "time"),
    [("decode", DECODE, predict_decode, "tpot_s"), ("prefill", PREFILL, predict_prefill, "batch_time_s")],
)
def test_layouts_as_axes(study, rows, workload, phase, grid, predict, time):
    case = load_case(workload)
    if phase == "prefill" and workload.startswith("deepseek-v3.2"):
        grid = grid | {"attention_tp": "1"}
    found = rows(study(grid, phase=phase, keep="all", workload=workload))
    assert len(found) == len(list(itertools.product(*(axis.split(",") for axis in grid.values()))))
    assert found["feasible"].any()
    for row in found.to_dicts():
        try:
            expected = predict(case, {name: row[name] for name in grid})
        except SpecError:
            assert not row["feasible"]
            assert set(row["reasons"].split(";")) <= {"layout", "prompt", "attention_tp", "expert_tp"}, row
            continue
        assert row["feasible"] == expected.feasible, row
        if expected.feasible:
            assert row[time] == pytest.approx(getattr(expected, time), rel=1e-12)
