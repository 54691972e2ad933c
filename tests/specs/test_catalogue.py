"""Names of data files, and the files they stand for."""

import shutil

import pytest

from cm384model.specs import catalogue, load
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.hardware import failed_checks
from cm384model.specs.load import load_hardware, load_model_of, load_workload


@pytest.fixture
def root(example, tmp_path, monkeypatch):
    for kind, folder in catalogue.FOLDERS.items():
        (tmp_path / "data" / folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(example / f"{kind}.toml", tmp_path / "data" / folder / f"some-{kind}.toml")
    monkeypatch.setattr(catalogue, "data_root", lambda: tmp_path / "data")
    return tmp_path / "data"


def test_the_checkout_has_its_folders():
    assert (catalogue.data_root() / "pyproject.toml").is_file()
    for folder in catalogue.FOLDERS.values():
        assert (catalogue.data_root() / folder).is_dir()


@pytest.mark.parametrize("kind", catalogue.FOLDERS)
def test_names_and_resolve(kind, root):
    (root / catalogue.FOLDERS[kind] / "another.toml").touch()
    assert catalogue.names(kind) == ["another", f"some-{kind}"]
    path = catalogue.resolve(kind, f"some-{kind}")
    assert path == root / catalogue.FOLDERS[kind] / f"some-{kind}.toml"
    assert catalogue.resolve(kind, str(path)) == path


def test_unknown_name(root):
    with pytest.raises(SpecError) as caught:
        load_hardware("some-hardwre")
    assert caught.value.render() == (
        "error: no hardware 'some-hardwre'. Did you mean 'some-hardware'?\n\n"
        "hint: known are some-hardware; a file is given as path/to/file.toml"
    )


def test_unknown_file(example):
    with pytest.raises(
        SpecError, match=r"no hardware file '.*hardwar\.toml'\. Did you mean 'hardware\.toml'\?"
    ):
        load_hardware(example / "hardwar.toml")


def test_model_is_looked_for_beside_the_workload_first(root, example, tmp_path):
    text = (example / "workload.toml").read_text().replace("./model.toml", "some-model")
    mine = tmp_path / "mine.toml"
    mine.write_text(text)
    assert load_model_of(load_workload(mine)).title == "A small mixture of experts"
    (tmp_path / "models").mkdir()
    model = (example / "model.toml").read_text().replace("A small mixture of experts", "My own")
    (tmp_path / "models" / "some-model.toml").write_text(model)
    assert load_model_of(load_workload(mine)).title == "My own"
    mine.write_text(text.replace('"some-model"', '"models/some-model.toml"'))
    assert load_model_of(load_workload(mine)).title == "My own"


def test_data_of_the_wheel_come_first(tmp_path, monkeypatch):
    package = tmp_path / "cm384model"
    (package / "data").mkdir(parents=True)
    monkeypatch.setattr(catalogue, "__file__", str(package / "specs" / "catalogue.py"))
    assert catalogue.data_root() == package / "data"


@pytest.mark.parametrize("kind", catalogue.FOLDERS)
def test_every_file_of_the_catalogue_loads(kind):
    for name in catalogue.names(kind):
        assert getattr(load, f"load_{kind}")(name).name == name


def test_every_published_figure_is_reproduced():
    assert [line for name in catalogue.names("hardware") for line in failed_checks(load_hardware(name))] == []
