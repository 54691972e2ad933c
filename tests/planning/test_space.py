"""The space of candidates: sizes, masks, chunks."""

from __future__ import annotations

import time

import numpy as np
import pytest

from cm384model.planning import space
from cm384model.planning.pairs import Slo
from cm384model.planning.search import plan_case


@pytest.mark.parametrize(
    ("npus", "sizes"), [(4, []), (8, [16]), (15, [16]), (16, [16, 32]), (384, list(range(16, 769, 16)))]
)
def test_instances_fill_whole_nodes(case, npus, sizes):
    assert list(space.instance_sizes(case, npus)) == sizes


def test_instances_do_not_exceed_the_supernode(case):
    assert space.instance_sizes(case, 10_000).max() == 768


@pytest.mark.parametrize("chunk", [1, 7, 24, 10**6])
def test_chunks_change_nothing(monkeypatch, chunk):
    monkeypatch.setattr(space, "CHUNK", chunk)
    axes = {"a": np.arange(5.0), "b": np.arange(1.0, 4.0), "c": np.array([2.0, 3.0])}

    def predict(a, b, c):
        return {"sum": a + b * c, "a": a}, {"odd": (a + b) % 2 == 1}

    found = space.evaluate(axes, predict)
    assert found.shape == (5, 3, 2)
    assert found.size == 30
    for i, j, k in np.ndindex(found.shape):
        assert found.values["sum"][i, j, k] == i + (j + 1) * (k + 2)
        assert found.values["a"][i, j, k] == i
        assert found.feasible[i, j, k] == ((i + j + 1) % 2 == 0)
        assert found.at((i, j, k)) == {"a": i, "b": j + 1, "c": k + 2}
    assert found.counts() == {"odd": int((~found.feasible).sum())}


def test_masks_of_decode(case):
    found = space.decode_candidates(case, 64, 0.05)
    assert list(found.axes) == ["ep", "batch_per_die", "attention_aic_share", "draft_tokens"]
    assert np.array_equal(found.reasons["tpot"], found.values["tpot"] > 0.05)
    assert np.array_equal(found.reasons["hbm"], found.values["free"] < 0)
    assert found.reasons["microbatch"][:, 0, 1:].all()
    assert not found.reasons["microbatch"][:, 1:].any()
    assert not found.reasons["microbatch"][:, :, 0].any()


def test_masks_of_prefill(case):
    found = space.prefill_candidates(case, 64, 2.0)
    ep, tokens, microbatches = np.meshgrid(*found.axes.values(), indexing="ij")
    assert np.array_equal(found.reasons["ttft"], found.values["batch_time"] > 2.0)
    assert np.array_equal(found.reasons["prompt"], tokens * ep / 2 / 4096 < microbatches)


def test_the_default_case_has_half_a_million_candidates_and_takes_seconds(case):
    """A guard against another order of magnitude; the bar of 1.5 s is measured in ``benchmarks/``."""
    started = time.perf_counter()
    result = plan_case(case, 384, Slo(0.05, 5.0), 5)
    assert time.perf_counter() - started < 5.0
    assert result.candidates >= 500_000
    assert result.feasible
    assert len(result.plans) == 5
