"""Bounds of the constants in free sections, in a file and from the command line."""

import pytest

from cm384model.prediction.case import load_case
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.load import load_engine


def test_a_file_with_constants_out_of_bounds_says_each_at_its_line(example, tmp_path):
    lines = (example / "engine.toml").read_text(encoding="utf-8").splitlines()
    at = lines.index("[constants]") + 1
    number = 'unit = "-", source = "choice", kind = "assumed", confidence = "D" }'
    lines[at:at] = [f"vector_efficiency = {{ value = 0, {number}", f"late_overlap = {{ value = 2, {number}"]
    file = tmp_path / "engine.toml"
    file.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_engine(file)
    assert [(p.line, p.message) for p in caught.value.problems] == [
        (at + 1, "constants.vector_efficiency: value must be above 0 and at most 1, is 0"),
        (at + 2, "constants.late_overlap: value must be at least 0 and at most 1, is 2"),
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
