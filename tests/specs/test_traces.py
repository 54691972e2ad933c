"""Traces of requests: both formats, what is computed from them, and what is wrong with a bad line."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm384model.specs.diagnostics import SpecError
from cm384model.specs.traces import RequestTrace, read_trace, reuse_distances

SHARED = Path(__file__).parents[3] / "shared" / "traces"
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.6805900,396,109
2023-11-16 18:15:48.6805900,100,1
"""
MOONCAKE = [
    {"timestamp": 0, "input_length": 1500, "output_length": 10, "hash_ids": [0, 1, 2]},
    {"timestamp": 1000, "input_length": 1200, "output_length": 20, "hash_ids": [0, 1, 3]},
    {"timestamp": 4000, "input_length": 600, "output_length": 0, "hash_ids": [0, 4]},
]


def jsonl(rows):
    return "\n".join(json.dumps(row) for row in rows) + "\n"


@pytest.fixture
def written(tmp_path):
    def write(text, name="trace"):
        file = tmp_path / name
        file.write_text(text, encoding="utf-8", newline="")
        return file

    return write


@pytest.fixture
def published():
    def find(name):
        if not (SHARED / name).exists():
            pytest.skip(
                f"no trace at {SHARED / name}: it is published by others and not part of the repository"
            )
        return read_trace(SHARED / name)

    return find


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_azure_is_read_and_put_in_order(written, newline):
    trace = read_trace(written(AZURE.replace("\n", newline).rstrip()))
    assert trace.arrival_time == pytest.approx([0, 2, 4])
    assert trace.prompt_len.tolist() == [374, 100, 396]
    assert trace.output_len.tolist() == [44, 1, 109]
    assert trace.requests == 3
    assert trace.arrival_rate == pytest.approx(0.5)
    assert trace.arrival_scv == pytest.approx(0)
    assert not len(trace.blocks)


def test_mooncake_is_read(written):
    trace = read_trace(written(jsonl(MOONCAKE)))
    assert trace.arrival_time.tolist() == [0, 1, 4]
    assert trace.arrival_rate == pytest.approx(0.5)
    assert trace.arrival_scv == pytest.approx(0.25)
    assert trace.blocks.tolist() == [0, 1, 2, 0, 1, 3, 0, 4]
    assert trace.block_starts.tolist() == [0, 3, 6]
    moments = trace.moments()
    assert moments.prompt == 1100
    assert moments.output == 10
    assert moments.product == pytest.approx((1500 * 10 + 1200 * 20) / 3)
    assert moments.output_cube == pytest.approx((10**3 + 20**3) / 3)
    assert moments.prompt_square_output == pytest.approx((1500**2 * 10 + 1200**2 * 20) / 3)


@pytest.mark.parametrize(("capacity", "found"), [(0, 0), (2, 0), (3, 3), (1000, 3)])
def test_hit_rate_by_hand(written, capacity, found):
    """Blocks 0, 1 and 0 come again, with two others in between each time."""
    assert read_trace(written(jsonl(MOONCAKE))).block_hit_rate(capacity) == pytest.approx(found / 8)


@given(st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=6, unique=True), min_size=2, max_size=40))
def test_hit_rate_is_that_of_a_cache_that_is_played(tmp_path_factory, prompts):
    rows = [
        {"timestamp": time, "input_length": 1, "output_length": 1, "hash_ids": blocks}
        for time, blocks in enumerate(prompts)
    ]
    file = tmp_path_factory.mktemp("traces") / "trace.jsonl"
    file.write_text(jsonl(rows))
    trace = read_trace(file)
    capacities = [1, 2, 3, 5, 8, 20]
    played = [hits(prompts, capacity) / len(trace.blocks) for capacity in capacities]
    assert trace.block_hit_rate(capacities) == pytest.approx(played)


def hits(prompts, capacity):
    cache, found = OrderedDict(), 0
    for blocks in prompts:
        prefix = True
        for block in blocks:
            prefix = prefix and block in cache
            found += prefix
            cache[block] = None
            cache.move_to_end(block)
            if len(cache) > capacity:
                cache.popitem(last=False)
    return found


@given(st.lists(st.integers(0, 9), min_size=1, max_size=80))
def test_reuse_distances_by_counting(blocks):
    expected = []
    for here, block in enumerate(blocks):
        before = [there for there in range(here) if blocks[there] == block]
        expected.append(len(set(blocks[before[-1] + 1 : here])) if before else np.inf)
    assert reuse_distances(np.array(blocks)).tolist() == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2023-11-16 18:15:46.68,374", "needs 3 values, has 2"),
        ("yesterday,374,44", "'yesterday' is no time"),
        ("2023-11-16 18:15:46.68,many,44", "'many' is no whole number"),
        ("2023-11-16 18:15:46.68,3.5,44", "'3.5' is no whole number"),
        ("2023-11-16 18:15:46.68,0,44", "a prompt has at least 1 token"),
        ("2023-11-16 18:15:46.68,1,-4", "an output none or more"),
    ],
)
def test_a_bad_line_of_azure(written, line, message):
    with pytest.raises(SpecError, match=message) as caught:
        read_trace(written(AZURE + line + "\n" + line, "bad.csv"))
    (problem,) = caught.value.problems
    assert problem.line == 5
    assert problem.file.endswith("bad.csv")
    assert line in caught.value.render()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not valid JSON"),
        ("[1]", "needs a JSON object"),
        ('{"timestamp": 1, "input_length": 5}', "missing keys 'output_length', 'hash_ids'"),
        (jsonl([MOONCAKE[0] | {"timestamp": "now"}]), "'timestamp' is no number"),
        (jsonl([MOONCAKE[0] | {"timestamp": float("nan")}]), "'timestamp' is no number"),
        (jsonl([MOONCAKE[0] | {"timestamp": True}]), "'timestamp' is no number"),
        (jsonl([MOONCAKE[0] | {"input_length": 1.5}]), "'1.5' is no whole number"),
        (jsonl([MOONCAKE[0] | {"output_length": None}]), "'None' is no whole number"),
        (jsonl([MOONCAKE[0] | {"hash_ids": 7}]), "'hash_ids' is no list"),
        (jsonl([MOONCAKE[0] | {"hash_ids": [2**70]}]), "no whole number"),
    ],
)
def test_a_bad_line_of_mooncake(written, line, message):
    with pytest.raises(SpecError, match=message) as caught:
        read_trace(written(jsonl(MOONCAKE) + line, "bad.jsonl"))
    (problem,) = caught.value.problems
    assert problem.line == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a request trace"),
        ("a,b,c\n1,2,3\n", "not a request trace"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "needs two requests"),
        (jsonl(MOONCAKE[:1]), "needs two requests"),
        (jsonl([MOONCAKE[0], MOONCAKE[0]]), "at different times"),
    ],
)
def test_a_file_that_is_no_trace(written, text, message):
    with pytest.raises(SpecError, match=message):
        read_trace(written(text))


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(SpecError, match="cannot read"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="UTF-8"):
        read_trace(tmp_path / "binary")


def test_a_trace_without_blocks_has_no_hit_rate(written):
    with pytest.raises(SpecError, match="no prefix blocks"):
        read_trace(written(AZURE)).block_hit_rate(10)


def test_azure_as_published(published):
    trace = published("azure_llm_2023_conv.csv")
    assert trace.requests == 19_366
    assert trace.arrival_time[-1] == pytest.approx(3502, rel=0.01)
    assert trace.arrival_rate == pytest.approx(5.53, rel=1e-3)
    assert trace.arrival_scv == pytest.approx(1.197, rel=1e-3)
    assert trace.moments().prompt == pytest.approx(1154.7, rel=1e-4)


def test_mooncake_as_published(published):
    trace = published("mooncake_conversation.jsonl")
    assert trace.requests == 12_031
    assert trace.moments().prompt == pytest.approx(12_035, rel=1e-4)
    blocks = np.ceil(trace.prompt_len / 512)
    assert np.mean(np.diff(np.append(trace.block_starts, len(trace.blocks))) == blocks) > 0.99
    rates = trace.block_hit_rate(np.array([1, 1000, 10_000, 100_000, 10**9]))
    assert np.all(np.diff(rates) > 0)
    assert rates[-1] == pytest.approx(1 - len(np.unique(trace.blocks)) / len(trace.blocks))


def test_rates_count_requests_in_whole_intervals():
    times = np.array([0.0, 1.0, 9.0, 10.0, 25.0])
    ones = np.ones(5, dtype=int)
    trace = RequestTrace(times, ones, ones, ones[:0], ones[:0])
    assert list(trace.rates(10.0)) == [0.3, 0.1]
    with pytest.raises(SpecError, match="lasts 25 s"):
        trace.rates(60.0)
