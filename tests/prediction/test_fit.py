from __future__ import annotations

import re

import pytest

from cm384model.prediction.evaluate import predict_decode, predict_prefill
from cm384model.prediction.fit import nearest_fit


def test_the_nearest_batch_fits_and_one_more_request_does_not(case):
    prediction = predict_decode(case, "ep=320,batch_per_die=500")
    nearest, hint = nearest_fit(case, prediction)
    (batch,) = re.findall(r"batch_per_die=(\d+)", nearest)
    assert f"--at batch_per_die={batch}" in hint
    assert predict_decode(case, f"ep=320,batch_per_die={batch}").feasible
    assert not predict_decode(case, f"ep=320,batch_per_die={int(batch) + 1}").feasible


def test_a_smaller_prefill_batch(case):
    prediction = predict_prefill(case, "ep=32,tokens_per_npu=200000")
    nearest, _ = nearest_fit(case, prediction)
    (tokens,) = re.findall(r"tokens_per_npu=(\d+)", nearest)
    assert predict_prefill(case, f"ep=32,tokens_per_npu={tokens}").feasible


@pytest.mark.parametrize("batch", [1, 128])
def test_where_the_weights_alone_do_not_fit_more_dies_are_the_hint(case, batch):
    prediction = predict_decode(case, f"ep=8,batch_per_die={batch}")
    nearest, hint = nearest_fit(case, prediction)
    assert "GB over" in nearest
    assert "more dies" in hint
