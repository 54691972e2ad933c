"""Which data files there are: names only, no parsing, no heavy import."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from cm384model.specs.diagnostics import SpecError, with_suggestion

SpecKind = Literal["hardware", "engine", "workload", "model"]

FOLDERS: dict[SpecKind, str] = {
    "hardware": "hardware",
    "engine": "hardware/engines",
    "workload": "workloads",
    "model": "workloads/models",
}


def data_root() -> Path:
    """The folder that holds ``hardware/`` and ``workloads/``: in the wheel, or the checkout."""
    here = Path(__file__).resolve()
    packaged = here.parents[1] / "data"
    return packaged if packaged.is_dir() else here.parents[3]


def names(kind: SpecKind) -> list[str]:
    """Names of the data files of a kind, sorted."""
    return sorted(path.stem for path in (data_root() / FOLDERS[kind]).glob("*.toml"))


def is_file_name(text: str) -> bool:
    """Whether a value names a file and not an entry of the catalogue."""
    return text.endswith(".toml") or "/" in text or "\\" in text


def resolve(kind: SpecKind, name_or_path: str, beside: Path | None = None) -> Path:
    """The data file a name or a path stands for; ``beside`` is a folder to look in first."""
    if is_file_name(name_or_path):
        places = [Path(name_or_path)] if beside is None else [beside / name_or_path, Path(name_or_path)]
        for place in places:
            if place.is_file():
                return place
        folder = places[0].parent
        near = [path.name for path in folder.glob("*.toml")] if folder.is_dir() else []
        raise SpecError.of(
            with_suggestion(f"no {kind} file '{name_or_path}'", places[0].name, near),
            f"there is {', '.join(sorted(near))} in that folder" if near else None,
        )
    if beside is not None:
        own = beside / Path(FOLDERS[kind]).name / f"{name_or_path}.toml"
        if own.is_file():
            return own
    known = names(kind)
    if name_or_path in known:
        return data_root() / FOLDERS[kind] / f"{name_or_path}.toml"
    raise SpecError.of(
        with_suggestion(f"no {kind} '{name_or_path}'", name_or_path, known),
        f"known are {', '.join(known) or 'none'}; a file is given as path/to/file.toml",
    )
