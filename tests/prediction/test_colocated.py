from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cm384model import api
from cm384model.prediction.case import load_case
from cm384model.prediction.colocated import colocated_serving
from cm384model.prediction.decode import decode_step
from cm384model.prediction.evaluate_colocated import (
    colocated_deployment,
    predict_colocated,
    read_colocated,
)
from cm384model.prediction.explain import explain
from cm384model.prediction.prefill import prefill_batch
from cm384model.specs.diagnostics import SpecError

AT = {"ep": 32, "batch_per_die": 8, "prompt_len": 2048, "output_len": 512}
MODELS = ["deepseek-r1-4k-256", "qwen3-32b-4k-1k", "qwen3-235b-a22b-4k-1k", "deepseek-v3.2-32k-1k"]


@pytest.fixture(scope="module")
def case():
    return load_case("deepseek-r1-4k-256", engine="vllm-ascend")


def served(case, **at):
    given = read_colocated(case, {**AT, **at})
    deployment = colocated_deployment(case, given)
    return deployment, colocated_serving(case.system, deployment)


def test_it_is_made_of_a_decode_step_and_a_prefill_batch(case):
    """The cycle by hand: 256 prompts and 511 steps."""
    deployment, found = served(case, tokens_per_npu=128)
    step, batch = decode_step(case.system, deployment.decode), prefill_batch(case.system, deployment.prefill)
    cycle = 511 * step.step_time + 256 * batch.batch_time
    assert found.e2e == pytest.approx(cycle)
    assert found.tpot == pytest.approx((cycle - batch.batch_time) / 511)
    assert found.ttft == pytest.approx(batch.batch_time)
    assert found.throughput == pytest.approx(256 / cycle * 512 / 16)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("at", [{}, {"draft_tokens": 1}, {"mixed_overlap": 0.7}, {"tokens_per_npu": 64}])
def test_the_laws_of_a_steady_state(name, at):
    """Little's law holds; the terms less what is hidden are the time of a request."""
    case = load_case(name)
    if "draft_tokens" in at and case.model.architecture.mtp_layers.si == 0:
        pytest.skip("no MTP layer")
    _, found = served(case, **at)
    assert found.rate * found.e2e == pytest.approx(found.concurrency)
    assert found.ttft + found.tpot * 511 == pytest.approx(found.e2e)
    summed = sum(float(term.time) for term in found.terms)
    assert summed - found.hidden_time == pytest.approx(found.e2e)
    assert found.tpot * found.step.tokens_per_step >= found.step.step_time


def test_concurrency_counts_those_in_prefill(case):
    """A prompt in chunks leaves the batch for a step after each of them but the last."""
    at = {name: value for name, value in AT.items() if name != "batch_per_die"}
    for concurrency in (1, 16, 300):
        whole = predict_colocated(case, {**at, "concurrency": concurrency})
        assert whole.concurrency == pytest.approx(concurrency)
        assert whole.deployment["batch_per_die"] == pytest.approx(concurrency / 32)
        chunked = predict_colocated(case, {**at, "concurrency": concurrency, "tokens_per_npu": 32})
        assert chunked.concurrency == pytest.approx(concurrency)
        assert chunked.deployment["batch_per_die"] == pytest.approx(concurrency / 32 * 511 / 514)


def test_one_request_alone(case):
    """Nobody stalls it: its prefill, then bare steps."""
    at = {name: value for name, value in AT.items() if name != "batch_per_die"}
    for overlap in (0, 1):
        found = predict_colocated(case, {**at, "concurrency": 1, "mixed_overlap": overlap})
        assert found.tpot_s == pytest.approx(found.step_time_s)
        assert found.ttft_s == pytest.approx(found.batch_time_s)


def test_chunks_lengthen_the_first_token_and_shorten_the_gap(case):
    _, whole = served(case, tokens_per_npu=128)
    _, chunked = served(case, tokens_per_npu=32)
    assert chunked.ttft > whole.ttft
    assert chunked.longest_gap < whole.longest_gap
    assert chunked.throughput < whole.throughput  # smaller batches are less efficient
    assert chunked.ttft == pytest.approx(4 * chunked.batch.batch_time + 3 * chunked.step.step_time)


def test_mixed_iterations_hide_the_shorter_piece(case):
    _, apart = served(case)
    _, mixed = served(case, mixed_overlap=1.0)
    pieces = 511 * apart.step.step_time, 255 * apart.prefill_time
    assert apart.tpot * 511 == pytest.approx(sum(pieces))
    assert mixed.tpot * 511 == pytest.approx(max(pieces))


def test_a_run_is_made_of_waves(case):
    at = {name: value for name, value in AT.items() if name != "batch_per_die"}
    run = predict_colocated(case, {**at, "concurrency": 64, "prompts": 128})
    longer = predict_colocated(case, {**at, "concurrency": 64, "prompts": 130})
    assert run.run_ttft_s + 511 * run.run_tpot_s == pytest.approx(run.run_time_s / 2)
    assert run.run_tokens_per_s_per_npu == pytest.approx(128 * 512 / run.run_time_s / 16)
    assert longer.run_tokens_per_s_per_npu < run.run_tokens_per_s_per_npu  # the tail
    few = predict_colocated(case, {**at, "concurrency": 64, "prompts": 3})
    assert few.run_time_s < run.run_time_s / 2


def test_one_path_for_numbers_and_arrays(case):
    batches = np.array([1.0, 3.0, 17.0])
    _, grid = served(case, tokens_per_npu=256)
    given = read_colocated(case, {**AT, "tokens_per_npu": 256})
    many = colocated_serving(case.system, colocated_deployment(case, {**given, "batch_per_die": batches}))
    for i, batch in enumerate(batches):
        one = colocated_serving(case.system, colocated_deployment(case, {**given, "batch_per_die": batch}))
        assert many.rate[i] == pytest.approx(one.rate, rel=1e-12)
        assert np.broadcast_to(many.memory.free, 3)[i] == pytest.approx(one.memory.free, rel=1e-12)
    assert grid.rate > 0


def test_the_memory_holds_both_phases(case):
    deployment, found = served(case)
    assert found.memory.free <= decode_step(case.system, deployment.decode).memory.free
    assert found.memory.kv_cache > found.step.memory.kv_cache
    m = found.memory
    assert m.weights + m.kv_cache + m.buffers + m.reserve + m.free == pytest.approx(m.capacity)


@pytest.mark.parametrize(
    "at",
    [
        {"ep": 32},
        {"ep": 32, "batch_per_die": 4, "concurrency": 4},
        {"ep": 32, "batch_per_die": 4, "prompts": 4},
        {"ep": 31, "concurrency": 4},
        {"ep": 32, "concurrency": 4, "output_len": 1},
        {"ep": 32, "concurrency": 4, "attention_tp": 3},
        {"ep": 32, "concurency": 4},
    ],
)
def test_bad_input_is_refused(case, at):
    with pytest.raises(SpecError):
        predict_colocated(case, at)


def test_intervals_hold_the_prediction():
    found = api.predict("deepseek-r1-4k-256", phase="colocated", at="ep=32,concurrency=64,prompts=64")
    for field in dataclasses.fields(found):
        if field.name.endswith("_low"):
            name = field.name.removesuffix("_low")
            assert getattr(found, field.name) < getattr(found, name) < getattr(found, f"{name}_high")


def test_every_term_can_be_explained(case):
    at = "ep=32,batch_per_die=8"
    whole = explain(case, "colocated", at)
    assert whole.total_time_s == pytest.approx(predict_colocated(case, at).e2e_s)
    assert {t.name for t in whole.terms} >= {"prefill_experts", "decode_experts"}
    assert explain(case, "colocated", at, "prefill_experts").term.laws
