"""Numbers and words changed from the command line, and values swept."""

import numpy as np
import pytest

from cm384model.specs.diagnostics import SpecError
from cm384model.specs.overrides import apply_overrides, quantity_paths, replace_value, settable_paths


def test_numbers_and_words(specs):
    changed = apply_overrides(
        specs,
        [
            "die.hbm_bandwidth=1.8TB/s",
            "hardware.ops.gemm_int8.efficiency = 60%",
            "engine.constants.stream_overlap=0.5",
            "model.precision.kv=int8",
            "serving.balance=perfect",
            "traffic.prompt_len=8K",
            "ep_library=other",
        ],
    )
    number = changed["hardware"].die.hbm_bandwidth
    assert (number.value, number.unit, number.si) == (1.8, "TB/s", 1.8e12)
    assert (number.kind, number.source, number.confidence) == ("assumed", "command line", "D")
    assert (number.per, number.range, number.note, number.alternatives) == ("die", None, None, ())
    assert number.si.path == "hardware.die.hbm_bandwidth"
    assert changed["hardware"].ops.gemm_int8.efficiency.si == 0.6
    assert changed["engine"].constants.stream_overlap.si == 0.5
    assert changed["model"].precision.kv == "int8"
    assert changed["workload"].serving.balance == "perfect"
    assert changed["workload"].traffic.prompt_len.si == 8192
    assert changed["engine"].ep_library == "other"


def test_the_original_stays_and_the_rest_is_shared(specs):
    changed = apply_overrides(specs, ["die.hbm_bandwidth=1.8TB/s"])
    assert specs["hardware"].die.hbm_bandwidth.si == 1.6e12
    assert changed["hardware"].fabric is specs["hardware"].fabric
    assert changed["engine"] is specs["engine"]
    assert changed["hardware"].file == specs["hardware"].file


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("die.hbm_bandwith=1TB/s", "unknown path 'die.hbm_bandwith'. Did you mean 'die.hbm_bandwidth'?"),
        ("memory.runtme=1GB", "unknown path 'memory.runtme'. Did you mean 'memory.runtime'?"),
        ("zz.qq=1", "unknown path 'zz.qq'"),
        ("name=x", "unknown path 'name'"),
        ("die=1", "unknown path 'die'"),
        ("die.hbm_bandwidth", "needs PATH=VALUE"),
        ("die.hbm_bandwidth=", "needs PATH=VALUE"),
        ("die.hbm_bandwidth=1.8", "'1.8' needs a unit: 1.8GB/s, 1.8TB/s"),
        ("die.hbm_bandwidth=0TB/s", "value must be above 0, is 0 TB/s"),
        ("die.tile_m=1.5", "value must be a whole number, at least 1, is 1.5"),
        ("hardware.ops.gemm_int8.efficiency=0", "value must be above 0 and at most 1, is 0"),
        ("engine.constants.stream_overlap=3", "value must be at least 0 and at most 1, is 3"),
        ("die.hbm_bandwidth=1e300TB/s", "value must be 0 or from 1e-24 to 1e+24, is 1e+300"),
        ("serving.acceptance=120%", "value must be at least 0 and at most 1, is 120 %"),
        ("precision.kv=int9", "'int9' is not allowed. Did you mean 'int8'?"),
        ("family=gqa-dense", "unknown path 'family'"),
    ],
)  # fmt: skip
def test_refusals(specs, setting, message):
    with pytest.raises(SpecError) as caught:
        apply_overrides(specs, [setting])
    (problem,) = caught.value.problems
    assert problem.message == f"--set {setting}: {message}"


def test_changing_a_word_leaves_the_file_of_the_sections_alone(specs):
    apply_overrides(specs, ["ep_library=other"])
    with pytest.raises(SpecError, match=r"\[constants\] of .*engine\.toml has no 'x'"):
        _ = specs["engine"].constants.x


def test_all_refusals_at_once_in_the_order_given(specs):
    with pytest.raises(SpecError) as caught:
        apply_overrides(specs, ["z.z=1", "slo.tpot=50", "a.a=1"])
    assert [problem.message.split(":")[0] for problem in caught.value.problems] == [
        "--set z.z=1",
        "--set slo.tpot=50",
        "--set a.a=1",
    ]


def test_ambiguous_path(specs):
    with pytest.raises(SpecError) as caught:
        apply_overrides({"engine": specs["engine"], "other": specs["engine"]}, ["memory.runtime=1GB"])
    assert caught.value.problems[0].hint == "one of engine.memory.runtime, other.memory.runtime"


def test_paths(specs):
    assert quantity_paths(specs["workload"]) == [
        "traffic.prompt_len",
        "traffic.output_len",
        "slo.tpot",
        "slo.ttft",
        "serving.acceptance",
    ]
    assert "serving.balance" in settable_paths(specs["workload"])
    assert "model" not in settable_paths(specs["workload"])
    assert "ops.gemm_int8.launch_latency" in quantity_paths(specs["hardware"])


def test_replace_value(specs):
    hardware = specs["hardware"]
    for path in ("die.hbm_bandwidth", "hardware.die.hbm_bandwidth"):
        assert replace_value(hardware, path, 1e12).die.hbm_bandwidth.si == 1e12
    swept = replace_value(hardware, "ops.gemm_int8.efficiency", np.array([[0.5], [0.6]]))
    assert swept.ops.gemm_int8.efficiency.si.shape == (2, 1)
    assert swept.ops.gemm_int8.launch_latency is hardware.ops.gemm_int8.launch_latency
    assert swept.die is hardware.die
    swept = replace_value(hardware, "npu.dies", np.array([1, 2]))
    assert swept.total_dies.tolist() == [384, 768]
    assert hardware.total_dies == 768


def test_replace_value_refuses_what_is_no_number(specs):
    with pytest.raises(SpecError, match=r"hardware\.die is not a number"):
        replace_value(specs["hardware"], "die", 1)
    with pytest.raises(SpecError, match=r"hardware has no 'die\.x'"):
        replace_value(specs["hardware"], "die.x", 1)
