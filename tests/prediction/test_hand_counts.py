"""Cache and weights of every shipped model, and where it fits, against arithmetic that shares no code."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from cm384model.prediction.decode import decode_step
from cm384model.prediction.evaluate import filled_decode
from cm384model.prediction.sizes import model_sizes
from cm384model.prediction.system import System
from cm384model.specs.catalogue import names
from cm384model.specs.load import load_engine, load_hardware, load_model

GIB = 2**30


def latent(hidden, heads, q_rank, nope, rope, v, *, kv_rank=512):
    """Numbers of an MLA block, by their width: stored as weights, stored as the attention core computes."""
    stored = hidden * (q_rank + kv_rank + rope) + q_rank * heads * (nope + rope) + heads * v * hidden
    return stored, kv_rank * heads * (nope + v)


def grouped(hidden, heads, kv_heads, width=128):
    """Numbers of a grouped-query block: queries, keys, values, output."""
    return hidden * heads * width + 2 * hidden * kv_heads * width + heads * width * hidden, 0


MLA_R1 = latent(7168, 128, 1536, 128, 64, 128)
MLA_KIMI = latent(7168, 64, 1536, 128, 64, 128)
MLA_GLM5 = latent(6144, 64, 2048, 192, 64, 256)
INDEX_V32 = 1536 * 64 * 128 + 7168 * (128 + 64)
INDEX_GLM5 = 2048 * 32 * 128 + 6144 * (128 + 32)

# layers, hidden, vocabulary; numbers of an attention block; experts, their width, shared, dense layers and
# their width; bytes of a weight and of an expert's; cache of a token
HAND = {
    "deepseek-r1": (61, 7168, 129280, MLA_R1, 256, 2048, 1, 3, 18432, 1, 1, 61 * 576 * 2),
    "deepseek-v3": (61, 7168, 129280, MLA_R1, 256, 2048, 1, 3, 18432, 1, 1, 61 * 576 * 2),
    "deepseek-v3.2": (
        *(61, 7168, 129280, (MLA_R1[0] + INDEX_V32, MLA_R1[1]), 256, 2048, 1, 3, 18432, 1, 1),
        61 * (576 + 128) * 2,
    ),
    "glm-4.5": (92, 5120, 151552, grouped(5120, 96, 8), 160, 1536, 1, 3, 12288, 1, 1, 92 * 2 * 1024 * 2),
    "glm-5": (
        *(78, 6144, 154880, (MLA_GLM5[0] + INDEX_GLM5, MLA_GLM5[1]), 256, 2048, 1, 3, 12288, 1, 1),
        78 * (576 + 128) * 2,
    ),
    "glm-5.2": (  # the indexer stands in 21 of 78 layers
        *(78, 6144, 154880, (MLA_GLM5[0] + INDEX_GLM5 * 21 / 78, MLA_GLM5[1]), 256, 2048, 1, 3, 12288, 1, 1),
        (78 * 576 + 21 * 128) * 2,
    ),
    "hy3-preview": (80, 4096, 120832, grouped(4096, 64, 8), 192, 1536, 1, 1, 13312, 2, 2, 80 * 2 * 1024 * 2),
    "kimi-k2": (61, 7168, 163840, MLA_KIMI, 384, 2048, 1, 1, 18432, 1, 1, 61 * 576 * 2),
    "kimi-k2-thinking": (61, 7168, 163840, MLA_KIMI, 384, 2048, 1, 1, 18432, 2, 0.5, 61 * 576 * 2),
    "llama-3.1-70b": (80, 8192, 128256, grouped(8192, 64, 8), 0, 0, 0, 80, 28672, 2, 2, 80 * 2 * 1024 * 2),
    "minimax-m2": (62, 3072, 200064, grouped(3072, 48, 8), 256, 1536, 0, 0, 0, 1, 1, 62 * 2 * 1024 * 2),
    "mixtral-8x22b": (56, 6144, 32000, grouped(6144, 48, 8), 8, 16384, 0, 0, 0, 2, 2, 56 * 2 * 1024 * 2),
    "qwen3-235b-a22b": (94, 4096, 151936, grouped(4096, 64, 4), 128, 1536, 0, 0, 0, 1, 1, 94 * 2 * 512 * 2),
    "qwen3-30b-a3b": (48, 2048, 151936, grouped(2048, 32, 4), 128, 768, 0, 0, 0, 2, 2, 48 * 2 * 512 * 2),
    "qwen3-32b": (64, 5120, 151936, grouped(5120, 64, 8), 0, 0, 0, 64, 25600, 2, 2, 64 * 2 * 1024 * 2),
    "qwen3-8b": (36, 4096, 151936, grouped(4096, 32, 8), 0, 0, 0, 36, 12288, 2, 2, 36 * 2 * 1024 * 2),
    "qwen3-coder-480b-a35b": (
        *(62, 6144, 151936, grouped(6144, 96, 8), 160, 2560, 0, 0, 0, 1, 1),
        62 * 2 * 1024 * 2,
    ),
    # two attention and two dense blocks in every layer; a router over 512 experts and 256 that do nothing
    "longcat-flash": (
        *(28, 6144, 131072, latent(6144, 64, 1536, 128, 64, 128), 512, 2048, 0, 0, 12288, 1, 1),
        28 * 2 * 576 * 2,
    ),
}


def hand_weights(name, ep, head_ranks):
    """Weights of one of ``ep`` dies, MTP layers and redundant experts left out, nothing split. [B]"""
    layers, hidden, vocab, attention, experts, width, shared, dense, dense_width, byte, expert_byte, _ = HAND[
        name
    ]
    blocks, choices = (2, 768) if name == "longcat-flash" else (1, experts)
    total = layers * blocks * (attention[0] * byte + attention[1] * 2)
    mixtures = layers - dense
    slots = math.ceil(experts / ep)
    total += mixtures * slots * 3 * hidden * width * expert_byte
    total += mixtures * shared * 3 * hidden * width * byte
    total += mixtures * hidden * choices * 2
    total += (2 * layers if blocks == 2 else dense) * 3 * hidden * dense_width * byte
    return total + vocab * hidden * 2 + vocab * hidden * 2 / head_ranks


def test_every_shipped_model_is_counted_by_hand():
    assert set(names("model")) <= set(HAND)


@pytest.mark.parametrize("name", names("model"))
def test_cache_of_a_token(case, name):
    sizes = model_sizes(System(case.hardware, case.engine, load_model(name)))
    assert sizes.kv_bytes_per_token == pytest.approx(HAND[name][-1], rel=1e-12)


@pytest.mark.parametrize("ep", [32, 160])
@pytest.mark.parametrize("name", names("model"))
def test_weights_of_a_die(case, name, ep):
    here = replace(case, model=load_model(name))
    given = {"ep": ep, "batch_per_die": 1, "attention_tp": 1, "redundant_experts": 0}
    memory = decode_step(here.system, filled_decode(here, given)).memory
    assert memory.weights == pytest.approx(hand_weights(name, ep, 16), rel=1e-12)


@pytest.mark.parametrize("machine", ["cloudmatrix384", "atlas-800i-a2-910b2", "h100"])
@pytest.mark.parametrize("name", ["deepseek-r1", "kimi-k2", "longcat-flash", "glm-4.5", "qwen3-8b"])
def test_smallest_deployment(name, machine):
    """It holds a request of 4,096 tokens on every die and no fewer NPUs do; split attention may need less."""
    hardware, engine = load_hardware(machine), load_engine("vllm-ascend")
    sizes = model_sizes(System(hardware, engine, load_model(name)))
    capacity = {"cloudmatrix384": 64e9, "atlas-800i-a2-910b2": 64 * GIB, "h100": 80e9}[machine]
    usable = capacity * 0.9 - 1e9 - 0.05e9  # what vLLM holds back, the runtime, buffers and activations
    dies = 2 if machine == "cloudmatrix384" else 1
    cache = 4096 * HAND[name][-1]
    fitting = (ep for ep in range(dies, 321, dies) if hand_weights(name, ep, min(ep, 16)) + cache <= usable)
    by_hand = next(fitting) // dies
    assert sizes.smallest_npus <= by_hand
    if sizes.smallest_attention_tp == 1:
        assert sizes.smallest_npus == by_hand


# --- published memory ---------------------------------------------------------------------------------------


def test_savings_of_split_tensors(case):
    """vLLM-Ascend guide to fine-grained tensor parallelism (@182b75e): R1 W8A8 on 32 dies, saved by TP8.

    LM head 1.51 GB, embedding 1.51 GB, dense layers 0.9 GB; they are binary gigabytes.
    """
    given = {"ep": 32, "batch_per_die": 24, "attention_tp": 1, "redundant_experts": 0}
    parts = decode_step(case.system, filled_decode(case, given)).memory.parts
    saved = 7 / 8 / GIB
    assert parts["lm_head"] * 16 * saved == pytest.approx(1.51, abs=0.005)  # ours is split over 16
    assert parts["embedding"] * saved == pytest.approx(1.51, abs=0.005)
    assert parts["dense_layers"] * saved == pytest.approx(0.9, abs=0.1)


def test_r1_needs_two_atlas_a2_servers():
    """Tutorials serve R1 W8A8 on two servers of eight 64 GB chips; an issue runs out of memory there.

    vllm-ascend #4013. Both hold: it just fits without redundant experts, and not with 32 of them.
    """
    hardware, engine = load_hardware("atlas-800i-a2-910b2"), load_engine("vllm-ascend")
    assert model_sizes(System(hardware, engine, load_model("deepseek-r1"))).smallest_npus == 16
    slots = math.ceil((256 + 32) / 16) - 16
    more = slots * 58 * 3 * 7168 * 2048
    room = 64 * GIB * 0.9 - 1e9 - hand_weights("deepseek-r1", 16, 16)
    assert 0 < room < more
