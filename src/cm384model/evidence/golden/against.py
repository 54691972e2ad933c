"""What a golden file cannot see: two versions on a large random sample of deployments."""

from __future__ import annotations

import json
import shlex
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cm384model import __version__
from cm384model.evidence.golden import sampling
from cm384model.evidence.golden.cases import SPECS, said
from cm384model.evidence.golden.check import TOLERANCE
from cm384model.evidence.golden.drawing import PHASES, draw
from cm384model.prediction.results import SCHEMA
from cm384model.specs.catalogue import FOLDERS, data_root
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.files import read_spec

DEPLOYMENTS = 200_000
SEED = 384
_FREE = "memory.free_bytes"
_FOLDERS = ("hardware", "workloads")


@dataclass(frozen=True)
class QuantityChange:
    """How one quantity changed over the deployments that fit the memory in either version.

    Changes are relative: ``median`` and the ``largest`` with their sign, ``p95`` of the sizes; None
    where a change from zero has none.
    """

    quantity: str
    deployments: int
    unchanged: float
    median: float | None
    p95: float | None
    largest: float | None
    worst: str


@dataclass(frozen=True)
class NumberChange:
    """One number or word of a data file in both versions; None where a version has none."""

    file: str
    path: str
    old_value: str | None
    new_value: str | None


@dataclass(frozen=True)
class AgainstResult:
    """The comparison of two versions, the quantity with the largest change first.

    ``compared`` counts the deployments that fit the memory in either version; ``lost`` those that
    the old version predicts and the new one cannot, ``gained`` the reverse.
    """

    old_version: str
    new_version: str
    deployments: int
    compared: int
    seed: int
    lost: int
    gained: int
    fits_no_more: int
    fits_now: int
    only_old: tuple[str, ...]
    only_new: tuple[str, ...]
    data_changes: tuple[NumberChange, ...]
    quantities: tuple[QuantityChange, ...]
    elapsed_s: float
    schema: int = SCHEMA

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        moved = any(q.unchanged < 1 for q in self.quantities)
        differs = (self.lost, self.gained, self.fits_no_more, self.fits_now, self.only_old, self.only_new)
        return not (moved or any(differs))


@dataclass(frozen=True)
class _Version:
    """One side: what it is called, where its data files are, what it predicts for the sample."""

    label: str
    root: Path
    outputs: sampling.Arrays


def against(version: str, deployments: int = DEPLOYMENTS, seed: int = SEED) -> AgainstResult:
    """Compare an old version with what is here.

    ``version`` is a folder with ``hardware/`` and ``workloads/``, the folder of a virtual
    environment with another cm384, or a git revision of the data folders. What is here are the
    data folders of the current folder, else the shipped ones.

    Raises
    ------
    SpecError
        If ``version`` is none of them, or if no machine, engine and workload go together.
    """
    started = time.perf_counter()
    python = _python(Path(version))
    here = data_root() if python else data_here()
    data = sampling.Data(here)
    blocks, sample = draw(data, deployments, seed)
    if python:
        old = _other_version(python, blocks, sample)
        changes = _numbers(old.root, here)
        new = _Version(f"cm384 {__version__}", here, sampling.outputs_of(blocks, sample, data))
    else:
        with old_data(version, here) as root:
            changes = _numbers(root, here)
            old = _Version(version, root, sampling.outputs_of(blocks, sample, sampling.Data(root)))
        label = "." if here == Path.cwd() else "the shipped data"
        new = _Version(label, here, sampling.outputs_of(blocks, sample, data))
    return _compared(old, new, blocks, sample, changes, seed, started)


def data_here() -> Path:
    """The folder whose ``hardware/`` or ``workloads/`` are meant: the current one, or the shipped data."""
    return Path.cwd() if any((Path.cwd() / name).is_dir() for name in _FOLDERS) else data_root()


@contextmanager
def old_data(version: str, here: Path) -> Iterator[Path]:
    """The folder with the data of a version: a folder as it is, a git revision unpacked for the while."""
    folder = Path(version)
    if folder.is_dir():
        if not any((folder / name).is_dir() for name in _FOLDERS):
            raise SpecError.of(
                f"'{version}' has neither hardware/ nor workloads/", "nor is it a virtual environment"
            )
        yield folder.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="cm384-check-") as unpacked:
        listed = _git(here, version, "ls-tree", "--name-only", version).decode().split("\n")
        folders = [name for name in _FOLDERS if name in listed]
        if not folders:
            raise SpecError.of(f"revision '{version}' has neither hardware/ nor workloads/ in {here}")
        archive = Path(unpacked) / "data.tar"
        archive.write_bytes(_git(here, version, "archive", "--format=tar", version, *folders))
        with tarfile.open(archive) as tar:
            tar.extractall(unpacked, filter="data")
        yield Path(unpacked)


def _git(here: Path, version: str, *arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, check=False)
    except OSError as error:
        raise SpecError.of(f"cannot run git: {error.strerror}") from error
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        raise SpecError.of(
            f"'{version}' is no folder and no git revision of {here}",
            f"git says: {words[0].removeprefix('fatal: ') if words else 'nothing'}",
        )
    return done.stdout


def _python(folder: Path) -> Path | None:
    """The interpreter of a virtual environment."""
    places = (folder / "bin" / "python", folder / "Scripts" / "python.exe")
    return next((place.absolute() for place in places if place.exists()), None)


def _other_version(python: Path, blocks: list[dict[str, Any]], sample: Mapping[str, np.ndarray]) -> _Version:
    """The same sample under another installation."""
    with tempfile.TemporaryDirectory(prefix="cm384-check-") as folder:
        asked, answered = Path(folder) / "sample.npz", Path(folder) / "outputs.npz"
        columns: dict[str, Any] = dict(sample)
        np.savez(asked, blocks=json.dumps(blocks), **columns)
        command = [str(python), "-I", str(Path(sampling.__file__)), str(asked), str(answered)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
            raise SpecError.of(f"the cm384 of {python} cannot predict the sample: {last}")
        with np.load(answered) as stored:
            outputs = {name: stored[name] for name in stored.files if name not in ("version", "root")}
            label = f"cm384 {stored['version']} in {python.parents[1]}"
            return _Version(label, Path(str(stored["root"])), outputs)


def _compared(
    old: _Version,
    new: _Version,
    blocks: list[dict[str, Any]],
    sample: Mapping[str, np.ndarray],
    changes: tuple[dict[str, set[str]], list[NumberChange]],
    seed: int,
    started: float,
) -> AgainstResult:
    size = len(sample["ep"])
    free = {side: _free(version.outputs, size) for side, version in (("old", old), ("new", new))}
    predicted = {side: ~np.isnan(values) for side, values in free.items()}
    both = predicted["old"] & predicted["new"]
    fits = {side: values >= 0 for side, values in free.items()}
    counted = both & (fits["old"] | fits["new"])
    quantities = [
        found
        for name in sorted({*old.outputs, *new.outputs} - {f"{phase}.{_FREE}" for phase in PHASES})
        if (found := _quantity(name, blocks, sample, counted, old.outputs.get(name), new.outputs.get(name)))
    ]
    files, numbers = changes
    return AgainstResult(
        old_version=old.label,
        new_version=new.label,
        deployments=size,
        compared=int(counted.sum()),
        seed=seed,
        lost=int((predicted["old"] & ~predicted["new"]).sum()),
        gained=int((predicted["new"] & ~predicted["old"]).sum()),
        fits_no_more=int((both & fits["old"] & ~fits["new"]).sum()),
        fits_now=int((both & fits["new"] & ~fits["old"]).sum()),
        only_old=tuple(sorted(files["old"] - files["new"])),
        only_new=tuple(sorted(files["new"] - files["old"])),
        data_changes=tuple(numbers),
        quantities=tuple(sorted(quantities, key=_size)),
        elapsed_s=time.perf_counter() - started,
    )


def _size(quantity: QuantityChange) -> tuple[bool, float]:
    largest = float("inf") if quantity.largest is None else abs(quantity.largest)
    return quantity.unchanged == 1, -largest


def _free(outputs: sampling.Arrays, size: int) -> np.ndarray:
    """Memory left by every deployment, NaN where it was not predicted. [B]"""
    free = np.full(size, np.nan)
    for phase in PHASES:
        values = outputs.get(f"{phase}.{_FREE}", free)
        free = np.where(np.isnan(values), free, values)
    return free


def _quantity(
    name: str,
    blocks: list[dict[str, Any]],
    sample: Mapping[str, np.ndarray],
    counted: np.ndarray,
    old: np.ndarray | None,
    new: np.ndarray | None,
) -> QuantityChange | None:
    """The changes of one quantity; a value that only one version has counts as one that moved from zero."""
    nothing = np.full(len(counted), np.nan)
    before, after = (nothing if a is None else a for a in (old, new))
    rows = np.flatnonzero(counted & ~(np.isnan(before) & np.isnan(after)))
    if not len(rows):
        return None
    before, after = (np.nan_to_num(a[rows], nan=0.0) for a in (before, after))
    change = np.where(before == after, 0.0, np.inf)
    np.divide(after - before, np.abs(before), out=change, where=before != 0)
    size = np.abs(change)
    worst = int(np.argmax(size))
    moved = size > TOLERANCE
    return QuantityChange(
        quantity=name,
        deployments=len(rows),
        unchanged=1 - float(np.count_nonzero(moved)) / len(rows),
        median=_finite(np.quantile(change, 0.5, method="higher")),
        p95=_finite(np.quantile(size, 0.95, method="higher")),
        largest=_finite(change[worst]),
        worst=command_of(blocks, sample, int(rows[worst])) if moved.any() else "",
    )


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def command_of(blocks: list[dict[str, Any]], sample: Mapping[str, np.ndarray], row: int) -> str:
    """The command that predicts one deployment of a sample."""
    block = next(block for block in blocks if block["rows"][0] <= row < block["rows"][1])
    given = {name: column[row] for name, column in sample.items()}
    at = sampling.deployment(block, given, sampling.Data(data_here()).case(block))
    if at["microbatches"] == 1:
        at.pop("attention_aic_share", None)
    at = {name: value if isinstance(value, str) else _exact(float(value)) for name, value in at.items()}
    words = [block["workload"], "--hardware", block["hardware"], "--engine", block["engine"]]
    words += ["--phase", block["phase"], "--at", ",".join(f"{name}={value}" for name, value in at.items())]
    words += [word for setting in block["settings"] for word in ("--set", setting)]
    return f"cm384 predict {shlex.join(words)}"


def _exact(value: float) -> str:
    """A number that reads back as itself: kernels round shares of cores up to whole ones."""
    return f"{value:.0f}" if value == int(value) else repr(value)


def _numbers(old_root: Path, new_root: Path) -> tuple[dict[str, set[str]], list[NumberChange]]:
    """The data files of both versions, and every number and word in which they differ."""
    files: dict[str, set[str]] = {"old": set(), "new": set()}
    changes: list[NumberChange] = []
    for kind in SPECS:
        folder = FOLDERS[kind.spec_kind]  # type: ignore[index]
        names = {}
        for side, root in (("old", old_root), ("new", new_root)):
            names[side] = {path.stem for path in (root / folder).glob("*.toml")}
        if not all(names.values()):  # a version without files of a kind uses the shipped ones
            continue
        for side, stems in names.items():
            files[side] |= {f"{folder}/{stem}.toml" for stem in stems}
        for stem in sorted(names["old"] & names["new"]):
            file = f"{folder}/{stem}.toml"
            old, new = (said(read_spec(root / file, kind)) for root in (old_root, new_root))
            changes += [
                NumberChange(file, path, old.get(path), new.get(path))
                for path in {**old, **new}
                if old.get(path) != new.get(path)
            ]
    return files, changes
