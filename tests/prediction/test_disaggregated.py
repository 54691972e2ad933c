"""Runs on a prefill and a decode pool, and what engines add to the operators."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cm384model.prediction.case import load_case
from cm384model.prediction.decode import decode_step
from cm384model.prediction.disaggregated import disaggregated_run, read_run
from cm384model.prediction.evaluate import decode_deployment
from cm384model.prediction.operators import Die, gemm
from cm384model.prediction.single import OPERATORS
from cm384model.specs.diagnostics import SpecError

AT = (
    "ep=32,prefill_ep=16,prefill_tp=8,prefill_context_parallel=1,prefill_instances=2,concurrency=256,"
    "prompts=1024,prompt_len=3500,output_len=1500,draft_tokens=1,acceptance=0.7"
)


@pytest.fixture(scope="module")
def case():
    return load_case("deepseek-r1-4k-256", engine="vllm-ascend")


def run(case, **changes):
    return disaggregated_run(case, read_run(case, AT) | changes)


def test_rate_time_and_tokens_agree(case):
    found = run(case)
    npus = (32 + 2 * 16) / 2
    assert found["run_tokens_per_s_per_npu"] * npus * found["run_time_s"] == pytest.approx(1024 * 1500)
    assert found["run_time_s"] > 4 * 1499 * found["tpot_s"]
    assert found["tpot_s"] == pytest.approx(found["step_time_s"] / 1.7)


def test_arrays_go_through_the_same_line(case):
    acceptances = np.array([0.5, 0.7, 0.9])
    together = run(case, acceptance=acceptances)["run_tokens_per_s_per_npu"]
    alone = [run(case, acceptance=a)["run_tokens_per_s_per_npu"] for a in acceptances]
    assert together == pytest.approx(alone, rel=1e-12)
    assert np.all(np.diff(together) > 0)


def test_more_prefill_never_slows_and_few_slots_and_slow_clients_do(case):
    usual = run(case)["run_time_s"]
    assert run(case, prefill_instances=4.0)["run_time_s"] <= usual
    assert run(case, most_running=64.0)["run_time_s"] > usual
    assert run(case, arrivals_per_s=1.0)["run_time_s"] > 1024


@pytest.mark.parametrize(
    "at", ["ep=32,concurrency=4,prompts=4", AT + ",prefil_tp=2", AT.replace("ep=32", "ep=33", 1)]
)
def test_a_run_that_makes_no_sense_is_refused(case, at):
    with pytest.raises(SpecError):
        read_run(case, at)


def test_kernels_that_run_one_by_one_keep_their_own_start_up(case):
    fused, alone = (
        Die(case.hardware, launch_latency=1e-6),
        Die(case.hardware, launch_latency=1e-6, startup_share=1.0),
    )
    own = case.hardware.ops.gemm_int8.launch_latency.si
    a, b = (gemm(die, "product", 16, 4096, 4096, precision="int8").time for die in (fused, alone))
    assert b - a == pytest.approx(own)


def test_unpacking_caps_what_four_bits_save(case):
    times = [
        gemm(Die(case.hardware), "product", 1, 8192, 8192, precision="int8", stored=stored).part("memory")
        for stored in (None, "int4")
    ]
    assert 1.3 < times[0] / times[1] <= 1.48 + 1e-9


def test_twenty_four_query_tokens_take_as_long_as_one():
    case = load_case("deepseek-v3.2-32k-1k")
    times = [
        OPERATORS["sparse_attention"](
            Die(case.hardware), case, {"tokens_per_die": float(n), "positions": 2048.0, "heads": 16.0}
        ).time
        for n in (1, 24, 25)
    ]
    assert times[0] == pytest.approx(times[1])
    assert times[2] > 1.7 * times[1]


def test_a_shortcut_hides_the_exchanges_of_a_single_batch():
    at = "ep=64,batch_per_die=8,kv_len=4096"
    case = load_case("deepseek-r1-4k-256", model="longcat-flash")
    step = decode_step(case.system, decode_deployment(case, at))
    exchanged = sum(term.time for term in step.terms if term.name in ("dispatch", "combine"))
    assert step.hidden_time == pytest.approx(exchanged)
    serial = load_case("deepseek-r1-4k-256", model="longcat-flash", engine="vllm-ascend")
    assert decode_step(serial.system, decode_deployment(serial, at)).hidden_time == 0


def test_the_head_is_split_over_no_more_dies_than_there_are(case):
    dense = load_case("qwen3-32b-4k-1k", engine="vllm-ascend")
    two = decode_step(dense.system, decode_deployment(dense, "ep=2,batch_per_die=4,attention_tp=2"))
    few = replace(dense, engine=dense.replaced("engine.layout.lm_head_tp", 2.0).engine)
    same = decode_step(few.system, decode_deployment(few, "ep=2,batch_per_die=4,attention_tp=2"))
    assert two.step_time == same.step_time
