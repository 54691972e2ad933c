"""Names and bounds of the constants in free sections, in a file and from the command line."""

import pytest

from cm384model.prediction.case import load_case
from cm384model.specs.catalogue import names
from cm384model.specs.constants import ENGINE, OPERATOR
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.load import load_engine, load_hardware


def test_a_file_with_constants_out_of_bounds_says_each_at_its_line(example, tmp_path):
    lines = (example / "engine.toml").read_text(encoding="utf-8").splitlines()
    at = lines.index("[constants]") + 1
    number = 'unit = "-", source = "choice", kind = "assumed", confidence = "D" }'
    lines[at:at] = [
        f"vector_efficiency = {{ value = 0, {number}",
        f"prefill_overlap = {{ value = 2, {number}",
    ]
    file = tmp_path / "engine.toml"
    file.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_engine(file)
    assert [(p.line, p.message) for p in caught.value.problems] == [
        (at + 1, "constants.vector_efficiency: value must be above 0 and at most 1, is 0"),
        (at + 2, "constants.prefill_overlap: value must be at least 0 and at most 1, is 2"),
    ]


@pytest.mark.parametrize(
    ("setting", "bounds"),
    [
        ("ops.gemm_int8.tile_m=0", "a whole number, at least 1"),
        ("ops.all_gather.bandwidth=0GB/s", "above 0"),
        ("ops.vector.bandwidth_share_exponent=1.5", "at least 0 and at most 1"),
        ("engine.constants.imbalance_none=1", "above 1"),
        ("engine.constants.imbalance_eplb=0.5", "at least 1"),
        ("engine.layout.prefill_core_share=0", "above 0 and at most 1"),
        ("engine.layout.lm_head_tp=0", "a whole number, at least 1"),
    ],
)
def test_no_setting_leaves_the_bounds_of_its_name(setting, bounds):
    with pytest.raises(SpecError, match=f"value must be {bounds}, is "):
        load_case("deepseek-r1-4k-256", settings=[setting])


def test_an_engine_that_balances_without_copies_has_one_imbalance():
    case = load_case("deepseek-r1-4k-256", settings=["engine.layout.redundant_experts=0"])
    assert case.imbalance("eplb", 0.0) == case.imbalance("eplb", 32.0) == case.imbalance("eplb")


NUMBER = '{ value = 0.5, unit = "-", source = "choice", kind = "assumed", confidence = "D" }'
EXTENDING = """schema = 1
name = "mine"
title = "Mine"
{words}
[extends]
{what} = "{other}"
take = {take}
why = "a test"
[{table}]
{name} = {number}
"""
WORDS = """decode_streams = "attention-experts"
ep_library = "cann_ep"
prefill_attention = "sp-tp-sp"
prefill_ep_library = "deepep_ascend_normal"
"""


@pytest.mark.parametrize(
    ("load", "table", "name", "nearest"),
    [
        (load_engine, "constants", "stream_overlaps", "stream_overlap"),
        (load_engine, "layout", "lmhead_tp", "lm_head_tp"),
        (load_engine, "memory", "reserved_share", "reserve_share"),
        (load_hardware, "ops.mla_decode", "overlaps", "overlap"),
    ],
)
def test_a_constant_that_nothing_reads_is_refused(tmp_path, load, table, name, nearest):
    """It would change nothing, and the file that is extended has the right one."""
    engine = load is load_engine
    file = tmp_path / "mine.toml"
    file.write_text(
        EXTENDING.format(
            words=WORDS if engine else "",
            what="engine" if engine else "machine",
            other="cloudmatrix-infer" if engine else "cloudmatrix384",
            take='["constants", "layout", "memory"]'
            if engine
            else '["die", "npu", "node", "supernode", "cluster", "fabric", "ops"]',
            table=table,
            name=name,
            number=NUMBER,
        )
    )
    with pytest.raises(SpecError) as caught:
        load(file)
    (problem,) = caught.value.problems
    assert problem.message == f"{table}.{name}: unknown constant '{name}'. Did you mean '{nearest}'?"
    assert problem.source_line.startswith(name)


def test_shipped_files_have_every_constant_there_is():
    """So no name that is allowed has been forgotten."""
    engines = [load_engine(name) for name in names("engine")]
    machines = [load_hardware(name) for name in names("hardware")]
    for table, allowed in ENGINE.items():
        assert {name for engine in engines for name in getattr(engine, table)} == set(allowed)
    used = {name for machine in machines for op in machine.ops for name in machine.ops[op]}
    assert used == set(OPERATOR)
