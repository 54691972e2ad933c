"""The memory of a die: the paper's example, a count by hand, and the ledger."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm384model.laws.memory import exchange_buffer_bytes, free_bytes, kv_cache_bytes

SIZE = st.floats(0, 1e12)
KIB, MIB = 1024, 1024**2


def test_the_buffers_of_the_paper():
    """Zuo 2025, Sec. 4.2.1: 320 ranks, 96 tokens; 225 + 420 = 645 MB (binary)."""
    slots = {"dispatch_message_bytes": 7.5 * KIB, "combine_message_bytes": 14 * KIB}
    assert exchange_buffer_bytes(320, 96, copies=1, **slots) == 645 * MIB
    assert exchange_buffer_bytes(320, 96, copies=1, **slots | {"combine_message_bytes": 0}) == 225 * MIB
    assert exchange_buffer_bytes(320, 96, copies=1, **slots | {"dispatch_message_bytes": 0}) == 420 * MIB


def test_the_cache_of_the_paper():
    """48 requests of 4096 + 256 tokens, 61 layers of 576 BF16 numbers: 14.7 GB."""
    cache = kv_cache_bytes(48, 4352, 61, bytes_per_token_layer=1152)
    assert cache / 1e9 == pytest.approx(14.7, abs=0.05)


def test_the_cache_is_what_a_loop_over_requests_layers_and_tokens_holds():
    held = 0
    for _request in range(3):
        for _layer in range(4):
            for _token in range(5):
                held += 2 * (6 + 7)
    assert kv_cache_bytes(3, 5, 4, bytes_per_token_layer=2 * (6 + 7)) == held


@given(capacity=SIZE, weights=SIZE, kv_cache=SIZE, buffers=SIZE, reserve=SIZE)
def test_free_is_capacity_less_the_sum(capacity, weights, kv_cache, buffers, reserve):
    free = free_bytes(capacity, weights, kv_cache, buffers, reserve)
    assert free == pytest.approx(capacity - (weights + kv_cache + buffers + reserve), rel=1e-12, abs=1e-2)


def test_too_much_is_negative():
    assert free_bytes(64e9, 60e9, 5e9, 0, 0) == -1e9


@given(
    ranks=st.integers(1, 768), tokens=st.integers(0, 512), copies=st.integers(1, 8), more=st.integers(0, 99)
)
def test_buffers_grow_with_ranks_tokens_and_copies(ranks, tokens, copies, more):
    slots = {"dispatch_message_bytes": 7680, "combine_message_bytes": 14336}
    held = exchange_buffer_bytes(ranks, tokens, copies=copies, **slots)
    assert exchange_buffer_bytes(ranks + more, tokens, copies=copies, **slots) >= held
    assert exchange_buffer_bytes(ranks, tokens + more, copies=copies, **slots) >= held
    assert exchange_buffer_bytes(ranks, tokens, copies=copies + more, **slots) >= held
