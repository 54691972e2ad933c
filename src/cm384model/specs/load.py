"""Names or paths in, checked specs out."""

from __future__ import annotations

from pathlib import Path

from cm384model.specs.catalogue import resolve
from cm384model.specs.engine import Engine
from cm384model.specs.files import read_spec
from cm384model.specs.hardware import Hardware
from cm384model.specs.model import Model
from cm384model.specs.workload import Workload


def load_hardware(name_or_path: str | Path) -> Hardware:
    """The machine of that name in the catalogue, or in that file."""
    return read_spec(resolve("hardware", _text(name_or_path)), Hardware)


def load_engine(name_or_path: str | Path) -> Engine:
    """The engine of that name in the catalogue, or in that file."""
    return read_spec(resolve("engine", _text(name_or_path)), Engine)


def load_workload(name_or_path: str | Path) -> Workload:
    """The workload of that name in the catalogue, or in that file."""
    return read_spec(resolve("workload", _text(name_or_path)), Workload)


def load_model(name_or_path: str | Path, *, workload: Workload | None = None) -> Model:
    """The model of that name or file; looked for beside the workload first, if one is given."""
    beside = Path(workload.file).parent if workload is not None and workload.file else None
    return read_spec(resolve("model", _text(name_or_path), beside), Model)


def load_model_of(workload: Workload) -> Model:
    """The model a workload names."""
    return load_model(workload.model, workload=workload)


def _text(name_or_path: str | Path) -> str:
    return str(name_or_path)
