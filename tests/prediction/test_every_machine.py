"""Every shipped model on every shipped machine: finite, positive, monotone, or refused with a reason."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cm384model import api
from cm384model.planning import search
from cm384model.planning.request import Request, Slo
from cm384model.prediction.capacity import fit_case
from cm384model.prediction.case import load_case
from cm384model.prediction.decode import decode_step
from cm384model.prediction.evaluate import filled_decode, filled_prefill, predict_decode, predict_prefill
from cm384model.prediction.operators import precisions_of
from cm384model.prediction.prefill import prefill_batch
from cm384model.specs.catalogue import names
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.load import load_engine, load_hardware, load_model

MACHINES, MODELS = names("hardware"), names("model")
BATCHES = np.array([1.0, 2.0, 8.0, 31.0, 32.0, 128.0, 500.0])
CONTEXTS = np.array([1.0, 256.0, 4096.0, 4097.0, 65536.0, 1048576.0])
TOKENS = np.array([4096.0, 8192.0, 16384.0, 65536.0])
MODEL_SPECS = {name: load_model(name) for name in MODELS}


@pytest.fixture(params=MACHINES)
def machine(request):
    return load_hardware(request.param)


def case_on(case, machine, model):
    """The model on the machine with its usual engine, in a precision that the machine has."""
    engine = load_engine(machine.engine or case.engine.name)
    if model.precision.weights not in precisions_of(machine):
        settings = {"weights": "fp8", "activations": "fp8"}
        model = model.model_copy(update={"precision": model.precision.model_copy(update=settings)})
    return replace(case, hardware=machine, engine=engine, model=model)


def sizes(machine):
    """Instances of one node, and of as many as eight: beyond the scale-up network where that is small."""
    node = int(machine.dies_per_node)
    return node, min(8 * node, int(machine.total_dies))


def check_rising(values):
    assert np.all(np.isfinite(values))
    assert np.all(values > 0)
    assert np.all(np.diff(values, axis=-1) >= -1e-9 * values[..., :-1])


def check_terms(result):
    for term in result.terms:
        for amount in (term.time, term.flop, term.bytes):
            assert np.all(np.isfinite(amount)), term.name
            assert np.all(np.asarray(amount) >= 0), term.name
    ledger = result.memory
    used = ledger.weights + ledger.kv_cache + ledger.buffers + ledger.reserve
    np.testing.assert_allclose(used + ledger.free, ledger.capacity, atol=1.0)


def test_decode(case, machine):
    for model in MODEL_SPECS.values():
        here = case_on(case, machine, model)
        ep = np.array(sizes(machine), dtype=float)[:, None, None]
        for microbatches in (1.0, 2.0):
            given = {"ep": ep, "microbatches": microbatches, "attention_aic_share": 0.5}
            load = {"batch_per_die": BATCHES[:, None], "kv_len": CONTEXTS}
            step = decode_step(here.system, filled_decode(here, given | load))
            check_terms(step)
            check_rising(np.asarray(step.tpot))
            check_rising(np.moveaxis(np.asarray(step.tpot), 1, -1))
            assert np.all(np.diff(step.memory.free, axis=-1) <= 1e-6)


def test_prefill(case, machine):
    for model in MODEL_SPECS.values():
        here = case_on(case, machine, model)
        ep = np.array(sizes(machine), dtype=float)[:, None, None]
        load = {"ep": ep, "tokens_per_npu": TOKENS, "prompt_len": np.array([512.0, 4096.0])[:, None]}
        batch = prefill_batch(here.system, filled_prefill(here, load))
        check_terms(batch)
        check_rising(np.asarray(batch.batch_time))
        check_rising(np.moveaxis(np.asarray(batch.batch_time), 1, -1))


def test_predictions_say_what_they_rest_on(case, machine):
    """One deployment each way: a time with the machine's notes, or none with a reason."""
    for model in MODEL_SPECS.values():
        here = case_on(case, machine, model)
        for ep in sizes(machine):
            beyond = {"scale_out": "yes"}
            for prediction, time in (
                (predict_decode(here, {"ep": ep, "batch_per_die": 4} | beyond), "tpot_s"),
                (predict_prefill(here, {"ep": ep, "tokens_per_npu": 8192} | beyond), "batch_time_s"),
            ):
                assert set(machine.notes()) <= set(prediction.notes)
                assert (ep > machine.dies_per_supernode) == any("spans" in n for n in prediction.notes)
                if prediction.feasible:
                    assert 0 < getattr(prediction, time) < math.inf
                else:
                    assert all(reason.startswith("hbm: ") for reason in prediction.reasons)


def test_plan(case, machine, monkeypatch):
    """Two nodes; without the worth of single changes, which plans eight times more."""
    monkeypatch.setattr(search, "marginals", lambda *_: ("", ()))
    npus = min(2 * int(machine.npus_per_node), int(machine.total_npus))
    without = frozenset({"microbatch", "mtp", "attention-tp", "redundancy"})
    request = Request(npus=npus, slo=Slo(tpot=0.2, ttft=60.0), top=1, without=without)
    feasible = 0
    for model in MODEL_SPECS.values():
        here = case_on(case, machine, model)
        result = search.plan_case(here, request)
        assert set(machine.notes()) <= set(result.notes)
        if result.infeasible is not None:
            assert result.infeasible.constraint
            continue
        (best,) = result.plans
        feasible += 1
        assert 0 < best.requests_per_s < math.inf
        assert best.npus <= npus
        assert best.tpot_s <= 0.2
        assert max(best.decode.ep, best.prefill.ep) <= machine.dies_per_supernode
        layout = ("ep", "batch_per_die", "attention_tp", "expert_tp", "redundant_experts")
        again = predict_decode(here, {name: getattr(best.decode, name) for name in layout})
        assert again.tpot_s == pytest.approx(best.tpot_s, rel=1e-9)
    assert feasible, "no model at all on two nodes"


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_fit(case, machine, phase):
    """Every model on some machines, every machine with some models."""
    first = MACHINES.index(machine.name)
    for model in [MODEL_SPECS[MODELS[(first + 5 * i) % len(MODELS)]] for i in range(2)]:
        here = case_on(case, machine, model)
        found = fit_case(here, phase)
        assert found.notes[: len(machine.notes())] == machine.notes()
        for instance in found.instances:
            assert sum(part.size_bytes for part in instance.ledger) == pytest.approx(instance.capacity_bytes)
            assert instance.feasible == (instance.free_bytes >= 0)
            batches = [point.batch for point in instance.by_context]
            assert batches == sorted(batches, reverse=True)
        if not found.feasible:
            assert found.reasons


def test_a_format_that_a_machine_lacks_is_refused_with_those_it_has(case, machine):
    known = precisions_of(machine)
    assert known
    lacking = [word for word in ("int8", "fp8") if word not in known]
    for word in lacking:
        precision = case.model.precision.model_copy(update={"weights": word, "activations": word})
        here = replace(
            case,
            hardware=machine,
            engine=load_engine(machine.engine or case.engine.name),
            model=case.model.model_copy(update={"precision": precision}),
        )
        with pytest.raises(SpecError, match=f"{machine.name} has no product in {word}") as caught:
            predict_decode(here, {"ep": sizes(machine)[0], "batch_per_die": 1})
        assert ("only the peak" in str(caught.value)) == bool(machine.flop_rate(word) > 0)
        hint = caught.value.problems[0].hint
        assert all(format_ in hint for format_ in known)
        assert "--set model.precision.weights=" in hint


def test_the_dies_that_share_attention_stay_while_the_memory_of_a_die_varies():
    case = load_case("qwen3-32b-4k-1k", hardware="ascend-950dt-32core", model="llama-3.1-70b")
    found = api.predict(case, at={"ep": 160, "batch_per_die": 0.5, "scale_out": "yes"})
    assert found.tpot_s_low < found.tpot_s < found.tpot_s_high
