"""Beyond one scale-up network: refused unless asked for, priced, and laid out without crossing borders."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest

from cm384model.planning.request import Request, Slo
from cm384model.planning.search import plan_case
from cm384model.planning.space import instance_sizes
from cm384model.prediction.evaluate import decode_deployment, predict_decode, predict_prefill
from cm384model.prediction.operators import Die, collective, exchange_bandwidth
from cm384model.prediction.scale_out import exchange_times
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.load import load_engine, load_hardware

ASKED = {"scale_out": "yes"}
PUSH, PULL = "cann_ep_dispatch", "deepep_ascend_normal_dispatch"


@pytest.fixture(scope="module")
def a2(case):
    """The case on Atlas 800I A2: eight dies on one HCCS mesh, RoCE between nodes."""
    return replace(case, hardware=load_hardware("atlas-800i-a2-910b2"), engine=load_engine("vllm-ascend"))


@pytest.fixture(scope="module")
def two(case):
    """Two CloudMatrix384 supernodes, joined by their RDMA planes."""
    return case.replaced("hardware.cluster.supernodes", 2.0)


def test_the_usual_machine_is_one_supernode(case):
    hardware = case.hardware
    assert hardware.supernodes == 1
    assert hardware.dies_per_supernode == hardware.total_dies == 768
    assert predict_decode(case, {"ep": 768, "batch_per_die": 8}).notes == ()


def test_beyond_one_supernode_nothing_is_predicted_unasked(a2, two):
    for case, ep in ((a2, 16), (two, 1024)):
        with pytest.raises(SpecError) as caught:
            predict_decode(case, {"ep": ep, "batch_per_die": 8})
        (problem,) = caught.value.problems
        domain = int(case.hardware.dies_per_supernode)
        assert f"ep = {ep} spans 2 scale-up networks of {domain} dies" in problem.message
        assert "over RDMA" in problem.message
        assert "scale_out=yes" in problem.hint
        with pytest.raises(SpecError, match="spans"):
            predict_prefill(case, {"ep": ep, "tokens_per_npu": 16384, "scale_out": "no"})
        assert predict_decode(case, {"ep": ep, "batch_per_die": 8} | ASKED).notes[-1].startswith("ep = ")
        assert not any("spans" in n for n in predict_decode(case, {"ep": domain, "batch_per_die": 8}).notes)


def test_what_two_streams_exchange_is_told_at_their_best_split(a2):
    at = {"ep": 16, "batch_per_die": 8, "microbatches": 2}
    with pytest.raises(SpecError, match="spans 2") as caught:
        predict_decode(a2, at)
    (problem,) = caught.value.problems
    assert problem.message in predict_decode(a2, at | ASKED).notes


def test_an_engine_made_for_it_need_not_be_asked(case):
    h800 = replace(case, hardware=load_hardware("h800"), engine=load_engine("deepseek-h800"))
    precision = h800.model.precision.model_copy(update={"weights": "fp8", "activations": "fp8"})
    h800 = replace(h800, model=h800.model.model_copy(update={"precision": precision}))
    assert (
        "spans 16 scale-up networks of 8 dies"
        in predict_decode(h800, {"ep": 128, "batch_per_die": 8}).notes[-1]
    )
    with pytest.raises(SpecError, match="spans"):
        predict_decode(h800, {"ep": 128, "batch_per_die": 8, "scale_out": "no"})


def test_bandwidth_of_an_exchange_by_hand(a2, two):
    """Each share of the traffic at the bandwidth of the network that it takes."""
    near, rdma = a2.hardware.fabric.ub.write.intra_node.bandwidth.si, 25e9
    assert exchange_bandwidth(a2.hardware, 8.0, PUSH) == pytest.approx(near)
    assert exchange_bandwidth(a2.hardware, 32.0, PUSH) == pytest.approx(1 / (0.25 / near + 0.75 / rdma))
    ub = two.hardware.fabric.ub.write
    shares = (16 / 1536, (768 - 16) / 1536, 0.5)
    rates = (ub.intra_node.bandwidth.si, ub.inter_node.bandwidth.si, rdma)
    by_hand = 1 / sum(share / rate for share, rate in zip(shares, rates, strict=True))
    assert exchange_bandwidth(two.hardware, 1536.0, PUSH) == pytest.approx(by_hand)


def test_a_library_that_pulls_sustains_shares_of_what_a_die_reads(case):
    read, own = case.hardware.fabric.ub.read, case.hardware.ops.deepep_ascend_normal_dispatch
    near = own.intra_node_efficiency.si * read.intra_node.bandwidth.si
    far = own.inter_node_efficiency.si * read.inter_node.bandwidth.si
    inside, across = exchange_bandwidth(case.hardware, np.array([8.0, 64.0]), PULL)
    assert inside == pytest.approx(near)
    assert across == pytest.approx(1 / (0.25 / near + 0.75 / far))


def test_a_second_supernode_changes_nothing_inside_one(case, two):
    eps = np.array([2.0, 16.0, 320.0, 768.0])
    for library in (PUSH, PULL):
        one, both = (exchange_bandwidth(machine.hardware, eps, library) for machine in (case, two))
        np.testing.assert_allclose(both, one, rtol=1e-12)


def test_collectives_do_not_outrun_the_scale_out_link(a2):
    die = Die(a2.hardware)
    inside = collective(die, "all_gather", "x", 64e6, 8.0).time
    beyond = collective(die, "all_gather", "x", 64e6, 16.0).time
    assert beyond > 15 * 64e6 / 25e9 > inside


def test_the_price_is_that_of_the_slower_link(a2):
    over_rdma, over_ub = exchange_times(a2, decode_deployment(a2, {"ep": 32, "batch_per_die": 32} | ASKED))
    same = a2.replaced(
        "hardware.fabric.rdma.bandwidth", float(a2.hardware.fabric.ub.write.intra_node.bandwidth.si)
    )
    again, also = exchange_times(same, decode_deployment(same, {"ep": 32, "batch_per_die": 32} | ASKED))
    assert over_rdma > over_ub > 0
    assert again == pytest.approx(also) == pytest.approx(over_ub)


def test_plans_stay_inside_unless_asked(a2):
    request = Request(npus=128, slo=Slo(tpot=0.1, ttft=10.0), top=3, without=frozenset({"microbatch", "mtp"}))
    inside = plan_case(a2, request)
    assert not inside.feasible
    assert inside.infeasible.hint.endswith("--scale-out")
    assert any("an instance stays within one scale-up network of 8 dies" in note for note in inside.notes)
    beyond = plan_case(a2, replace(request, scale_out=True))
    assert beyond.feasible
    assert beyond.plans[0].decode.ep > 8
    assert not any("stays within" in note for note in beyond.notes)


def test_whatever_the_npus_suffice_for_can_be_laid_out(two):
    """Any mix of the sizes that fills the supernodes packs, largest first, with none across a border."""
    nodes = (instance_sizes(two, 768) / two.hardware.dies_per_node).astype(int).tolist()
    assert nodes == [1, 3, 6, 12, 24, 48]
    assert instance_sizes(two, 768, scale_out=True).size == 96
    for count in range(1, 8):
        for mix in combinations_with_replacement(nodes, count):
            if sum(mix) <= 96:
                left = [48, 48]
                for size in sorted(mix, reverse=True):
                    place = next(i for i, room in enumerate(left) if room >= size)
                    left[place] -= size
