"""Ratios between layouts that the documentation of vLLM-Ascend publishes; nothing is fitted to them.

docs/layouts.md shows the same ratios. The band is as wide as the model is off.
"""

from __future__ import annotations

import pytest

from cm384model.prediction.case import load_case
from cm384model.prediction.evaluate import prefill_deployment, prefill_outputs

SETTINGS = ["engine.layout.redundant_experts=0"]
TP16 = "attention_tp=16,context_parallel=1"
DP2 = "attention_tp=8,context_parallel=1"
PCP2 = "attention_tp=8,context_parallel=2"
CPP2 = "attention_tp=8,context_parallel=1,pipeline_stages=2"
CACHED = "ep=16,prompt_len=32768,reuse=0.99,plane=local,microbatches=1,balance=none"
BARE = "microbatches=1,balance=none"

RATIOS = [
    # what, model, at of the first, at of the second, quantity, published, ours
    (
        "DP2TP8 over TP16, 99 % cached",
        "r1",
        f"{CACHED},{TP16}",
        f"{CACHED},{DP2}",
        "rate",
        16150 / 18875,
        1.04,
    ),
    (
        "PCP2TP8 over TP16, 99 % cached",
        "r1",
        f"{CACHED},{TP16}",
        f"{CACHED},{PCP2}",
        "rate",
        18197 / 18875,
        0.76,
    ),
    (
        "CPP2TP8 over TP16, 99 % cached",
        *("r1", f"{CACHED},{TP16}", f"{CACHED},{CPP2},chunks=2", "rate", 22424 / 18875, 0.98),
    ),
    *(
        (
            f"TTFT with PCP2 over without, {length // 1024}K",
            "q235",
            f"ep=16,{BARE},prompt_len={length},tokens_per_npu={length / 4},{DP2}",
            f"ep=16,{BARE},prompt_len={length},tokens_per_npu={length / 8},{PCP2}",
            *("time", published, ours),
        )
        for length, published, ours in (
            (32768, 3.0 / 5.1, 0.52),
            (65536, 8.9 / 13.1, 0.51),
            (122880, 22.7 / 33.9, 0.50),
        )
    ),
    (
        "TTFT at 128K over 32K, DP2TP8",
        "r1",
        f"ep=16,{BARE},prompt_len=32768,tokens_per_npu=8192,{DP2}",
        f"ep=16,{BARE},prompt_len=131072,tokens_per_npu=32768,{DP2}",
        *("time", 73.2 / 9.3, 8.40),
    ),
]
WORKLOADS = {"r1": "deepseek-r1-4k-256", "q235": "qwen3-235b-a22b-4k-1k"}
QUANTITIES = {"rate": "throughput_tokens_per_s_per_npu", "time": "batch_time_s"}
WORST = 0.27
"""Largest relative error of the table. [-]"""


def predicted(model, at, quantity):
    case = load_case(WORKLOADS[model], engine="vllm-ascend", settings=SETTINGS)
    if "reuse" in at:
        at += ",tokens_per_npu=16384"  # four prompts at once
    return float(prefill_outputs(case, prefill_deployment(case, at))[1][QUANTITIES[quantity]])


@pytest.mark.parametrize(("what", "model", "at", "against", "quantity", "published", "ours"), RATIOS)
def test_ratios_between_layouts(what, model, at, against, quantity, published, ours):
    ratio = predicted(model, against, quantity) / predicted(model, at, quantity)
    assert ratio == pytest.approx(ours, rel=0.05), what
    assert abs(ratio / published - 1) < WORST, what
