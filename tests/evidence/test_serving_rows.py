"""Rows of other engines and machines: what each has to say, and what they show together."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from cm384model.evidence.intervals import run_residual
from cm384model.evidence.published import case_of, in_groups, predicted_value, read_rows, shipped_rows
from cm384model.evidence.validate import RUNS, check, validate
from cm384model.specs.catalogue import names
from cm384model.specs.diagnostics import SpecError

ROWS = {row.id: row for row in shipped_rows()}
SERVING = in_groups(ROWS.values(), ["serving."])
PREDICTED = [row for row in SERVING if not row.reason]


@pytest.fixture(scope="module")
def found():
    return validate(PREDICTED)


def value(name):
    return float(predicted_value(case_of(ROWS[name]), ROWS[name]))


def test_there_are_as_many_as_there_should_be():
    assert len(SERVING) >= 250
    assert len(PREDICTED) >= 100
    assert {row.engine for row in PREDICTED} == {
        "cann-recipes",
        "deepseek-h800",
        "sglang-ascend",
        "vllm-ascend",
    }
    assert len({row.model for row in PREDICTED}) >= 12


@pytest.mark.parametrize("row", SERVING, ids=lambda row: row.id)
def test_a_row_follows_the_rules(row):
    """A public source, a shipped model, and an acceptance that is stated or open, never chosen."""
    assert row.source
    assert not re.search(r"(^|[\s(])(/|\.\./|~)", row.source)  # no path of somebody's own
    assert row.model or "model" in row.reason
    if row.reason:
        return
    assert row.model in names("model")
    assert row.hardware in names("hardware")
    drafts = int((re.search(r"draft_tokens=(\d+)", row.at) or [0, 0])[1])
    stated = "acceptance=" in row.at
    if drafts and row.quantity != "step_time_s":
        assert stated != (row.acceptance is not None)
    else:
        assert row.acceptance is None
    assert not (row.acceptance and row.used_for_fit)


def test_stale_reasons_are_gone():
    for row in ROWS.values():
        assert "sparse attention is not modelled" not in row.reason
        assert "INT4 weights are not modelled" not in row.reason


def test_fitted_rows_are_those_of_one_model():
    assert {row.model for row in SERVING if row.used_for_fit} == {"qwen3-8b"}


def test_an_open_acceptance_gives_a_span_and_the_distance_from_it():
    row = ROWS["vaci_deepseek_r1_w8a8_a3_perf_16"]
    checked = check(row)
    assert checked.open_low < checked.predicted < checked.open_high
    assert checked.error == pytest.approx(checked.open_low / row.published - 1)
    inside = check(replace(row, published=checked.predicted * 1.01))
    assert inside.error == 0
    assert checked.acceptance == "0.5..0.9"


@pytest.mark.parametrize(
    ("text", "said"), [("0.5", "no range"), ("0.9..0.5", "out of bounds"), ("0..2", "out of bounds")]
)
def test_a_span_that_makes_no_sense_is_refused(tmp_path, text, said):
    path = tmp_path / "rows.csv"
    path.write_text(
        "id,subject,at,quantity,published,unit,band,acceptance\n"
        f'a,decode,"ep=32,batch_per_die=4,draft_tokens=1",tpot_s,0.02,s,0.1,{text}\n'
    )
    with pytest.raises(SpecError, match=said):
        read_rows(path)


def test_summaries_by_model_and_engine_count_every_row_once(found):
    for summaries in (found.summary.models, found.summary.engines):
        assert sum(summary.rows for summary in summaries) == len(PREDICTED)


def test_the_error_bars_of_runs_are_those_of_their_rows(found):
    for engine in ("sglang-ascend", "vllm-ascend"):
        logs = [abs(np.log1p(r.error)) for r in found.rows if r.kind in RUNS and r.engine == engine]
        assert run_residual(engine) == pytest.approx(np.quantile(logs, 0.8), rel=0.02)


# --- scaling, in sign -----------------------------------------------------------------------------------


def test_qwen3_235b_on_16_npus_is_slower_per_npu_than_on_8():
    eight, sixteen = "sglang_q235_w8a8_8c_2048_2048_throughput", "sglang_q235_w8a8_16c_2048_2048_throughput"
    assert ROWS[sixteen].published < ROWS[eight].published
    assert value(sixteen) < value(eight)


def test_four_bit_experts_on_half_the_npus_are_about_as_quick():
    half, whole = "cann_dsv32_moe_w4_32chips_gbs64_64k", "cann_dsv32_w8a8c8_ep128_gbs256_64k"
    assert ROWS[half].published == pytest.approx(ROWS[whole].published, rel=0.1)
    assert value(half) == pytest.approx(value(whole), rel=0.1)


def test_four_bit_experts_are_a_little_quicker_on_the_same_npus():
    four, eight = "cann_dsv32_moe_w4_32chips_gbs64_64k", "cann_dsv32_moe_w8_32chips_gbs64_64k"
    assert 0.9 < value(four) / value(eight) < 1
    assert 0.9 < ROWS[four].published / ROWS[eight].published < 1


def test_two_dies_are_quicker_than_one_and_int8_than_bf16():
    one, two, int8 = (f"cann_qwen3_8b_{what}_b1" for what in ("bf16_tp1", "bf16_tp2", "w8a8_tp1"))
    for quick in (two, int8):
        assert value(quick) < value(one)
        assert ROWS[quick].published < ROWS[one].published
