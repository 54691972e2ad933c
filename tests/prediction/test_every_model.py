"""Every shipped model on CloudMatrix384: finite, positive, monotone, and a reason where it does not fit."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from cm384model.planning.request import Request, Slo
from cm384model.planning.search import plan_case
from cm384model.prediction.evaluate import predict_decode, predict_prefill
from cm384model.specs.catalogue import names
from cm384model.specs.load import load_model


@pytest.fixture(params=names("model"))
def model_case(case, request):
    return replace(case, model=load_model(request.param))


def checked(prediction, time):
    """The time of a prediction; infinite where it names why there is none."""
    if not prediction.feasible:
        assert prediction.reasons
        assert all(reason.startswith("hbm: ") for reason in prediction.reasons)
        assert getattr(prediction, time) is None
        return math.inf
    value = getattr(prediction, time)
    assert math.isfinite(value)
    assert value > 0
    for term in prediction.terms:
        for number in (term.time_s, term.flop, term.bytes):
            assert math.isfinite(number)
            assert number >= 0, term
    assert prediction.throughput_tokens_per_s_per_npu > 0
    memory = prediction.memory
    assert all(part >= 0 for part in memory.parts_bytes.values())
    used = memory.weights_bytes + memory.kv_cache_bytes + memory.buffers_bytes + memory.reserve_bytes
    assert used + memory.free_bytes == pytest.approx(memory.capacity_bytes)
    return value


def nondecreasing(values):
    return all(after >= before * (1 - 1e-9) for before, after in itertools.pairwise(values))


@pytest.mark.parametrize("microbatches", [1, 2])
@pytest.mark.parametrize("ep", [16, 64, 320])
def test_decode(model_case, ep, microbatches):
    at = {"ep": ep, "microbatches": microbatches, "attention_aic_share": 0.5}

    def tpot(batch, kv_len):
        return checked(predict_decode(model_case, at | {"batch_per_die": batch, "kv_len": kv_len}), "tpot_s")

    by_batch = [tpot(batch, 4096) for batch in (1, 4, 16, 64, 256)]
    by_context = [tpot(8, kv_len) for kv_len in (256, 2048, 8192, 65536, 524288)]
    assert nondecreasing(by_batch)
    assert nondecreasing(by_context)
    assert np.isfinite(by_batch[0]) or ep == 16
    assert np.isinf(by_context[-1])


@pytest.mark.parametrize("ep", [16, 32, 64])
def test_prefill(model_case, ep):
    def time(tokens, prompt_len):
        at = {"ep": ep, "tokens_per_npu": tokens, "prompt_len": prompt_len}
        return checked(predict_prefill(model_case, at), "batch_time_s")

    assert nondecreasing([time(tokens, 4096) for tokens in (4096, 16384, 65536, 1048576)])
    assert nondecreasing([time(16384, length) for length in (512, 2048, 8192, 32768)])


def test_plan(model_case):
    """On eight nodes; what is planned is what prediction says of the same deployment."""
    case = model_case
    result = plan_case(case, Request(npus=64, slo=Slo(tpot=0.1, ttft=20.0), top=1))
    if not result.feasible:
        assert result.infeasible is not None
        assert result.infeasible.constraint
        return
    best = result.plans[0]
    at = {
        "ep": best.decode.ep,
        "batch_per_die": best.decode.batch_per_die,
        "microbatches": best.decode.microbatches,
        "draft_tokens": best.decode.draft_tokens,
        "attention_tp": best.decode.attention_tp,
        "expert_tp": best.decode.expert_tp,
        "redundant_experts": best.decode.redundant_experts,
    }
    if best.decode.microbatches == 2:
        at["attention_aic_share"] = best.decode.attention_aic_share
    assert predict_decode(case, at).tpot_s == pytest.approx(best.tpot_s, rel=1e-9)
    assert best.requests_per_s > 0
    assert best.tpot_s <= 0.1
