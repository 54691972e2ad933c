"""Constants fitted to rows: they come back where they were, and say what the rows do not tell."""

from __future__ import annotations

import csv
import json
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from cm384model import api
from cm384model.evidence.calibrate import fit_stage, load_stage
from cm384model.evidence.calibration import (
    own_calibration,
    own_files,
    shipped_calibration,
    shipped_files,
)
from cm384model.evidence.intervals import residual
from cm384model.evidence.measurements import read_measurements
from cm384model.evidence.published import shipped_rows
from cm384model.evidence.stages import shipped_stages
from cm384model.prediction.case import load_case
from cm384model.prediction.evaluate import operator_term, predict_decode
from cm384model.specs.catalogue import data_root
from cm384model.specs.diagnostics import SpecError

HEAD = "id,subject,at,quantity,value,unit\n"
TRUE = {
    "hardware.ops.cann_ep_dispatch.floor": 60e-6,
    "hardware.ops.cann_ep_dispatch.per_message": 50e-9,
    "hardware.ops.cann_ep_dispatch.per_peer": 150e-9,
}
DEPLOYMENTS = [(8, 16), (8, 128), (64, 64), (128, 128), (256, 32), (256, 128)]


@pytest.fixture(scope="module")
def shipped():
    """The shipped calibration, without leaving rows out."""
    return shipped_calibration(left_out=False)


@pytest.fixture
def measured(tmp_path, case):
    """Dispatch times of a machine with other constants, in microseconds and in milliseconds."""
    other = case
    for path, value in TRUE.items():
        other = other.replaced(path, value)
    rows = []
    for number, (ep, tokens) in enumerate(DEPLOYMENTS):
        at = f"ep={ep},tokens_per_die={tokens}"
        seconds = float(operator_term(other, "dispatch", at)[0].time)
        value, unit = (seconds * 1e6, "us") if number % 2 else (seconds * 1e3, "ms")
        rows.append(f'd{number},op dispatch,"{at}",time_s,{value!r},{unit}\n')
    path = tmp_path / "dispatch.csv"
    path.write_text(HEAD + "".join(rows))
    return path


def calibrated(case, path, **options):
    return own_calibration(case, read_measurements(path, case), **options)


def test_the_shipped_constants_are_what_the_shipped_rows_give(shipped):
    for stage in shipped.stages:
        for constant in stage.constants:
            if constant.identified:
                close = pytest.approx(constant.before, rel=1e-3, abs=1e-3 * constant.bound_high * 1e-3)
                assert constant.after == close, constant.path


def test_a_descent_alone_would_stop_before_the_best_fit(shipped):
    stage = next(stage for stage in shipped_stages() if stage.search)
    used = tuple(row for row in shipped_rows() if row.used_for_fit and stage.matches(row))
    case = load_stage(stage, used)
    descent = fit_stage(case, used, replace(stage, search=False), left_out=False)
    (found,) = (result for result in shipped.stages if result.stage == stage.name)
    assert found.errors_after.mean_error < 0.9 * descent.after.mean


def test_every_fitted_number_of_the_shipped_files_comes_from_a_stage(shipped):
    fitted = {constant.path for stage in shipped.stages for constant in stage.constants}
    for name in ("cloudmatrix384", "h800"):
        text = (data_root() / "hardware" / f"{name}.toml").read_text("utf-8")
        assert text.count('"fit: stage ') <= len(fitted)
    for stage in shipped.stages:
        assert len(stage.row_ids) >= sum(constant.identified for constant in stage.constants)


def test_the_date_alone_changes_no_file():
    found = shipped_calibration(["cann_ep_dispatch", "caching_ub"])
    assert shipped_files(found, "2099-01-01") == {}


def test_a_changed_line_is_written_with_its_date(tmp_path, monkeypatch):
    for folder in ("hardware", "workloads"):
        shutil.copytree(data_root() / folder, tmp_path / folder)
    path = tmp_path / "hardware" / "cloudmatrix384.toml"
    old = path.read_text("utf-8")
    (line,) = (line for line in old.splitlines() if line.startswith("floor") and "42.68" in line)
    path.write_text(old.replace(line, line.replace("42.68", "43")))
    monkeypatch.setattr("cm384model.evidence.calibration.data_root", lambda: tmp_path)
    ((changed, text),) = shipped_files(shipped_calibration(["cann_ep_dispatch"]), "2099-01-01").items()
    assert changed == path
    (new,) = set(text.splitlines()) - set(old.splitlines())
    assert "value = 42.68" in new
    assert "9 rows, 2099-01-01" in new


def test_constants_of_another_machine_are_found_again(case, measured):
    (stage,) = calibrated(case, measured).stages
    assert stage.stage == "cann_ep_dispatch"
    for constant in stage.constants:
        assert constant.after == pytest.approx(TRUE[constant.path], rel=0.02)
        assert constant.identified
    assert stage.errors_before.mean_error > 0.1
    assert stage.errors_after.worst_error < 1e-3
    assert stage.leave_one_out.worst_error < 0.02


def test_the_new_file_predicts_what_was_measured(case, measured, tmp_path):
    found = calibrated(case, measured)
    texts = own_files(case, found, tmp_path / "mine.toml", measured.name, "2026-12-01")
    (path,) = texts
    path.write_text(texts[path])
    mine = load_case("deepseek-r1-4k-256", hardware=path)
    assert mine.hardware.name == "mine"
    number = mine.hardware.ops.cann_ep_dispatch.floor
    assert (number.kind, number.unit) == ("fitted", "us")
    assert number.source == "fit: stage cann_ep_dispatch, 6 rows of dispatch.csv, 2026-12-01"
    for row in read_measurements(measured, mine):
        time = float(operator_term(mine, "dispatch", row.at)[0].time)
        assert time == pytest.approx(row.published, rel=2e-3)
    assert "# Rows: d0, d1, d2, d3, d4, d5." in texts[path]


def test_measurements_of_another_model(case, tmp_path):
    """The time of a step that the model takes is found again under that model and under no other."""
    path = tmp_path / "steps.csv"
    other = load_case("deepseek-r1-4k-256", model="kimi-k2")
    seconds = float(predict_decode(other, {"ep": 64, "batch_per_die": 8}).tpot_s)
    path.write_text(HEAD + f'a,decode,"ep=64,batch_per_die=8",tpot_s,{seconds!r},s\n')
    only = ["engine.constants.step_overhead"]
    ours, theirs = (api.calibrate(path, model=model, constants=only).stages[0] for model in (None, "kimi-k2"))
    assert theirs.errors_before.worst_error < 1e-6 < 0.01 < ours.errors_before.worst_error


def test_only_the_fitted_lines_change(case, measured, tmp_path):
    text = next(iter(own_files(case, calibrated(case, measured), tmp_path / "m.toml", "x", "d").values()))
    old = (data_root() / "hardware" / "cloudmatrix384.toml").read_text("utf-8").splitlines()
    changed = [line for line in text.splitlines() if line not in old]
    assert len(changed) == 2 + 1 + 3 + 2  # the head, the name, the constants, the error of their rows


def test_error_bars_come_from_the_rows_of_ones_own(case, tmp_path):
    """Steps that no constants fit well make wide bars, of the steps and of nothing else."""
    path = tmp_path / "steps.csv"
    steps = [(4, 20), (8, 45), (16, 40), (32, 80), (48, 75)]
    rows = (f'a{b},decode,"ep=64,batch_per_die={b},microbatches=1",tpot_s,{t},ms\n' for b, t in steps)
    path.write_text(HEAD + "".join(rows))
    constants = ("engine.constants.step_overhead", "engine.constants.vector_efficiency")
    found = calibrated(case, path, only=constants)
    mine = case
    for number in (1, 2):  # the second time from the files of the first
        texts = own_files(mine, found, tmp_path / f"mine{number}.toml", path.name, "2026-12-01")
        for file, text in texts.items():
            file.write_text(text)
        hardware, engine = texts
        mine = load_case("deepseek-r1-4k-256", hardware=hardware, engine=engine)
        assert list(mine.engine.residuals) == ["serving"]
        assert not list(mine.hardware.residuals)
    (fit,) = found.raw_fits
    assert residual(mine, "decode", "") == pytest.approx(fit.leave_one_out.most, rel=1e-3)
    assert residual(mine, "decode", "") > 2 * residual(case, "decode", "")
    for subject in ("op dispatch", "op gemm"):
        at = "library=cann_ep,precision=int8"
        assert residual(mine, subject, at) == residual(case, subject, at)


def test_engine_constants_go_to_a_file_beside(case, tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text(HEAD + 'a,decode,"ep=64,batch_per_die=4",tpot_s,33,ms\n')
    constant = "engine.constants.step_overhead"
    found = calibrated(case, path, only=[constant])
    texts = own_files(case, found, tmp_path / "mine.toml", path.name, "2026-12-01")
    assert [file.name for file in texts] == ["mine.toml", "mine.engine.toml"]
    assert "hardware" not in str(texts[tmp_path / "mine.engine.toml"].splitlines()[0])
    (fitted,) = (c for stage in found.stages for c in stage.constants)
    assert fitted.path == constant


def test_a_constant_that_no_row_tells_stays_at_its_value(case, tmp_path):
    path = tmp_path / "one_size.csv"
    path.write_text(
        HEAD + "".join(f'a{i},op gqa_prefill,"batch={b},prompt_len=512",time_s,{t},us\n' for i, b, t in
        [(1, 1, 150), (2, 2, 190), (3, 4, 270)])
    )  # fmt: skip
    case = case.replaced("hardware.ops.gqa_prefill.efficiency", 0.4)
    (stage,) = calibrated(case, path).stages
    for constant in stage.constants:
        if not constant.identified:
            assert constant.after == constant.before


def test_rows_without_a_constant_are_named(case, measured):
    with measured.open("a") as file:
        file.write("k,op kv_transfer,kv_len=4096,time_s,5,ms\n")
    assert calibrated(case, measured).unused_ids == ("k",)


def test_json_gives_the_same_as_csv(case, measured):
    with measured.open(newline="") as file:
        rows = list(csv.DictReader(file))
    path = measured.with_suffix(".json")
    path.write_text(json.dumps([row | {"value": float(row["value"])} for row in rows]))
    assert calibrated(case, path).stages == calibrated(case, measured).stages


GEMM = '"m=4096,n=4096,k=7168,precision=bf16"'
REFUSED = {
    "unknown operator": ("a,op gemn,m=1,time_s,1,us", "Did you mean 'gemm'?"),
    "unknown subject": ("a,decod,ep=8,tpot_s,1,ms", "Did you mean 'decode'?"),
    "a fact": ("a,fact,path=x,time_s,1,ms", "cannot be measured"),
    "unknown quantity": ("a,decode,ep=8,tpot,1,ms", "Did you mean 'tpot_s'?"),
    "unknown name": ("a,op gemm,mm=1,time_s,1,us", "operator gemm has no 'mm'"),
    "missing unit": ("a,op gemm,m=1,time_s,1,", "value = 1 needs a unit"),
    "unknown unit": ("a,op gemm,m=1,time_s,1,usec", "Did you mean 'us'?"),
    "wrong dimension": ("a,op gemm,m=1,time_s,1,GB", "measures bytes, not a time"),
    "a unit in the value": ("a,op gemm,m=1,time_s,1us,us", "'1us' is not a number"),
    "not a number": ("a,op gemm,m=1,time_s,nan,us", "must be finite and positive"),
    "infinite": ("a,op gemm,m=1,time_s,inf,us", "must be finite and positive"),
    "negative": ("a,op gemm,m=1,time_s,-1,us", "must be finite and positive"),
    "zero": ("a,op gemm,m=1,time_s,0,us", "must be finite and positive"),
    "half an NPU": ('a,decode,"ep=321,batch_per_die=8",tpot_s,9,ms', "no whole number of NPUs"),
    "too few rows": ('a,op gemm,"m=64,precision=bf16",time_s,60,us', "1 row cannot fit the 4 constants"),
    "efficiency above 1": (f"a,op gemm,{GEMM},time_s,300,us", "as fast as this machine can be"),
    "milli for micro": (f"a,op gemm,{GEMM},time_s,0.75,us", "as fast as this machine can be"),
    "no constant": ("a,op kv_transfer,kv_len=4K,time_s,5,ms", "no constant is fitted"),
}


@pytest.mark.parametrize(("line", "said"), REFUSED.values(), ids=REFUSED)
def test_nonsense_is_refused_at_its_line(case, tmp_path, line, said):
    path = tmp_path / "bad.csv"
    path.write_text(HEAD + line + "\n")
    with pytest.raises(SpecError) as error:
        calibrated(case, path)
    (problem,) = error.value.problems
    assert said in problem.message
    assert (Path(problem.file).name, problem.line) == ("bad.csv", 2)


def test_a_comment_and_a_note_survive(measured, tmp_path):
    text = (data_root() / "hardware" / "cloudmatrix384.toml").read_text("utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith("floor") and "42.68" in line)
    noted = line.replace(" }", ', note = "a \\"quoted\\" word" } # mine')
    own = tmp_path / "own.toml"
    own.write_text(text.replace(line, noted))
    case = load_case("deepseek-r1-4k-256", hardware=own)
    texts = own_files(case, calibrated(case, measured), tmp_path / "new.toml", "x", "2026-12-01")
    assert any(
        line.endswith('"a \\"quoted\\" word" } # mine') for line in texts[tmp_path / "new.toml"].split("\n")
    )


def test_a_number_over_several_lines_is_refused(measured, tmp_path):
    text = (data_root() / "hardware" / "cloudmatrix384.toml").read_text("utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith("floor") and "42.68" in line)
    ((_, number),) = tomllib.loads(line).items()
    table = [f"{key} = {json.dumps(value)}" for key, value in number.items()]
    own = tmp_path / "own.toml"
    own.write_text("\n".join([text.replace(line, ""), "[ops.cann_ep_dispatch.floor]", *table, ""]))
    case = load_case("deepseek-r1-4k-256", hardware=own)
    with pytest.raises(SpecError, match="does not stand on one line"):
        own_files(case, calibrated(case, measured), tmp_path / "new.toml", "x", "2026-12-01")


def test_unknown_stage_and_constant_are_refused(case, measured):
    with pytest.raises(SpecError, match="Did you mean 'cann_ep_dispatch'"):
        calibrated(case, measured, names=["cann_ep_dispach"])
    with pytest.raises(SpecError, match=r"no stage fits 'engine\.constants\.step_overhad'"):
        calibrated(case, measured, only=["engine.constants.step_overhad"])
