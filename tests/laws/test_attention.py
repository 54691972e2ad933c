import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm384model.laws import attention as laws
from cm384model.laws import mla as mla_laws
from cm384model.laws.roofline import roofline_time

MLA = {"heads": 128, "latent_dim": 512, "rope_dim": 64}
NAIVE = {"heads": 128, "qk_dim": 192, "v_dim": 128}
GQA = {"heads": 64, "kv_heads": 8, "head_dim": 128}
BF16 = {"kv_bytes": 2, "activation_bytes": 2}
HEADS_ONLY = {"heads": 64, "head_dim": 128}

COUNTS = [
    (mla_laws.mla_decode_flop, 2, MLA),
    (mla_laws.mla_decode_bytes, 3, MLA | BF16),
    (mla_laws.mla_prefill_flop, 2, NAIVE),
    (mla_laws.mla_prefill_bytes, 1, NAIVE | {"activation_bytes": 2}),
    (laws.attention_decode_flop, 2, HEADS_ONLY),
    (laws.attention_decode_bytes, 3, GQA | BF16),
    (laws.attention_prefill_flop, 2, HEADS_ONLY),
    (laws.attention_prefill_bytes, 1, GQA | {"activation_bytes": 2}),
    (mla_laws.kv_cache_bytes_per_token_mla, 1, {"latent_dim": 512, "rope_dim": 64, "kv_bytes": 2}),
    (laws.kv_cache_bytes_per_token_gqa, 1, {"kv_heads": 8, "head_dim": 128, "kv_bytes": 2}),
    (laws.attention_compute_time, 2, {"flop_rate": 376e12, "efficiency": 0.654, "half_length": 0.0}),
    (laws.attention_memory_time, 1, {"bandwidth": 1600e9, "efficiency": 0.841}),
]
ALL = pytest.mark.parametrize(("law", "arity", "constants"), COUNTS, ids=lambda x: getattr(x, "__name__", ""))


@ALL
def test_an_array_is_a_loop_of_scalars(law, arity, constants):
    axes = np.meshgrid(*([np.array([1.0, 7.0, 4096.0])] * arity), indexing="ij", sparse=True)
    whole = law(*axes, **constants)
    for where in np.ndindex(whole.shape):
        operands = [float(axis.ravel()[i]) for axis, i in zip(axes, where, strict=True)]
        assert whole[where] == pytest.approx(law(*operands, **constants), rel=1e-12)
    assert isinstance(law(*[2.0] * arity, **constants), float)


@ALL
@given(data=st.data())
def test_more_work_never_takes_less(law, arity, constants, data):
    operands = data.draw(st.lists(st.integers(1, 10**6), min_size=arity, max_size=arity))
    more = [n + data.draw(st.integers(0, 10**6)) for n in operands]
    assert law(*more, **constants) >= law(*operands, **constants)


def test_mla_decode_counts_every_multiply_and_add():
    heads, latent, rope, kv_len, requests, per_request = 3, 5, 2, 7, 2, 2
    flop, read, exchanged = 0, 0, 0
    for _ in range(requests):
        read += kv_len * (latent + rope)
        for _ in range(per_request * heads):
            exchanged += latent + rope + latent
            for _ in range(kv_len):
                flop += 2 * (latent + rope) + 2 * latent
    widths = {"heads": heads, "latent_dim": latent, "rope_dim": rope}
    tokens = requests * per_request
    assert mla_laws.mla_decode_flop(tokens, kv_len, **widths) == flop
    moved = mla_laws.mla_decode_bytes(requests, tokens, kv_len, **widths, kv_bytes=1, activation_bytes=4)
    assert moved == read + 4 * exchanged


def test_causal_attention_counts_every_pair_on_and_below_the_diagonal():
    heads, qk, v, length, prompts = 3, 6, 4, 9, 2
    naive = grouped = exchanged = 0
    for _ in range(prompts * heads):
        for query in range(length):
            exchanged += 2 * (qk + v)
            for _key in range(query + 1):
                naive += 2 * qk + 2 * v
                grouped += 4 * qk
    tokens = prompts * length
    assert mla_laws.mla_prefill_flop(tokens, length, heads=heads, qk_dim=qk, v_dim=v) == naive
    assert laws.attention_prefill_flop(tokens, length, heads=heads, head_dim=qk) == grouped
    moved = mla_laws.mla_prefill_bytes(tokens, heads=heads, qk_dim=qk, v_dim=v, activation_bytes=2)
    assert moved == 2 * exchanged


def test_grouped_query_attention_counts_keys_and_values_once_per_group():
    heads, kv_heads, width, kv_len, requests, per_request = 6, 2, 5, 7, 3, 2
    cached = requests * kv_heads * kv_len * 2 * width
    flop = exchanged = fresh = 0
    for _ in range(requests * per_request):
        fresh += 2 * kv_heads * width
        for _ in range(heads):
            exchanged += 2 * width
            flop += kv_len * (2 * width + 2 * width)
    tokens = requests * per_request
    assert laws.attention_decode_flop(tokens, kv_len, heads=heads, head_dim=width) == flop
    shape = {"heads": heads, "kv_heads": kv_heads, "head_dim": width}
    moved = laws.attention_decode_bytes(requests, tokens, kv_len, **shape, kv_bytes=1, activation_bytes=2)
    assert moved == cached + 2 * exchanged
    assert laws.attention_prefill_bytes(tokens, **shape, activation_bytes=2) == 2 * (exchanged + fresh)


def test_a_cached_prefix_is_the_difference_of_two_prompts():
    length, cached, width = 11, 4, {"heads": 2, "head_dim": 3}
    pairs = sum(query + 1 for query in range(cached, length))
    whole = laws.attention_prefill_flop(length, length, **width)
    prefix = laws.attention_prefill_flop(cached, cached, **width)
    assert whole - prefix == 4 * 2 * 3 * pairs


def test_prefill_of_one_token_is_decode_over_one_position():
    assert laws.attention_prefill_flop(5, 1, **HEADS_ONLY) == laws.attention_decode_flop(5, 1, **HEADS_ONLY)


def test_one_group_per_head_is_multi_head_attention():
    shape = {"heads": 8, "kv_heads": 8, "head_dim": 128, "activation_bytes": 2}
    naive = mla_laws.mla_prefill_bytes(100, heads=8, qk_dim=128, v_dim=128, activation_bytes=2)
    assert laws.attention_prefill_bytes(100, **shape) == naive


def test_the_cache_of_deepseek_r1():
    widths = {"latent_dim": 512, "rope_dim": 64, "kv_bytes": 2}
    assert mla_laws.kv_cache_bytes_per_token_mla(61, **widths) == 70_272
    read = mla_laws.mla_decode_bytes(1, 0, 1, heads=128, **widths, activation_bytes=2)
    assert mla_laws.kv_cache_bytes_per_token_mla(1, **widths) == read


def mla_time(tokens_per_request, heads, *, kv_len=131_072, overlap=1.0):
    """Decode attention of 16 requests on a CloudMatrix384 die, with its flop and bytes."""
    widths = {"heads": heads, "latent_dim": 512, "rope_dim": 64}
    tokens = 16 * tokens_per_request
    flop = mla_laws.mla_decode_flop(tokens, kv_len, **widths)
    moved = mla_laws.mla_decode_bytes(16, tokens, kv_len, **widths, **BF16)
    compute = laws.attention_compute_time(flop, kv_len, flop_rate=376e12, efficiency=0.654, half_length=0)
    memory = laws.attention_memory_time(moved, bandwidth=1600e9, efficiency=0.841)
    return flop, moved, roofline_time(compute, memory, overlap=overlap, launch_latency=10e-6)


def test_long_context_reaches_the_published_utilisation_of_the_cube_cores():
    flop, _, time = mla_time(2, 128)
    assert flop / time == pytest.approx(246e12, rel=0.02)


def test_few_heads_reach_the_published_bandwidth():
    _, moved, time = mla_time(1, 16)
    assert moved / time == pytest.approx(1346e9, rel=0.02)


@pytest.mark.parametrize(("tokens", "heads"), [(16, 128), (1, 4)])
def test_the_limits_hold_without_perfect_overlap(tokens, heads):
    *_, hidden = mla_time(tokens, heads)
    *_, exposed = mla_time(tokens, heads, overlap=0.77)
    assert exposed == pytest.approx(hidden, rel=0.02)


def test_a_prompt_of_half_length_runs_at_half_efficiency():
    rates = {"flop_rate": 376e12, "efficiency": 0.5, "half_length": 1430}
    long = laws.attention_compute_time(1e12, 1e12, **rates)
    assert long == pytest.approx(1e12 / 188e12)
    assert laws.attention_compute_time(1e12, 1430, **rates) == pytest.approx(2 * long)


@pytest.mark.parametrize(
    ("prompts", "length", "heads", "kv_heads", "measured"),
    [
        (1, 4096, 64, 8, 2120.75e-6),
        (1, 8192, 8, 1, 894.48e-6),
        (1, 8192, 64, 1, 6930.68e-6),
        (8, 4096, 8, 8, 2179.44e-6),
        (8, 4096, 64, 8, 17806.91e-6),
    ],
)
def test_causal_prefill_on_a_die_within_a_tenth(prompts, length, heads, kv_heads, measured):
    tokens = prompts * length
    flop = laws.attention_prefill_flop(tokens, length, heads=heads, head_dim=128)
    shape = {"heads": heads, "kv_heads": kv_heads, "head_dim": 128}
    moved = laws.attention_prefill_bytes(tokens, **shape, activation_bytes=2)
    compute = laws.attention_compute_time(flop, length, flop_rate=376e12, efficiency=0.49, half_length=1430)
    memory = laws.attention_memory_time(moved, bandwidth=1600e9, efficiency=0.75)
    time = roofline_time(compute, memory, overlap=0.75, launch_latency=70e-6)
    assert time == pytest.approx(measured, rel=0.1)
