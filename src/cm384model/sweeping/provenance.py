"""Where the rows of a sweep come from: versions, digests of data and code, what was asked."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any

from cm384model import __version__
from cm384model.prediction.case import Case
from cm384model.specs.quantity import Quantity
from cm384model.specs.spec import Spec, nodes
from cm384model.sweeping.study import FILES, Axis, Study

SCHEMA = 1
_MODEL_CODE = ("laws", "prediction", "planning", "specs", "sweeping")


def provenance(study: Study, command: str, columns: Iterable[dict[str, str]]) -> dict[str, Any]:
    """What a sidecar says of a sweep, known before it runs."""
    cases = list(study.cases.values())
    return {
        "schema": SCHEMA,
        "cm384": __version__,
        "code_sha256": code_digest(),
        "command": command,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "numpy": metadata.version("numpy"),
        "polars": metadata.version("polars"),
        "phase": study.phase,
        "files": _files(cases),
        "notes": study.notes,
        "calibration": _calibration(cases),
        "grid": {axis.column: _axis(axis) for axis in study.axes},
        "at": dict(study.at),
        "limits": "slo" if study.limited else "none",
        "keep": study.keep.mode + (f"={study.keep.count}" if study.keep.count else ""),
        "candidates": study.candidates,
        "columns": list(columns),
    }


def fingerprint(study: Study, form: str) -> str:
    """A digest of all that decides the rows: a sweep is resumed only if it is the same one."""
    digest = hashlib.sha256()
    said = [
        __version__,
        code_digest(),
        form,
        study.phase,
        sorted(study.at.items()),
        study.limited,
        [study.keep.mode, study.keep.count],
        list(study.columns),
        [[axis.name, axis.outer] for axis in study.axes],
    ]
    digest.update(json.dumps(said).encode())
    for axis in study.axes:
        words = isinstance(axis.values, tuple)
        digest.update(json.dumps(axis.values).encode() if words else axis.values.tobytes())
    for key, case in study.cases.items():
        digest.update(json.dumps(key).encode())
        for kind in FILES:
            digest.update(getattr(case, kind).model_dump_json().encode())
    return digest.hexdigest()


def code_digest() -> str:
    """A digest of the sources that a prediction runs through."""
    root = files("cm384model")
    digest = hashlib.sha256()
    for room in _MODEL_CODE:
        for path in sorted(Path(str(root / room)).glob("*.py")):
            digest.update(path.read_bytes())
    digest.update((root / "numeric.py").read_bytes())
    return digest.hexdigest()


def _files(cases: Iterable[Case]) -> list[dict[str, str]]:
    found: dict[tuple[str, str], dict[str, str]] = {}
    for case in cases:
        for kind in FILES:
            spec = getattr(case, kind)
            found[kind, spec.name] = _file(kind, spec)
    return list(found.values())


def _file(kind: str, spec: Spec) -> dict[str, str]:
    """What a spec was read from; the digest of one that extends another is that of all its numbers."""
    whole = not spec.file or getattr(spec, "extends", None) is not None
    content = spec.model_dump_json().encode() if whole else Path(spec.file).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    return {"kind": kind, "name": spec.name, "file": Path(spec.file).name, "sha256": digest}


def _calibration(cases: Iterable[Case]) -> dict[str, Any]:
    """The calibration file, and the fits that the numbers of the data files name as their source."""
    content = (files("cm384model.evidence") / "calibration.toml").read_bytes()
    fits = {
        node.source.removeprefix("fit: ")
        for case in cases
        for spec in (case.hardware, case.engine)
        for _, node in nodes(spec)
        if isinstance(node, Quantity) and node.source.startswith("fit: ")
    }
    return {"sha256": hashlib.sha256(content).hexdigest(), "fits": sorted(fits)}


def _axis(axis: Axis) -> dict[str, Any]:
    if isinstance(axis.values, tuple):
        return {"values": list(axis.values)}
    if len(axis) <= 100:
        return {"values": axis.values.tolist()}
    return {"count": len(axis), "first": float(axis.values[0]), "last": float(axis.values[-1])}
