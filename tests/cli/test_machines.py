"""The list of machines, and what every report says of one that is not measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cm384model.report.hardware import hardware_report, hardware_row
from cm384model.report.listing import listing
from cm384model.report.models import models_report
from cm384model.specs.catalogue import names
from cm384model.specs.load import load_hardware

FP8 = ("--set", "model.precision.weights=fp8", "--set", "model.precision.activations=fp8")
EXAMPLE = Path(__file__).parents[2] / "docs/examples/measurements.csv"
WORKLOAD = "deepseek-r1-4k-256"
ON_960 = ("--hardware", "ascend-960dt", *FP8)


def test_every_machine_is_listed_within_the_width():
    report = hardware_report()
    assert [row["name"] for row in report.records] == names("hardware")
    assert max(map(len, report.render("table").splitlines())) <= 120
    assert json.loads(report.render("json"))[0].keys() == report.records[0].keys()
    assert listing("hardware").records == report.records


def test_peaks_are_per_npu_and_empty_where_there_are_none():
    row = hardware_row(load_hardware("cloudmatrix384"))
    assert row["int8_flop_per_s"] == 1504e12
    assert row["fp8_flop_per_s"] is None
    assert (row["npus_per_supernode"], row["npus"]) == (384, 384)
    assert row["evidence"] == "measured"
    assert hardware_row(load_hardware("atlas-800i-a2-910b2"))["npus_per_supernode"] == 8
    assert hardware_row(load_hardware("ascend-960pr"))["int8_flop_per_s"] is None
    found = {row["name"]: row["evidence"] for row in hardware_report().records}
    assert {name for name, evidence in found.items() if evidence == "measured"} == {"cloudmatrix384", "h800"}


def test_models_on_another_machine():
    smallest = {row["name"]: row["smallest_npus"] for row in models_report("atlas-800i-a2-910b4").records}
    assert smallest["deepseek-r1"] == 32
    assert "more than 8 NPUs span" in models_report("atlas-800i-a2-910b4").render("table")


@pytest.mark.parametrize(
    "command",
    {
        "predict": ("predict", WORKLOAD, *ON_960, "--at", "ep=64,batch_per_die=8"),
        "prefill": ("predict", WORKLOAD, *ON_960, "--phase", "prefill", "--at", "ep=64,tokens_per_npu=8192"),
        "op": ("op", "gemm", *ON_960),
        "fit": ("fit", WORKLOAD, *ON_960),
        "plan": ("plan", WORKLOAD, *ON_960, "--npus", "32", "--without", "microbatch", "--without", "mtp"),
        "explain": ("explain", WORKLOAD, *ON_960, "--at", "ep=64,batch_per_die=8"),
        "term": ("explain", WORKLOAD, *ON_960, "--at", "ep=64,batch_per_die=8", "experts"),
        "sensitivity": ("explain", WORKLOAD, *ON_960, "--at", "ep=64,batch_per_die=8", "--sensitivity"),
        "compare": ("compare", WORKLOAD, *ON_960, "--at", "ep=64,batch_per_die=8", "--at-b", "ep=32"),
    }.items(),
    ids=lambda command: command[0],
)
def test_an_announced_machine_is_named_in_every_report(run, command):
    words = command[1]
    shown = run(*words)
    assert shown.status == 0, shown.err
    assert "note: ascend-960dt is announced" in shown.out
    asked = run(*words, "--format", "json")
    assert "ascend-960dt is announced" in asked.out
    assert "note: ascend-960dt is announced" in run(*words, "--format", "csv").err
    assert "note: ascend-960dt is announced" in run(*words, "--format", "markdown").out


def test_a_sweep_says_so_on_the_screen_and_in_its_file(run, tmp_path):
    words = ("sweep", WORKLOAD, *ON_960, "--grid", "ep=32,64", "--at", "batch_per_die=8")
    assert "note: ascend-960dt is announced" in run(*words).err
    assert run(*words, "-o", str(tmp_path / "out.csv")).status == 0
    assert "note: ascend-960dt is announced" in run("show", str(tmp_path / "out.csv")).out


def test_explain_shows_from_where_a_number_was_taken(run):
    shown = run("explain", WORKLOAD, *ON_960, "--at", "ep=64,batch_per_die=8", "dispatch", "--format", "csv")
    assert "carried over from cloudmatrix384, not measured here: fit: stage cann_ep_dispatch" in shown.out


def test_a_machine_may_name_its_engine(run):
    assert (
        " with deepseek-h800, decode"
        in run("predict", WORKLOAD, "--hardware", "h100", *FP8, "--at", "ep=64,batch_per_die=1").out
    )
    refused = run("list", "laws", "--hardware", "h100")
    assert refused.status == 2
    assert "laws do not depend on a machine" in refused.err


def test_a_sweep_masks_what_reaches_beyond(run):
    words = ("sweep", WORKLOAD, "--hardware", "atlas-800i-a2-910b2", "--grid", "ep=8,16,32", "--keep", "all")
    words += ("--at", "batch_per_die=2", "--columns", "ep,reasons,tpot_s", "--format", "csv")
    rows = [line.split(",") for line in run(*words).out.splitlines()[1:]]
    assert [(ep, reason) for ep, reason, _ in rows] == [
        ("8", "hbm"),
        ("16", "scale_out"),
        ("32", "scale_out"),
    ]
    asked = run(*words, "--at", "scale_out=yes").out.splitlines()[3].split(",")
    assert asked[1] == ""
    assert float(asked[2]) > 0


def test_calibration_of_a_machine_that_extends_another_adds_its_lines(run, tmp_path):
    mine = tmp_path / "mine.toml"
    done = run("calibrate", str(EXAMPLE), "--hardware", "atlas-900-a3", "-o", str(mine))
    assert done.status == 0, done.err
    again = load_hardware(mine)
    floor = again.ops.cann_ep_dispatch.floor
    assert floor.source.startswith("fit: stage cann_ep_dispatch, 4 rows of measurements.csv")
    assert floor.carried_from is None
    assert again.ops.gemm_int8.efficiency.carried_from == "cloudmatrix384"


def test_error_bars_of_another_chip_are_wide(run):
    """Twice as wide as on the measured machine, and the wider the less is known."""

    def width(machine, *settings):
        at = ("--at", "ep=64,batch_per_die=16,scale_out=yes", "--format", "json")
        found = json.loads(run("predict", WORKLOAD, "--hardware", machine, *settings, *at).out)
        return found["tpot_s_high"] / found["tpot_s_low"] - 1

    measured = width("cloudmatrix384")
    assert width("atlas-900-a3") == pytest.approx(measured)
    assert 2 * measured < width("atlas-800i-a2-910b2") < width("ascend-950dt") < width("ascend-960dt", *FP8)
