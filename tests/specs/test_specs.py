"""The four kinds of data files, and what is computed from them."""

import copy
import json
import pickle
import subprocess
import sys
import time
import tomllib
from itertools import pairwise

import pytest
from pydantic import ValidationError

from cm384model.specs.diagnostics import SpecError
from cm384model.specs.hardware import derived_names, failed_checks
from cm384model.specs.load import load_engine, load_hardware, load_model_of, load_workload
from cm384model.specs.spec import quantity_paths


def test_examples_load(specs):
    hardware, engine, model, workload = specs.values()
    assert hardware.die.hbm_bandwidth.si == 1.6e12
    assert hardware.die.fp8_flop_rate is None
    assert hardware.fabric.ub.read.inter_node.latency.si.path == "hardware.fabric.ub.read.inter_node.latency"
    assert engine.ep_library == "fused"
    assert engine.memory.runtime.si == 4 * 2**30
    assert model.precision.kv == "bf16"
    assert model.architecture.hidden.si == 7168
    assert workload.serving.acceptance.si == 0.7
    assert workload.defaults.hardware == "tiny"
    assert hardware.file.endswith("hardware.toml")


def test_derived_properties(specs):
    hardware = specs["hardware"]
    derived = {name: getattr(hardware, name) for name in derived_names()}
    assert derived == {
        "npus_per_node": 8,
        "dies_per_npu": 2,
        "dies_per_node": 16,
        "supernodes": 1,
        "dies_per_supernode": 768,
        "total_nodes": 48,
        "total_npus": 384,
        "total_cpus": 192,
        "total_dies": 768,
        "ub_rate_per_die": 196e9,
        "ub_rate_per_npu": 392e9,
        "hbm_capacity_per_npu": 128e9,
        "hbm_bandwidth_per_npu": 3.2e12,
        "bf16_flop_rate_per_npu": 752e12,
        "int8_flop_rate_per_npu": 1504e12,
        "total_hbm_capacity": 768 * 64e9,
        "total_bf16_flop_rate": 768 * 376e12,
    }


def test_checks_compare_with_what_is_published(specs):
    hardware = specs["hardware"]
    assert len(hardware.checks) == 3
    assert failed_checks(hardware) == []
    wrong = hardware.model_copy(update={"checks": (hardware.checks[0].model_copy(update={"value": 380.0}),)})
    assert failed_checks(wrong) == ["total_npus: derived 384, published 380 (paper s1)"]


def test_free_sections_by_attribute(specs):
    ops = specs["hardware"].ops
    assert ops.gemm_int8.efficiency.si.path == "hardware.ops.gemm_int8.efficiency"
    assert ops["gemm_int8"] is ops.gemm_int8
    assert list(ops) == ["gemm_int8"]
    assert "gemm_int8" in ops
    assert len(ops.gemm_int8) == 2


def test_unknown_constant_names_the_file_the_group_and_what_exists(specs):
    with pytest.raises(SpecError) as caught:
        _ = specs["hardware"].ops.gemm_int8.eficiency
    assert caught.value.render() == (
        f"error: [ops.gemm_int8] of {specs['hardware'].file} has no 'eficiency'. "
        "Did you mean 'efficiency'?\n\n"
        "hint: there is efficiency, launch_latency"
    )
    with pytest.raises(SpecError, match=r"\[ops\] of .*hardware.toml has no 'moe'"):
        _ = specs["hardware"].ops.moe
    assert not hasattr(specs["engine"].constants, "nothing")


def test_specs_cannot_be_changed(specs):
    with pytest.raises(ValidationError):
        specs["hardware"].die.aic_cores = 3
    with pytest.raises(AttributeError):
        specs["hardware"].ops.gemm_int8.efficiency = 1


def test_specs_copy_pickle_and_dump(specs):
    for spec in specs.values():
        again = pickle.loads(pickle.dumps(spec))
        assert again == spec == copy.deepcopy(spec)
        json.dumps(spec.model_dump(mode="json"))
    dumped = specs["hardware"].model_dump(mode="json")
    assert dumped["ops"]["gemm_int8"]["efficiency"]["value"] == 0.79


def test_loading_takes_no_longer_than_some_times_the_parsing(example, tmp_path):
    line = '{ value = 0.5, unit = "-", source = "paper s1", kind = "measured", confidence = "B", note = "n" }'
    many = "".join(f"[ops.op_{index}]\nefficiency = {line}\n" for index in range(100))
    (tmp_path / "hardware.toml").write_text((example / "hardware.toml").read_text() + many)

    def load():
        workload = load_workload(example / "workload.toml")
        model = load_model_of(workload)
        return [
            load_hardware(tmp_path / "hardware.toml"),
            load_engine(example / "engine.toml"),
            workload,
            model,
        ]

    assert sum(len(quantity_paths(spec)) for spec in load()) > 150
    tomls = [tmp_path / "hardware.toml", *(example / f"{name}.toml" for name in ("engine", "workload"))]

    def parse():
        return [tomllib.loads(path.read_text()) for path in tomls]

    def seconds(work):
        moments = [time.process_time()]
        for _ in range(5):
            work()
            moments.append(time.process_time())
        return min(end - start for start, end in pairwise(moments))

    assert seconds(load) < 20 * seconds(parse)


def test_listing_names_imports_nothing_heavy():
    code = (
        "import sys, cm384model.specs.catalogue, cm384model.specs.units;"
        "print([m for m in ('numpy', 'pydantic') if m in sys.modules]);"
        "import cm384model.specs.load, cm384model.specs.overrides; print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "False"]
