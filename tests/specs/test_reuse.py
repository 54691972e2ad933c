"""Hit rate by the size of the cache: tables, traces, and what is wrong with a file."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm384model.specs.diagnostics import SpecError
from cm384model.specs.reuse import ReuseCurve, curve_of, read_reuse_curve
from cm384model.specs.traces import read_trace

SHARED = Path(__file__).parents[3] / "shared" / "traces" / "mooncake_conversation.jsonl"
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
TABLE = "capacity_tokens,hit_rate\n1e6,10%\n2000000,0.3\n\n4M,0.3\n8M,0.45\n"


@pytest.fixture
def written(tmp_path):
    def write(text, name="curve.csv"):
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        return file

    return write


def test_a_table_is_read_with_units_and_percents(written):
    curve = read_reuse_curve(written(TABLE))
    assert curve.unit == "tokens"
    assert curve.size.tolist() == [1e6, 2e6, 4 * 1024**2, 8 * 1024**2]
    assert curve.hit_rate.tolist() == [0.1, 0.3, 0.3, 0.45]
    assert (curve.stepped, curve.token_rate, curve.requests_per_s) == (False, None, None)
    other = read_reuse_curve(written("hit_rate, capacity_bytes\n0.2, 1.5 TB\n"))
    assert (other.unit, other.size.tolist()) == ("bytes", [1.5e12])
    assert read_reuse_curve(written("capacity_blocks,hit_rate\n100,0.2\n")).unit == "blocks"


def test_a_table_is_a_line_through_its_points_and_zero(written):
    curve = read_reuse_curve(written(TABLE))
    sizes = [0, 5e5, 1e6, 1.5e6, 3e6, 8 * 1024**2, 1e12]
    assert curve.at(np.array(sizes)) == pytest.approx([0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.45])


@given(
    steps=st.lists(st.tuples(st.floats(1, 1e6), st.floats(0, 0.04)), min_size=1, max_size=20),
    share=st.floats(0.001, 1),
    stepped=st.booleans(),
)
def test_the_size_for_a_hit_rate_is_the_smallest(steps, share, stepped):
    sizes, rates = np.cumsum(np.array(steps), axis=0).T
    if rates[-1] < 1e-6:
        return
    curve = ReuseCurve("tokens", sizes, rates, stepped=stepped)
    asked = share * rates[-1]
    size = float(curve.size_for(asked))
    assert curve.at(size * (1 + 1e-12)) >= asked * (1 - 1e-9)
    assert curve.at(size * (1 - 1e-9)) < asked * (1 + 1e-9)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("capacity_tokns,hit_rate\n1,0.1\n", 1, "Did you mean 'capacity_tokens'?"),
        ("capacity_tokens,capacity_bytes\n1,2\n", 1, "needs one column of sizes and one of hit rates"),
        ("capacity_tokens,hit_rate,note\n1,0.1,x\n", 1, "unknown column 'note'"),
        ("capacity_tokens,hit_rate\n", 1, "has no sizes"),
        ("capacity_tokens,hit_rate\n1,0.1\n1,0.2\n", 3, "sizes must rise"),
        ("capacity_tokens,hit_rate\n0,0.1\n", 2, "sizes must rise"),
        ("capacity_tokens,hit_rate\n1,0.2\n2,0.1\n", 3, "never falls"),
        ("capacity_tokens,hit_rate\n1,1\n", 2, "below 1"),
        ("capacity_tokens,hit_rate\n1,0.1,5\n", 2, "needs 2 values, has 3"),
        ("capacity_tokens,hit_rate\n1,many\n", 2, "is not a value"),
        ("capacity_tokens,hit_rate\nnan,0.1\n", 2, "must be finite"),
        ("capacity_bytes,hit_rate\n1 s,0.1\n", 2, "measures a time"),
        ("capacity_bytes,hit_rate\n1 TB,-1\n", 2, "must be finite and not negative"),
        ("hello\n", 1, "neither a table of hit rates nor a trace"),
        ("", 1, "neither a table of hit rates nor a trace"),
    ],
)
def test_a_faulty_file_is_one_error_at_its_line(written, text, line, said):
    with pytest.raises(SpecError) as error:
        read_reuse_curve(written(text))
    (problem,) = error.value.problems
    assert said in problem.message
    assert (problem.line, problem.hint is None) == (line, False)


def test_a_file_that_is_not_there_and_a_trace_without_blocks(written):
    with pytest.raises(SpecError, match="cannot read"):
        read_reuse_curve("nowhere.csv")
    azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    azure += "2023-11-16 18:15:46.68,374,44\n2023-11-16 18:15:50.68,396,109\n"
    with pytest.raises(SpecError, match="no prefix blocks"):
        read_reuse_curve(written(azure))


# --- traces -------------------------------------------------------------------------------------------------

PROMPTS = st.lists(
    st.tuples(st.lists(st.integers(0, 12), min_size=1, max_size=6, unique=True), st.integers(1, 512)),
    min_size=2,
    max_size=40,
)


@given(PROMPTS)
def test_the_curve_of_a_trace_is_that_of_a_cache_that_is_played(tmp_path_factory, prompts):
    """In tokens: the last block of a prompt holds what is left of it."""
    rows = [
        {
            "timestamp": 1000 * time,
            "input_length": 512 * (len(blocks) - 1) + last,
            "output_length": 1,
            "hash_ids": blocks,
        }
        for time, (blocks, last) in enumerate(prompts)
    ]
    file = tmp_path_factory.mktemp("traces") / "trace.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    curve = read_reuse_curve(file)
    total = sum(row["input_length"] for row in rows)
    for blocks in (1, 2, 3, 5, 8, 20):
        played = found_tokens(prompts, blocks) / total
        assert curve.at(blocks * 512) == pytest.approx(played)
        assert curve.at(blocks * 512 + 511) == pytest.approx(played)
    assert curve.token_rate == pytest.approx(total / len(rows))  # a request per second


def found_tokens(prompts, capacity):
    cache, found = OrderedDict(), 0
    for blocks, last in prompts:
        prefix = True
        for position, block in enumerate(blocks):
            prefix = prefix and block in cache
            found += prefix * (last if position == len(blocks) - 1 else 512)
            cache[block] = None
            cache.move_to_end(block)
            if len(cache) > capacity:
                cache.popitem(last=False)
    return found


def test_the_curve_of_the_example():
    curve = read_reuse_curve(EXAMPLES / "conversations.jsonl")
    assert np.all(np.diff(curve.size) > 0)
    assert np.all(np.diff(curve.hit_rate) >= 0)
    assert 0.5 < curve.hit_rate[-1] < 0.8


def test_the_curve_of_the_published_trace():
    """One hour of Mooncake's chat service: 37 % of the tokens are found at most, as of its blocks."""
    if not SHARED.exists():
        pytest.skip(f"no trace at {SHARED}: it is published by others and not part of the repository")
    trace = read_trace(SHARED)
    curve = curve_of(trace)
    assert curve.token_rate == pytest.approx(3.401 * 12_035, rel=1e-3)
    assert curve.hit_rate[-1] == pytest.approx(0.374, abs=5e-4)
    blocks = np.array([3_000, 30_000, 200_000])
    assert curve.at(blocks * 512) == pytest.approx(trace.block_hit_rate(blocks), rel=0.05)
