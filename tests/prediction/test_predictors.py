"""The decode step and the prefill batch: conservation, limits, monotony, grids, memory, recording."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cm384model.prediction.case import load_case
from cm384model.prediction.decode import decode_step
from cm384model.prediction.prefill import prefill_batch
from cm384model.prediction.serving import kv_transfer_time, request_kv_bytes
from cm384model.prediction.terms import BOUNDS
from cm384model.recording import recording

SYSTEMS = [
    ("cloudmatrix384", "cloudmatrix-infer"),
    ("cloudmatrix384", "sglang-ascend"),
    ("cloudmatrix384", "vllm-ascend"),
    ("h800", "deepseek-h800"),
]
MOE_TERMS = {"mla_prolog", "attention_core", "o_proj", "attention_vector", "gate", "dispatch", "experts"}
MOE_TERMS |= {"combine", "sync", "latent_gather", "head_exchange"}
FEW = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module", params=SYSTEMS, ids="/".join)
def system(request):
    hardware, engine = request.param
    fp8 = ["model.precision.weights=fp8", "model.precision.activations=fp8"] if hardware == "h800" else []
    return load_case("deepseek-r1-4k-256", hardware=hardware, engine=engine, settings=fp8).system


@pytest.fixture(scope="module")
def r1(case):
    return case.system


def leaves(term):
    """The terms without children below a term, itself included."""
    if not term.children:
        return [term]
    return [leaf for child, count in term.children if np.any(count) for leaf in leaves(child)]


def by_name(terms):
    return {term.name: term for term in terms}


# --- conservation ---------------------------------------------------------------------------------------


@FEW
@given(data=st.data())
def test_the_terms_of_a_decode_step_add_up(system, decode_values, decode_deployment, data):
    d = decode_deployment(**data.draw(st.fixed_dictionaries(decode_values)))
    step = decode_step(system, d)
    assert sum(term.time for term in step.terms) - step.hidden_time == pytest.approx(
        step.step_time, rel=1e-12
    )
    if d.microbatches == 1:
        assert step.hidden_time == 0
    streams = min(step.attention_stream_time, step.expert_stream_time)
    moe_layers = system.model.architecture.layers.si - system.model.architecture.dense_layers.si
    assert 0 <= step.hidden_time <= 2 * moe_layers * streams * (1 + 1e-12)
    rest = sum(term.time for term in step.terms if term.name not in MOE_TERMS)
    assert moe_layers * step.layer_time + rest == pytest.approx(step.step_time, rel=1e-12)
    assert step.tpot * step.tokens_per_step == pytest.approx(step.step_time, rel=1e-12)
    per_npu = d.batch_per_die * system.hardware.dies_per_npu
    assert step.throughput * step.step_time == pytest.approx(per_npu * step.tokens_per_step, rel=1e-12)


@FEW
@given(data=st.data())
def test_the_terms_of_a_prefill_batch_add_up(system, prefill_values, prefill_deployment, data):
    d = prefill_deployment(**data.draw(st.fixed_dictionaries(prefill_values)))
    batch = prefill_batch(system, d)
    total = sum(term.time for term in batch.terms)
    assert total - batch.hidden_time == pytest.approx(batch.batch_time, rel=1e-12)
    stored = sum(term.time for term in batch.terms if term.name == "cache_store")
    assert (stored > 0) == (d.reuse > 0)
    if d.microbatches == 1:
        assert batch.hidden_time == stored
    assert 0 <= batch.hidden_time - stored <= total / 2
    moe_layers = system.model.architecture.layers.si - system.model.architecture.dense_layers.si
    rest = sum(term.time for term in batch.terms if term.name not in MOE_TERMS) - stored
    assert moe_layers * batch.layer_time + rest == pytest.approx(batch.batch_time, rel=1e-12)
    assert batch.interval == pytest.approx(batch.batch_time + stored, rel=1e-12)
    assert batch.throughput * batch.interval == pytest.approx(d.tokens_per_npu, rel=1e-12)


@FEW
@given(data=st.data())
def test_every_term_is_sound(
    system, decode_values, decode_deployment, prefill_values, prefill_deployment, data
):
    step = decode_step(system, decode_deployment(**data.draw(st.fixed_dictionaries(decode_values))))
    batch = prefill_batch(system, prefill_deployment(**data.draw(st.fixed_dictionaries(prefill_values))))
    for term in [*step.terms, *batch.terms]:
        assert term.time >= 0
        assert np.isfinite(term.time)
        assert term.flop >= 0
        assert term.bytes >= 0
        assert term.bound in BOUNDS
        parts = [term.part(bound) for bound in BOUNDS]
        assert all(part >= -1e-15 for part in parts)
        assert term.time <= sum(parts) * (1 + 1e-9)
    assert len({term.name for term in step.terms}) == len(step.terms)
    assert len({term.name for term in batch.terms}) == len(batch.terms)


@FEW
@given(data=st.data())
def test_no_term_is_quicker_than_its_slowest_part(system, decode_values, decode_deployment, data):
    step = decode_step(system, decode_deployment(**data.draw(st.fixed_dictionaries(decode_values))))
    for leaf in (leaf for term in step.terms for leaf in leaves(term)):
        assert leaf.time >= max(leaf.part(bound) for bound in BOUNDS) * (1 - 1e-9)


# --- limits ---------------------------------------------------------------------------------------------


def test_a_single_die_moves_nothing_over_the_fabric(r1, decode_deployment, prefill_deployment):
    step = by_name(decode_step(r1, decode_deployment(ep=1.0)).terms)
    batch = by_name(prefill_batch(r1, prefill_deployment(ep=1.0)).terms)
    for terms, names in ((step, ("dispatch", "combine")), (batch, ("dispatch", "combine"))):
        assert [terms[name].bytes for name in names] == [0, 0]
    for name in ("latent_gather", "head_exchange"):
        assert (batch[name].bytes, batch[name].time) == (0, 0)


def test_two_dies_exchange_half_of_the_messages(r1, decode_deployment):
    terms = by_name(decode_step(r1, decode_deployment(ep=2.0, imbalance=1.0)).terms)
    messages = 58 * 96 * 8 / 2
    assert terms["dispatch"].bytes == pytest.approx(messages * (7168 + 512))
    assert terms["combine"].bytes == pytest.approx(messages * 2 * 7168)


@pytest.mark.parametrize("ep", [1.0, 16.0, 32.0, 144.0, 320.0, 768.0])
def test_a_large_batch_is_bound_by_compute_and_a_small_one_by_memory(r1, decode_deployment, ep):
    experts = {
        batch: by_name(
            decode_step(r1, decode_deployment(ep=ep, batch_per_die=batch, microbatches=1.0)).terms
        )["experts"]
        for batch in (1.0, 1e5)
    }
    assert experts[1e5].bound == "compute"
    assert experts[1.0].bound == "memory"
    used = experts[1e5].flop / experts[1e5].time / r1.hardware.die.int8_flop_rate.si
    side_by_side = 2 if ep > 256 else 1  # routed and shared experts on dies of their own
    assert 0.3 < used < side_by_side * r1.hardware.ops.gemm_int8.efficiency.si


def test_few_heads_or_long_context_never_beat_the_peak(r1, decode_deployment):
    for kv_len in (1.0, 1e3, 1e5):
        core = by_name(decode_step(r1, decode_deployment(kv_len=kv_len, microbatches=1.0)).terms)
        core = core["attention_core"]
        assert core.flop / core.time < r1.hardware.die.bf16_flop_rate.si
        assert core.bytes / core.time < r1.hardware.die.hbm_bandwidth.si


DECODE_STEPS = {
    "batch_per_die": np.arange(1.0, 257.0),
    "kv_len": np.geomspace(1, 131072, 60),
    "draft_tokens": np.arange(4.0),
    "imbalance": np.linspace(1, 4, 60),
}


@pytest.mark.parametrize("name", DECODE_STEPS)
@pytest.mark.parametrize("microbatches", [1.0, 2.0])
@pytest.mark.parametrize("ep", [1.0, 32.0, 144.0, 320.0, 768.0])
def test_a_decode_step_grows_with_its_load(system, decode_deployment, name, microbatches, ep):
    d = decode_deployment(ep=ep, microbatches=microbatches, **{name: DECODE_STEPS[name]})
    times = np.broadcast_to(decode_step(system, d).step_time, DECODE_STEPS[name].shape)
    assert np.all(np.diff(times) >= -1e-12 * times[1:])
    if name != "imbalance" or ep > 1:  # one die has all rows, however they fall on the experts
        assert times[-1] > times[0]


def test_acceptance_lowers_tpot_and_leaves_the_step_alone(system, decode_deployment):
    step = decode_step(system, decode_deployment(acceptance=np.linspace(0, 1, 20)))
    assert np.all(np.diff(step.tpot) < 0)
    assert np.ndim(step.step_time) == 0


PREFILL_STEPS = {
    "tokens_per_npu": np.arange(1024.0, 65537.0, 1024.0),
    "prompt_len": np.geomspace(64, 65536, 40),
    "imbalance": np.linspace(1, 4, 40),
}


@pytest.mark.parametrize("name", PREFILL_STEPS)
@pytest.mark.parametrize("microbatches", [1.0, 2.0])
@pytest.mark.parametrize("ep", [2.0, 32.0, 320.0])
def test_a_prefill_batch_grows_with_its_load(r1, prefill_deployment, name, microbatches, ep):
    d = prefill_deployment(ep=ep, microbatches=microbatches, **{name: PREFILL_STEPS[name]})
    times = prefill_batch(r1, d).batch_time
    head = by_name(prefill_batch(r1, d).terms)["lm_head"].time  # fewer prompts, fewer last tokens
    assert np.all(np.diff(times - head) >= -1e-12 * times[1:])
    assert times[-1] > times[0]


def test_reuse_of_context_saves_time_and_costs_a_fetch(r1, prefill_deployment):
    reuse = np.linspace(0, 0.9, 10)
    batch = prefill_batch(r1, prefill_deployment(reuse=reuse))
    fetch = by_name(batch.terms)["cache_load"].time
    assert fetch[0] == 0
    assert np.all(np.diff(fetch) > 0)
    assert np.all(np.diff(batch.batch_time) < 0)
    over_vpc = prefill_batch(r1, prefill_deployment(reuse=reuse, plane="vpc")).batch_time
    assert over_vpc[0] == batch.batch_time[0]
    assert np.all(over_vpc[1:] > batch.batch_time[1:])


def test_every_ep_degree_predicts_something_sound(system, decode_deployment, prefill_deployment):
    """Up to 768 dies, three times the routed experts: redundant and shared copies fill the rest."""
    ep = np.arange(1.0, 769.0)
    step = decode_step(system, decode_deployment(ep=ep))
    batch = prefill_batch(system, prefill_deployment(ep=ep))
    for values in (step.step_time, step.memory.weights, batch.batch_time, batch.memory.weights):
        assert np.all(np.isfinite(values) & (values > 0))
    assert np.all(step.placement.pool_dies + step.placement.shared_dies == ep)
    assert np.all(step.placement.copies >= 256)
    beyond = step.memory.parts["routed_experts"][ep >= 288]
    assert np.all(beyond == beyond[0])


def test_kv_transfer_is_the_cache_over_the_port(case):
    """4,096 tokens x 61 layers x 576 BF16 numbers over 200 Gbit/s; the MTP layer fills its own."""
    size = 4096 * 61 * 576 * 2
    assert request_kv_bytes(case) == size
    assert kv_transfer_time(case) == pytest.approx(size / 25e9, rel=1e-3)


# --- one code path for scalars and grids ------------------------------------------------------------------


def axes_of(data, values):
    """A few values for each field along an axis of its own, and their 1-D form."""
    flat = {
        name: np.array(data.draw(st.lists(strategy, min_size=1, max_size=3), label=name))
        for name, strategy in values.items()
    }
    sparse = np.meshgrid(*flat.values(), indexing="ij", sparse=True)
    return flat, dict(zip(flat, sparse, strict=True))


def at(value, where, shape):
    return np.broadcast_to(value, shape)[where]


def assert_same(grid, scalar, where, shape, names):
    for name in names:
        expected = getattr(scalar, name)
        assert np.ndim(expected) == 0
        assert at(getattr(grid, name), where, shape) == pytest.approx(expected, rel=1e-12, abs=1e-15), name
    for of_grid, of_scalar in zip(grid.terms, scalar.terms, strict=True):
        assert of_grid.name == of_scalar.name
        for name in ("time", "flop", "bytes"):
            value = at(getattr(of_grid, name), where, shape)
            assert value == pytest.approx(getattr(of_scalar, name), rel=1e-12, abs=1e-15)
    for name in ("weights", "kv_cache", "buffers", "reserve", "free"):
        expected = getattr(scalar.memory, name)
        assert at(getattr(grid.memory, name), where, shape) == pytest.approx(expected, rel=1e-12, abs=1e-3)


@FEW
@given(data=st.data())
def test_a_decode_grid_is_a_loop_of_scalars(system, decode_values, decode_deployment, data):
    flat, sparse = axes_of(data, decode_values)
    shape = tuple(len(values) for values in flat.values())
    grid = decode_step(system, decode_deployment(**sparse))
    for position in data.draw(st.lists(st.integers(0, int(np.prod(shape)) - 1), min_size=3, max_size=6)):
        where = tuple(int(i) for i in np.unravel_index(position, shape))
        values = {name: float(flat[name][i]) for name, i in zip(flat, where, strict=True)}
        scalar = decode_step(system, decode_deployment(**values))
        names = ["tpot", "step_time", "layer_time", "hidden_time", "throughput", "tokens_per_step"]
        assert_same(grid, scalar, where, shape, names)


@FEW
@given(data=st.data())
def test_a_prefill_grid_is_a_loop_of_scalars(system, prefill_values, prefill_deployment, data):
    flat, sparse = axes_of(data, prefill_values)
    shape = tuple(len(values) for values in flat.values())
    grid = prefill_batch(system, prefill_deployment(**sparse))
    for position in data.draw(st.lists(st.integers(0, int(np.prod(shape)) - 1), min_size=3, max_size=6)):
        where = tuple(int(i) for i in np.unravel_index(position, shape))
        values = {name: float(flat[name][i]) for name, i in zip(flat, where, strict=True)}
        scalar = prefill_batch(system, prefill_deployment(**values))
        assert_same(grid, scalar, where, shape, ["batch_time", "throughput", "layer_time", "hidden_time"])


def test_a_grid_is_a_hundred_times_quicker_than_a_loop(r1, decode_deployment):
    """What `np.vectorize` or a loop over calls would break."""
    axes = 16 * np.arange(1.0, 49.0), np.arange(1.0, 97.0), np.arange(1.0, 13.0) / 13, np.arange(4.0)

    def seconds_each(ep, batch, share, drafts):
        d = decode_deployment(ep=ep, batch_per_die=batch, attention_aic_share=share, draft_tokens=drafts)
        started = time.process_time()
        size = np.size(decode_step(r1, d).tpot)
        return (time.process_time() - started) / size

    one = min(seconds_each(320.0, 48.0, 0.5, 1.0) for _ in range(5))
    assert seconds_each(*np.meshgrid(*axes, indexing="ij", sparse=True)) < one / 100


# --- memory -----------------------------------------------------------------------------------------------


@FEW
@given(data=st.data())
def test_the_memory_ledger_adds_up(
    system, decode_values, decode_deployment, prefill_values, prefill_deployment, data
):
    step = decode_step(system, decode_deployment(**data.draw(st.fixed_dictionaries(decode_values))))
    batch = prefill_batch(system, prefill_deployment(**data.draw(st.fixed_dictionaries(prefill_values))))
    for m in (step.memory, batch.memory):
        assert all(size >= 0 for size in m.parts.values())
        assert sum(m.parts.values()) == pytest.approx(m.weights + m.buffers, rel=1e-12)
        used = m.weights + m.kv_cache + m.buffers + m.reserve
        assert m.capacity - used == pytest.approx(m.free, rel=1e-12, abs=1)
        assert m.capacity == system.hardware.die.hbm_capacity.si


def test_the_cache_of_a_decode_die(r1, decode_deployment):
    """The paper's 96 requests per NPU at 4K: 48 x 4224 tokens, 62 layers with the MTP layer."""
    with_drafts = decode_step(r1, decode_deployment()).memory
    without = decode_step(r1, decode_deployment(draft_tokens=0.0)).memory
    assert with_drafts.kv_cache == 48 * 4224 * 62 * 1152
    assert without.kv_cache == 48 * 4224 * 61 * 1152


def test_buffers_of_the_paper_in_the_ledger(r1, decode_deployment):
    """320 ranks and 96 tokens: 645 MiB."""
    assert decode_step(r1, decode_deployment()).memory.parts["exchange_buffers"] == 645 * 2**20


# --- recording ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(case, decode_deployment, prefill_deployment):
    with recording() as entries:
        step = decode_step(case.system, decode_deployment())
        batch = prefill_batch(case.system, prefill_deployment())
    return step, batch, entries


def test_under_recording_every_term_knows_what_made_it(recorded):
    step, batch, entries = recorded
    assert entries
    for term in [*step.terms, *batch.terms]:
        assert term.calls, term.name
        for leaf in leaves(term):
            assert leaf.calls, f"{term.name}/{leaf.name}"


def test_outside_recording_nothing_is_kept(r1, decode_deployment, prefill_deployment):
    terms = decode_step(r1, decode_deployment()).terms + prefill_batch(r1, prefill_deployment()).terms
    assert all(not term.calls for term in terms)
    assert all(not leaf.calls for term in terms for leaf in leaves(term))


def test_recording_changes_no_number(r1, recorded, decode_deployment, prefill_deployment):
    step, batch, _ = recorded
    assert decode_step(r1, decode_deployment()).step_time == step.step_time
    assert prefill_batch(r1, prefill_deployment()).batch_time == batch.batch_time
