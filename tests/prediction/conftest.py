"""A model small enough to count by hand, and deployments to draw from."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import strategies as st

from cm384model.prediction.decode import DecodeDeployment
from cm384model.prediction.prefill import PrefillDeployment
from cm384model.specs.overrides import replace_value

TINY = {
    "hidden": 12.0,
    "vocab": 32.0,
    "layers": 4.0,
    "dense_layers": 1.0,
    "mtp_layers": 1.0,
    "heads": 4.0,
    "q_lora_rank": 6.0,
    "kv_lora_rank": 5.0,
    "qk_nope_dim": 3.0,
    "qk_rope_dim": 2.0,
    "v_head_dim": 4.0,
    "dense_intermediate": 10.0,
    "moe_intermediate": 7.0,
    "routed_experts": 8.0,
    "shared_experts": 1.0,
    "top_k": 2.0,
}


@pytest.fixture(scope="session")
def tiny(case):
    """The shipped case with a model of a few thousand parameters."""
    model = case.model
    for name, value in TINY.items():
        model = replace_value(model, f"architecture.{name}", value)
    return replace(case, model=model)


@pytest.fixture(scope="session")
def decode_deployment():
    """A decode deployment like the paper's, with changes."""

    def deployment(**changes):
        usual = {
            "ep": 320.0,
            "batch_per_die": 48.0,
            "kv_len": 4224.0,
            "microbatches": 2.0,
            "attention_aic_share": 2 / 3,
            "draft_tokens": 1.0,
            "acceptance": 0.7,
            "imbalance": 1.3,
            "redundant_experts": 32.0,
        }
        return DecodeDeployment(**(usual | changes))

    return deployment


@pytest.fixture(scope="session")
def prefill_deployment():
    """A prefill deployment like the paper's, with changes."""

    def deployment(**changes):
        usual = {
            "ep": 32.0,
            "tokens_per_npu": 16384.0,
            "prompt_len": 4096.0,
            "microbatches": 2.0,
            "imbalance": 1.3,
            "redundant_experts": 32.0,
        }
        return PrefillDeployment(**(usual | changes))

    return deployment


DECODE_VALUES = {
    "ep": st.integers(1, 768).map(float),
    "batch_per_die": st.integers(1, 512).map(float),
    "kv_len": st.floats(1, 131072),
    "microbatches": st.sampled_from([1.0, 2.0]),
    "attention_aic_share": st.integers(1, 23).map(lambda cores: cores / 24),
    "draft_tokens": st.integers(0, 3).map(float),
    "acceptance": st.floats(0, 1),
    "imbalance": st.floats(1, 4),
    "redundant_experts": st.integers(0, 256).map(float),
}
PREFILL_VALUES = {
    "ep": st.integers(1, 768).map(float),
    "tokens_per_npu": st.integers(64, 65536).map(float),
    "prompt_len": st.integers(1, 65536).map(float),
    "microbatches": st.sampled_from([1.0, 2.0]),
    "imbalance": st.floats(1, 4),
    "redundant_experts": st.integers(0, 256).map(float),
    "reuse": st.one_of(st.just(0.0), st.floats(0.01, 0.95)),
}


@pytest.fixture(scope="session")
def decode_values():
    """A strategy for every field of a decode deployment."""
    return DECODE_VALUES


@pytest.fixture(scope="session")
def prefill_values():
    """A strategy for every field of a prefill deployment."""
    return PREFILL_VALUES
