"""Two versions of the data, or of cm384, on a random sample of deployments."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

from cm384model.cli.main import main
from cm384model.evidence.golden import sampling
from cm384model.evidence.golden.against import DEPLOYMENTS, against, command_of
from cm384model.evidence.golden.drawing import draw
from cm384model.prediction.case import load_case
from cm384model.prediction.evaluate import predict_decode, predict_prefill
from cm384model.specs.catalogue import data_root, names
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.load import load_hardware

FEW = 3000


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current folder with data of its own."""
    copy(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def copy(folder: Path) -> Path:
    """The data files, of machines a few: every one has blocks of its own in the sample."""
    for name in ("hardware", "workloads"):
        shutil.copytree(data_root() / name, folder / name)
    for path in (folder / "hardware").glob("*.toml"):
        if path.stem not in ("cloudmatrix384", "atlas-900-a3", "h800", "h20"):
            path.unlink()
    return folder


def bandwidth(folder: Path, value: int) -> None:
    path = folder / "hardware" / "cloudmatrix384.toml"
    text = re.sub(r"(?m)^(hbm_bandwidth *= \{ value = )\d+", rf"\g<1>{value}", path.read_text(), count=1)
    assert text != path.read_text()
    path.write_text(text)


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def test_the_sample_is_large_and_seeded():
    assert DEPLOYMENTS >= 100_000
    _, first = draw(sampling.Data(data_root()), FEW, 1)
    _, second = draw(sampling.Data(data_root()), FEW, 1)
    _, other = draw(sampling.Data(data_root()), FEW, 2)
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not np.array_equal(first["ep"], other["ep"])
    assert len(first["ep"]) >= FEW


def test_the_sample_has_every_machine_and_engine():
    blocks, _ = draw(sampling.Data(data_root()), FEW, 1)
    pairs = {(b["hardware"], b["engine"]) for b in blocks}
    own = {pair for pair in pairs if load_hardware(pair[0]).extends is None}
    assert own == {
        ("cloudmatrix384", "cann-recipes"),
        ("cloudmatrix384", "cloudmatrix-infer"),
        ("cloudmatrix384", "sglang-ascend"),
        ("cloudmatrix384", "vllm-ascend"),
        ("h800", "deepseek-h800"),
    }
    assert sorted(machine for machine, _ in pairs - own) == sorted(
        set(names("hardware")) - {m for m, _ in own}
    )
    assert {b["phase"] for b in blocks} == {"decode", "prefill"}


def test_the_sample_predicts_what_predict_does(here):
    """Rows of the vectorised sample against one call each, by the very command that is printed."""
    data = sampling.Data(here)
    blocks, sample = draw(data, FEW, 3)
    outputs = sampling.outputs_of(blocks, sample, data)
    for row in range(0, FEW, FEW // 25):
        words = shlex.split(command_of(blocks, sample, row))
        given = dict(zip(words[3::2], words[4::2], strict=True))
        case = load_case(
            words[2],
            hardware=given["--hardware"],
            engine=given["--engine"],
            settings=[words[i + 1] for i, word in enumerate(words) if word == "--set"],
        )
        phase = given["--phase"]
        predict = predict_decode if phase == "decode" else predict_prefill
        free = outputs[f"{phase}.memory.free_bytes"][row]
        if np.isnan(free):  # a machine without a kernel that the model needs
            with pytest.raises(SpecError):
                predict(case, [given["--at"]])
            continue
        result = predict(case, [given["--at"]])
        assert result.memory.free_bytes == pytest.approx(free, rel=1e-6, abs=1e3)
        name = "step_time_s" if phase == "decode" else "batch_time_s"
        if result.feasible:
            assert getattr(result, name) == pytest.approx(outputs[f"{phase}.{name}"][row], rel=1e-6)


def test_the_same_data_change_nothing(here, tmp_path_factory):
    result = against(str(copy(tmp_path_factory.mktemp("old"))), FEW)
    assert result.ok
    assert result.data_changes == ()
    assert result.compared > FEW / 2
    assert {q.quantity for q in result.quantities} >= {"decode.tpot_s", "prefill.batch_time_s"}


def test_changed_data_are_named_and_measured(here, tmp_path_factory):
    old = copy(tmp_path_factory.mktemp("old"))
    bandwidth(old, 1500)
    result = against(str(old), FEW)
    assert not result.ok
    (change,) = result.data_changes
    assert (change.file, change.path) == ("hardware/cloudmatrix384.toml", "die.hbm_bandwidth")
    assert (change.old_value, change.new_value) == ("1500.0 GB/s", "1600.0 GB/s")
    found = {q.quantity: q for q in result.quantities}
    core = found["decode.terms.attention_core.time_s"]
    assert 0 < core.unchanged < 1
    assert core.largest == pytest.approx(1500 / 1600 - 1, abs=0.01)
    assert core.p95 is not None
    assert core.p95 <= abs(core.largest)
    assert found["decode.terms.combine.time_s"].unchanged == 1
    assert found["decode.memory.weights_bytes"].unchanged == 1
    assert "h800" not in core.worst


def test_memory_that_is_gained_is_counted(here, tmp_path_factory):
    old = copy(tmp_path_factory.mktemp("old"))
    path = old / "hardware" / "cloudmatrix384.toml"
    path.write_text(re.sub(r"(?m)^(hbm_capacity *= \{ value = )64", r"\g<1>48", path.read_text()))
    result = against(str(old), FEW)
    assert result.fits_now > 0
    assert result.fits_no_more == 0


def test_the_traffic_of_a_workload_is_in_the_sample(here, tmp_path_factory):
    old = copy(tmp_path_factory.mktemp("old"))
    path = old / "workloads" / "deepseek-r1-4k-256.toml"
    path.write_text(path.read_text().replace("value = 4096", "value = 4000"))
    result = against(str(old), FEW)
    (tpot,) = [q for q in result.quantities if q.quantity == "decode.tpot_s"]
    assert 0.5 < tpot.unchanged < 0.9  # one workload of six changed


def test_a_git_revision_is_unpacked(here):
    git(here, "init", "-q")
    git(here, "add", "hardware", "workloads")
    git(here, "commit", "-qm", "one")
    assert against("HEAD", FEW).ok
    bandwidth(here, 1700)
    (change,) = against("HEAD", FEW).data_changes
    assert (change.old_value, change.new_value) == ("1600.0 GB/s", "1700.0 GB/s")


def test_a_repository_with_its_own_machine_alone(here):
    shutil.rmtree(here / "workloads")
    (here / "hardware" / "cloudmatrix384.toml").rename(here / "hardware" / "mine.toml")
    git(here, "init", "-q")
    git(here, "add", "hardware")
    git(here, "commit", "-qm", "one")
    assert against("HEAD", FEW).ok
    (here / "hardware" / "h800.toml").unlink()
    result = against("HEAD", FEW)
    assert result.only_old == ("hardware/h800.toml",)
    assert not result.ok


def test_what_is_no_version_is_refused(here, tmp_path_factory):
    with pytest.raises(SpecError, match="'v9' is no folder and no git revision"):
        against("v9", FEW)
    with pytest.raises(SpecError, match="neither hardware/ nor workloads/"):
        against(str(tmp_path_factory.mktemp("empty")), FEW)


def test_data_that_do_not_read_are_refused(here, tmp_path_factory):
    old = copy(tmp_path_factory.mktemp("old"))
    path = old / "hardware" / "cloudmatrix384.toml"
    path.write_text(path.read_text().replace("hbm_bandwidth", "hbm_bandwith"))
    with pytest.raises(SpecError, match="Did you mean 'hbm_bandwidth'"):
        against(str(old), FEW)


@pytest.fixture
def other_version(tmp_path):
    """A virtual environment with a cm384 whose data say something else."""
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/*/site-packages")
    source = Path(sampling.__file__).parents[2]
    shutil.copytree(source, packages / "cm384model", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("hardware", "workloads"):
        shutil.copytree(data_root() / name, packages / "cm384model" / "data" / name)
    libraries = [Path(path) for path in sys.path if path.endswith("site-packages")]
    (packages / "libraries.pth").write_text("".join(f"{path}\n" for path in libraries))
    return folder


@pytest.mark.skipif(sys.platform == "win32", reason="folders of a virtual environment")
def test_another_installation(other_version):
    result = against(str(other_version), FEW)
    assert result.old_version.endswith(f"in {other_version}")
    assert result.ok
    (packages,) = other_version.glob("lib/*/site-packages")
    law = packages / "cm384model" / "laws" / "overlap.py"
    law.write_text(law.read_text().replace("return ", "return 1.001 * ("[:-1], 1))
    bandwidth(packages / "cm384model" / "data", 1700)
    changed = against(str(other_version), FEW)
    assert [c.path for c in changed.data_changes] == ["die.hbm_bandwidth"]
    (layer,) = [q for q in changed.quantities if q.quantity == "decode.layer_time_s"]
    assert layer.unchanged == 0


@pytest.mark.skipif(sys.platform == "win32", reason="folders of a virtual environment")
def test_an_installation_that_fails_is_refused(other_version):
    (packages,) = other_version.glob("lib/*/site-packages")
    (packages / "cm384model" / "prediction" / "case.py").write_text("raise RuntimeError('broken')\n")
    with pytest.raises(SpecError, match="cannot predict the sample: RuntimeError: broken"):
        against(str(other_version), FEW)


def test_the_command_says_what_changed(here, tmp_path_factory, capsys):
    old = copy(tmp_path_factory.mktemp("old"))
    assert main(["check", "--against", str(old), "--deployments", str(FEW)]) == 0
    assert "nothing changed" in capsys.readouterr().out
    bandwidth(old, 1500)
    assert main(["check", "--against", str(old), "--deployments", str(FEW), "--only-changed"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"die\.hbm_bandwidth +1500\.0 GB/s +1600\.0 GB/s", out)
    assert "decode.terms.combine" not in out
    command = out.strip().splitlines()[-1]
    assert main(shlex.split(command)[1:]) in (0, 1)
