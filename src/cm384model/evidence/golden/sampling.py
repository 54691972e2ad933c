"""Predict a random sample of deployments with one version of the data, or with one version of cm384.

This file also runs by itself under the Python of another installation of cm384, so it uses little
of the project: ``python sampling.py SAMPLE.npz OUTPUT.npz``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cm384model import __version__
from cm384model.prediction.case import Case
from cm384model.prediction.evaluate import decode_outputs, filled_decode, filled_prefill, prefill_outputs
from cm384model.specs.catalogue import FOLDERS, data_root
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.load import load_engine, load_hardware, load_model_of, load_workload
from cm384model.specs.overrides import apply_overrides

Arrays = dict[str, np.ndarray]
COLUMNS = {
    "decode": (
        "ep",
        "batch_per_die",
        "microbatches",
        "attention_aic_share",
        "attention_tp",
        "draft_tokens",
    ),
    "prefill": ("ep", "tokens_per_npu", "microbatches", "reuse"),
}
"""Columns of a sample that each phase takes as they are."""


class Data:
    """The data files of one version, each read once.

    Attributes
    ----------
    root : Path
        The folder with ``hardware/`` and ``workloads/``; what it has no file for is shipped.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._read: dict[tuple[str, str], Any] = {}
        self._cases: dict[str, Case] = {}

    def case(self, block: Mapping[str, Any]) -> Case:
        """The case of a block."""
        kinds = ("hardware", "engine", "workload")
        key = json.dumps([*(block[kind] for kind in kinds), block["settings"]])
        if key not in self._cases:
            specs = {kind: self.spec(kind, block[kind]) for kind in kinds}
            specs["model"] = self._model(block["workload"], specs["workload"])
            self._cases[key] = Case(**apply_overrides(specs, block["settings"]))
        return self._cases[key]

    def spec(self, kind: Any, name: str) -> Any:
        """The machine, engine or workload of that name."""
        if (kind, name) not in self._read:
            own = self.root / FOLDERS[kind] / f"{name}.toml"
            self._read[kind, name] = _READERS[kind](str(own) if own.is_file() else name)
        return self._read[kind, name]

    def _model(self, workload: str, spec: Any) -> Any:
        if ("model", workload) not in self._read:
            self._read["model", workload] = load_model_of(spec)
        return self._read["model", workload]


_READERS = {"hardware": load_hardware, "engine": load_engine, "workload": load_workload}


def outputs_of(blocks: list[dict[str, Any]], sample: Mapping[str, np.ndarray], data: Data) -> Arrays:
    """Every quantity of every deployment of a sample, NaN where a block has none of that name.

    A block is a phase, a machine, an engine, a workload and the rows of the sample that it takes.
    What is not in the sample is as the data files say. A block that cannot be evaluated leaves
    its rows NaN.
    """
    size = len(sample["ep"])
    found: Arrays = {}
    for block in blocks:
        rows = slice(*block["rows"])
        given = {name: column[rows] for name, column in sample.items()}
        try:
            outputs = _outputs(block, given, data.case(block))
        except (SpecError, KeyError):
            continue
        for name, values in outputs.items():
            key = f"{block['phase']}.{name}"
            found.setdefault(key, np.full(size, np.nan))[rows] = values
    return found


def deployment(block: Mapping[str, Any], given: Mapping[str, Any], case: Case) -> dict[str, Any]:
    """What is given of a deployment: the columns of its phase, lengths as multiples of the workload's own.

    A prefill batch holds at least one whole prompt.
    """
    decode = block["phase"] == "decode"
    found = {name: given[name] for name in COLUMNS[block["phase"]]}
    own = case.decode_kv_len if decode else case.workload.traffic.prompt_len.si
    length = np.ceil(given["length_factor"] * own)
    if decode:
        return found | {"kv_len": length, "balance": block["balance"]}
    batch = given["tokens_per_npu"] * given["ep"] / case.hardware.dies_per_npu
    return found | {
        "prompt_len": np.minimum(length, batch),
        "balance": block["balance"],
        "plane": block["plane"],
    }


def _outputs(block: Mapping[str, Any], columns: Mapping[str, Any], case: Case) -> dict[str, Any]:
    phase, given = block["phase"], deployment(block, columns, case)
    if phase == "decode":
        step, outputs = decode_outputs(case, filled_decode(case, given))
        found, memory, terms = dict(outputs), step.memory, step.terms
    else:
        batch, outputs = prefill_outputs(case, filled_prefill(case, given))
        found, memory, terms = dict(outputs), batch.memory, batch.terms
    found |= {f"terms.{term.name}.time_s": term.time for term in terms}
    found |= {"memory.weights_bytes": memory.weights, "memory.kv_cache_bytes": memory.kv_cache}
    return found | {"memory.buffers_bytes": memory.buffers, "memory.free_bytes": memory.free}


def main(sample_file: str, output_file: str) -> None:
    """Read a sample, predict it with this installation and its own data files, write the outputs."""
    with np.load(sample_file) as stored:
        blocks = json.loads(str(stored["blocks"]))
        sample = {name: stored[name] for name in stored.files if name != "blocks"}
    answer: dict[str, Any] = outputs_of(blocks, sample, Data(data_root()))
    np.savez(output_file, version=__version__, root=str(data_root()), **answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
