"""Instances in words: what ``--at`` is told gives the deployment that was planned."""

from dataclasses import replace

import pytest

from cm384model.api import load_case
from cm384model.planning.results import DecodeInstance, PrefillInstance
from cm384model.prediction.evaluate import (
    decode_deployment,
    filled_decode,
    filled_prefill,
    prefill_deployment,
)
from cm384model.report.instances import at_words, decode_words, legend, prefill_words

PREFILL = PrefillInstance(ep=32, tokens_per_npu=16384, microbatches=2, redundant_experts=0)
DECODE = DecodeInstance(
    ep=32,
    batch_per_die=8,
    microbatches=1,
    attention_aic_share=1.0,
    draft_tokens=0,
    attention_tp=1,
    redundant_experts=0,
)
QWEN, DEEPSEEK = ("qwen3-32b-4k-1k", "h20"), ("deepseek-r1-4k-256", "cloudmatrix384")


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (QWEN, {}),  # by default two dies share the heads here: one has to be said
        (QWEN, {"attention_tp": 2}),
        (QWEN, {"attention_tp": 4, "context_parallel": 2, "pipeline_stages": 2, "chunks": 8}),
        (DEEPSEEK, {}),
        (DEEPSEEK, {"expert_tp": 4, "reuse": 0.5, "plane": "vpc", "redundant_experts": 32}),
    ],
)
def test_what_is_said_of_a_prefill_instance_gives_its_deployment(words, changes):
    case, instance = load_case(words[0], hardware=words[1]), replace(PREFILL, **changes)
    assert prefill_deployment(case, at_words(case, instance)) == filled_prefill(case, instance.at)


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (QWEN, {}),
        (QWEN, {"attention_tp": 8}),
        (DEEPSEEK, {"draft_tokens": 1, "expert_tp": 4, "redundant_experts": 32}),
        (DEEPSEEK, {"attention_tp": 4}),
    ],
)
def test_what_is_said_of_a_decode_instance_gives_its_deployment(words, changes):
    case, instance = load_case(words[0], hardware=words[1]), replace(DECODE, **changes)
    assert decode_deployment(case, at_words(case, instance)) == filled_decode(case, instance.at)


def test_words_of_instances():
    split = replace(DECODE, microbatches=2, attention_aic_share=2 / 3, draft_tokens=1, expert_tp=4)
    assert decode_words(split, 24) == "EP32 b8 2mb 16:8 MTP1 ETP4"
    assert decode_words(split, 0) == "EP32 b8 2mb MTP1 ETP4"
    staged = replace(PREFILL, context_parallel=1, pipeline_stages=2, chunks=8)
    assert prefill_words(staged) == "EP32 16K 2mb CP1 PP2/8"


def test_the_legend_explains_what_occurs():
    staged = replace(PREFILL, pipeline_stages=2, chunks=8)
    assert "ETP" not in legend([PREFILL, DECODE])
    assert legend([staged, DECODE]).endswith("\nPP: stages / chunks")
