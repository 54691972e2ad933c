"""The deployments of the CloudMatrix384 paper (arXiv:2506.12708v2, Table 5) against the planner's."""

from __future__ import annotations

import numpy as np
import pytest

from cm384model import api
from cm384model.planning import space
from cm384model.planning.request import Request, Slo

TABLE_5 = [
    (0.050, 96, 1943.0),
    (0.030, 24, 974.0),
    (0.015, 8, 538.0),
]
"""TPOT limit [s], requests per NPU [-], decode throughput [tokens/s per NPU]; 4K in, 256 out, EP320."""
EVERY_ROW = pytest.mark.parametrize(("tpot", "batch_per_npu", "published"), TABLE_5)


def predicted(case, batch_per_npu, microbatches):
    """The paper's deployment; it does not say where it uses microbatches."""
    at = f"ep=320,batch_per_npu={batch_per_npu},microbatches={microbatches},draft_tokens=1"
    return api.predict(case, at=at)


@EVERY_ROW
def test_the_paper_deployment_is_in_the_candidate_set(case, tpot, batch_per_npu, published):
    assert 320 in space.instance_sizes(case, 384)
    batch_per_die = batch_per_npu / 2
    only = {"ep": np.array([320.0]), "batch_per_die": np.array([batch_per_die])}
    found = space.decode_space(case, Request(384, Slo(tpot * 1.3, 2.0)), 384, only)
    assert found.feasible > 0
    assert 1 in found.options.axes["draft_tokens"]


@EVERY_ROW
def test_the_published_batch_keeps_its_limit_within_the_error_bar(case, tpot, batch_per_npu, published):
    found = [predicted(case, batch_per_npu, microbatches) for microbatches in (1, 2)]
    assert all(p.feasible for p in found)
    assert min(p.tpot_s_low for p in found) <= tpot


@EVERY_ROW
def test_the_planner_decodes_at_least_as_much_as_published(case, tpot, batch_per_npu, published):
    """Per NPU, over all sizes, within the 80 % interval of the paper's own deployment."""
    options = space.decode_space(case, Request(384, Slo(tpot, 2.0)), 384).options
    best = float((options.axes["batch_per_die"] * 2 / options.tpot).max())
    interval = predicted(case, batch_per_npu, 2)
    error = interval.throughput_tokens_per_s_per_npu_high / interval.throughput_tokens_per_s_per_npu
    assert error < 1.5
    assert best * error >= published


@EVERY_ROW
def test_no_option_of_the_papers_size_beats_the_planners_choice(case, tpot, batch_per_npu, published):
    request = Request(384, Slo(tpot, 2.0))
    every = space.decode_space(case, request, 384).options
    papers = space.decode_space(case, request, 384, {"ep": np.array([320.0])}).options
    per_npu = [float((o.axes["batch_per_die"] * 2 / o.tpot).max()) for o in (every, papers)]
    assert per_npu[0] >= per_npu[1]
