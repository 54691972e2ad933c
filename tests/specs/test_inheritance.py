"""A machine that takes what it does not state from another file."""

from __future__ import annotations

import tomllib

import pytest

from cm384model.specs.catalogue import names
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.inheritance import ExtendsMachine, merged
from cm384model.specs.load import load_engine, load_hardware
from cm384model.specs.quantity import Quantity
from cm384model.specs.spec import nodes

HEAD = """schema = 1
name = "mine"
title = "Mine"

[extends]
machine = "./hardware.toml"
take = ["die", "npu", "node", "supernode", "fabric", "ops"]
why = "a test"

[sources]
"""
OTHER_CHIP = HEAD.replace(
    'why = "a test"', 'like = { "ops.gemm_fp8" = "ops.gemm_int8" }\nwiden = 2\nwhy = "a test"'
)
FP8 = (
    "\n[die]\nfp8_flop_rate = "
    '{ value = 700, unit = "TFLOP/s", per = "die", source = "choice", kind = "assumed", confidence = "D" }\n'
)


@pytest.fixture
def load(example, tmp_path):
    """Loads a text as a machine beside the example machine."""
    (tmp_path / "hardware.toml").write_text((example / "hardware.toml").read_text())

    def loaded(text, name="mine.toml"):
        (tmp_path / name).write_text(text)
        return load_hardware(tmp_path / name)

    return loaded


def test_everything_that_is_not_stated_comes_from_the_other_machine(load, specs):
    mine, base = load(HEAD), specs["hardware"]
    assert mine.name == "mine"
    assert mine.checks == ()  # published figures of the other machine are not ours
    assert mine.die.hbm_bandwidth.si == base.die.hbm_bandwidth.si
    assert mine.sources.keys() == base.sources.keys()
    assert mine.ops.gemm_int8.launch_latency.si.path == "hardware.ops.gemm_int8.launch_latency"


def test_on_the_same_chip_what_was_found_says_where_and_facts_stay_facts(load, specs):
    mine, base = load(HEAD), specs["hardware"]
    found, before = mine.ops.gemm_int8.efficiency, base.ops.gemm_int8.efficiency
    assert found.carried_from == "tiny"
    assert found.origin == f"carried over from tiny, not measured here: {before.source}"
    assert (found.value, found.range, found.kind, found.confidence) == (
        *(before.value, before.range, before.kind, before.confidence),
    )
    assert mine.fabric.rdma.bandwidth.carried_from == "tiny"
    assert mine.die.hbm_bandwidth.carried_from is None
    assert mine.notes() == (
        "2 of 2 operator constants of mine are carried over from tiny, not measured here",
    )


def test_what_is_stated_goes_before_what_is_taken(load):
    line = '{ value = 0.5, unit = "-", source = "paper s9", kind = "measured", confidence = "B" }'
    mine = load(f"{HEAD}\n[ops.gemm_int8]\nefficiency = {line}\n")
    assert mine.ops.gemm_int8.efficiency.value == 0.5
    assert mine.ops.gemm_int8.efficiency.carried_from is None
    assert mine.ops.gemm_int8.efficiency.range is None
    assert mine.ops.gemm_int8.launch_latency.carried_from == "tiny"


def test_on_another_chip_ranges_grow_and_numbers_become_assumptions(load):
    mine = load(OTHER_CHIP + FP8)
    efficiency, launch = mine.ops.gemm_fp8.efficiency, mine.ops.gemm_fp8.launch_latency
    assert efficiency.range == (0.35, 1.0)  # a share, and 2 x 0.85 is none
    assert launch.range == (0.5, 20.0)
    assert {efficiency.kind, launch.kind} == {"assumed"}
    assert {efficiency.confidence, launch.confidence} == {"D"}
    assert mine.die.bf16_flop_rate.carried_from == "tiny"
    assert mine.die.bf16_flop_rate.range is None  # a fact of another chip, but no uncertain one
    whole = mine.fabric.ub.read.inter_node.bandwidth
    assert whole.range == (82.0, 328.0)
    assert mine.flop_rate("fp8") == 700e12


ENGINE = """schema = 1
name = "mine"
title = "Mine"
decode_streams = "attention-experts"
ep_library = "cann_ep"
prefill_attention = "sp-tp-sp"
prefill_ep_library = "deepep_ascend_normal"

[extends]
engine = "cloudmatrix-infer"
take = ["constants", "layout", "memory"]
why = "a test"

[sources]

[constants]
step_overhead = { value = 3, unit = "ms", per = "step", source = "choice", kind = "vendor", confidence = "D" }
"""


def test_an_engine_takes_what_it_does_not_state_from_another(tmp_path):
    (tmp_path / "mine.toml").write_text(ENGINE)
    mine, base = load_engine(tmp_path / "mine.toml"), load_engine("cloudmatrix-infer")
    assert mine.constants.step_overhead.si == 3e-3
    assert mine.constants.step_overhead.carried_from is None
    assert mine.constants.vector_efficiency.si == base.constants.vector_efficiency.si
    assert mine.constants.vector_efficiency.carried_from == "cloudmatrix-infer"
    assert mine.memory.reserve_share.si == base.memory.reserve_share.si


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            ('"cloudmatrix-infer"', '"cloudmatrix"'),
            "no engine 'cloudmatrix'. Did you mean 'cloudmatrix-infer'?",
        ),
        (("[extends]\nengine", "[extends]\nmachine"), "unknown key 'machine'"),
        (('"layout"', '"layouts"'), "cloudmatrix-infer has no table 'layouts'. Did you mean 'layout'?"),
    ],
    ids=["unknown engine", "a machine", "unknown table"],
)
def test_faults_of_an_engine_that_extends_another(tmp_path, change, said):
    (tmp_path / "mine.toml").write_text(ENGINE.replace(*change))
    with pytest.raises(SpecError) as error:
        load_engine(tmp_path / "mine.toml")
    assert said in str(error.value)


def test_no_engine_of_ours_repeats_a_fitted_number():
    """What one engine takes from another follows its fit."""
    engines = [load_engine(name) for name in names("engine")]
    fitted = [
        (path, node.source)
        for engine in engines
        for path, node in nodes(engine)
        if isinstance(node, Quantity) and node.source.startswith("fit: stage") and not node.carried_from
    ]
    assert len(fitted) == len(set(fitted))


def test_a_chain_remembers_the_first_machine(load):
    load(HEAD)
    last = load(HEAD.replace("./hardware.toml", "./mine.toml").replace('"mine"', '"last"'), "last.toml")
    assert last.ops.gemm_int8.efficiency.carried_from == "tiny"
    assert "carried over from tiny" in last.notes()[0]


@pytest.mark.parametrize(
    ("change", "message", "line"),
    {
        "unknown table": (('"ops"]', '"opz"]'), "no table 'opz'. Did you mean 'ops'?", 'take = ["die"'),
        "unknown machine": (("./hardware", "./hardwar"), "no hardware file", "machine = "),
        "itself": (("./hardware", "./mine"), "extends this file itself", "machine = "),
        "unknown key": (("why =", "whi ="), "unknown key 'whi'. Did you mean 'why'?", "whi = "),
        "narrower": (('why = "a', 'widen = 0.5\nwhy = "a'), "greater than or equal to 1", "widen = 0.5"),
        "no take": (
            ('take = ["die", "npu", "node", "supernode", "fabric", "ops"]', ""),
            "missing key 'take'",
            "[ext",
        ),
        "a number": (
            ('"ops"]', '"ops.gemm_int8.launch_latency"]'),
            "no table 'ops.gemm_int8.launch_latency'",
            "take = ",
        ),
        "sources": (('"ops"]', '"sources"]'), "no table 'sources'", "take = "),
    }.values(),
)
def test_faults_are_shown_at_their_key(load, change, message, line):
    with pytest.raises(SpecError) as caught:
        load(HEAD.replace(*change))
    (problem,) = caught.value.problems
    assert message in problem.message
    assert problem.file.endswith("mine.toml")
    assert problem.source_line.startswith(line)


def test_a_missing_table_and_faults_of_the_other_file_name_the_right_file(load, tmp_path):
    with pytest.raises(SpecError, match="missing key 'npu'"):
        load(HEAD.replace('"npu", ', ""))
    text = (tmp_path / "hardware.toml").read_text()
    (tmp_path / "hardware.toml").write_text(text.replace("hbm_bandwidth", "hbm_bandwith"))
    with pytest.raises(SpecError) as caught:
        load(HEAD)
    assert caught.value.problems[0].file.endswith("hardware.toml")


def test_merging_leaves_its_operands_alone():
    base = tomllib.loads('name = "b"\n[sources]\n[ops.x]\na = { value = 2, unit = "-", kind = "fitted" }')
    before = tomllib.loads('name = "b"\n[sources]\n[ops.x]\na = { value = 2, unit = "-", kind = "fitted" }')
    extends = ExtendsMachine(machine="b", take=("ops",), widen=3.0, why="w")
    found = merged({"name": "m"}, base, extends)
    assert base == before
    assert found["ops"]["x"]["a"]["range"] == [0, 6]


def test_every_number_of_a_shipped_machine_says_what_it_is(machines):
    """A number of another machine says of which, and on another chip its efficiency has a wide range."""
    for machine in machines:
        for path, node in nodes(machine):
            if isinstance(node, Quantity) and machine.extends is not None and node.carried_from:
                assert node.origin.startswith(f"carried over from {node.carried_from}"), path
                if machine.extends.widen > 1 and node.kind == "assumed" and path.endswith("efficiency"):
                    low, high = node.range
                    assert high / low >= min(machine.extends.widen, 1 / low), path


@pytest.fixture(scope="module")
def machines():
    from cm384model.specs.catalogue import names

    return [load_hardware(name) for name in names("hardware")]


def test_every_announced_machine_says_so_and_no_other(machines):
    said = {machine.name: any("is announced" in note for note in machine.notes()) for machine in machines}
    assert {name for name, announced in said.items() if announced} == {"ascend-960dt", "ascend-960pr"}


def test_no_machine_of_ours_repeats_a_fitted_number(machines):
    """A constant that was fitted stands in one file."""
    fitted = [
        (path, node.source)
        for machine in machines
        for path, node in nodes(machine)
        if isinstance(node, Quantity) and node.source.startswith("fit: stage") and not node.carried_from
    ]
    assert len(fitted) == len(set(fitted))


KERNELS = (
    *("gemm_fp8", "gemm_bf16", "mla_decode", "mla_prefill", "gqa_decode", "gqa_prefill"),
    *("sparse_attention", "lightning_indexer"),
)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_h20_loses_what_the_h800_loses_in_four_times_the_tensor_time(machines, kernel):
    named = {machine.name: machine for machine in machines}
    h20, h800 = named["h20"], named["h800"]
    rate = [machine.die.bf16_flop_rate.si / machine.die.aic_cores.si for machine in (h20, h800)]
    lost = 1 / h800.ops[kernel].efficiency.si - 1
    derived = 1 / (1 + lost * rate[0] / rate[1])
    assert h20.ops[kernel].efficiency.si == pytest.approx(derived, abs=1e-3)


def test_an_imbalance_that_is_carried_over_follows_the_fit():
    fitted, carried = (
        load_engine(name).constants.imbalance_eplb for name in ("cloudmatrix-infer", "deepseek-h800")
    )
    assert carried.si == fitted.si


def test_widening_adds_up_along_a_chain(load, machines):
    load(OTHER_CHIP + FP8)
    text = HEAD.replace("./hardware.toml", "./mine.toml").replace('"mine"', '"last"')
    last = load(text, "last.toml")
    assert last.extends.widen == 2
    assert last.is_other_chip()
    assert last.ops.gemm_int8.efficiency.range == (0.35, 1.0)
    other = {machine.name for machine in machines if machine.is_other_chip()}
    same = {"cloudmatrix384", "h800", "atlas-900-a3", "atlas-800i-a3", "atlas-800i-a3-560t"}
    assert other == {machine.name for machine in machines} - same
