from __future__ import annotations

import math

import pytest

from cm384model.evidence.intervals import with_decode_interval, with_prefill_interval
from cm384model.evidence.sensitivity import sensitivity
from cm384model.prediction.case import load_case
from cm384model.prediction.evaluate import predict_decode, predict_prefill

AT = {
    "decode": "ep=320,batch_per_die=48,microbatches=2,draft_tokens=1",
    "prefill": "ep=32,tokens_per_npu=16384",
}


@pytest.mark.parametrize("phase", AT)
def test_the_largest_comes_first(case, phase):
    found = sensitivity(case, phase, AT[phase])
    widths = [abs(math.log1p(e.effect_high) - math.log1p(e.effect_low)) for e in found.effects]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 0.02
    assert len({effect.path for effect in found.effects}) == len(found.effects)


@pytest.mark.parametrize("phase", AT)
def test_the_interval_is_that_of_the_prediction(case, phase):
    found = sensitivity(case, phase, AT[phase])
    if phase == "decode":
        decode = with_decode_interval(case, AT[phase], predict_decode(case, AT[phase]))
        ends = (decode.tpot_s, decode.tpot_s_low, decode.tpot_s_high)
    else:
        prefill = with_prefill_interval(case, AT[phase], predict_prefill(case, AT[phase]))
        ends = (prefill.batch_time_s, prefill.batch_time_s_low, prefill.batch_time_s_high)
    assert (found.predicted, found.predicted_low, found.predicted_high) == pytest.approx(ends)


def test_an_effect_is_what_the_prediction_does(case):
    found = sensitivity(case, "decode", AT["decode"])
    effect = next(e for e in found.effects if e.path == "engine.constants.step_overhead")
    share = found.deployment["attention_aic_share"]
    high = case.replaced(effect.path, effect.range[1] * 1e-3)
    again = predict_decode(high, f"{AT['decode']},attention_aic_share={share}")
    assert again.tpot_s / found.predicted - 1 == pytest.approx(effect.effect_high)


def test_vllm_overlaps_nothing():
    """Its decode has no second stream and its prefill hides no communication."""
    case = load_case("deepseek-r1-4k-256", engine="vllm-ascend")
    assert predict_decode(case, AT["decode"]).hidden_time_s == 0
    assert predict_prefill(case, AT["prefill"]).hidden_time_s == 0
    other = load_case("deepseek-r1-4k-256")
    assert predict_decode(other, AT["decode"]).hidden_time_s > 0
    assert predict_prefill(other, AT["prefill"]).hidden_time_s > 0
