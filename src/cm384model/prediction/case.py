"""A case: everything a prediction depends on, loaded and with the user's changes applied."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cm384model.laws.batching import mean_context
from cm384model.laws.moe import redundancy_imbalance
from cm384model.numeric import Numeric
from cm384model.prediction.system import System
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.engine import Engine
from cm384model.specs.hardware import Hardware
from cm384model.specs.load import load_engine, load_hardware, load_model, load_model_of, load_workload
from cm384model.specs.model import Model
from cm384model.specs.overrides import apply_overrides
from cm384model.specs.quantity import Quantity
from cm384model.specs.spec import node_at, replace_node, replace_value
from cm384model.specs.workload import Workload

DEFAULT_HARDWARE = "cloudmatrix384"
DEFAULT_ENGINE = "cloudmatrix-infer"
DEFAULT_WORKLOAD = "deepseek-r1-4k-256"


@dataclass(frozen=True)
class Case:
    """A machine, an engine, a model and a workload."""

    hardware: Hardware
    engine: Engine
    model: Model
    workload: Workload

    @property
    def system(self) -> System:
        """The machine with the engine and the model on it."""
        return System(self.hardware, self.engine, self.model)

    @property
    def decode_kv_len(self) -> Numeric:
        """Mean context of a request in a running batch, where long outputs stay longer. [tokens]"""
        traffic = self.workload.traffic
        prompt_len, output_len = traffic.prompt_len.si, traffic.output_len.si
        spread = 1 + traffic.output_len_cv.si**2 if traffic.output_len_cv else 1.0
        return mean_context(output_len, spread * output_len**2, prompt_len * output_len)

    def imbalance(self, balance: str, redundant_experts: Numeric | None = None) -> Numeric:
        """Load of the busiest die over the mean under a balance regime. [-]

        Under ``eplb`` it falls with the redundant experts; their number is the engine's by
        default. An engine that balances without any has one imbalance.
        """
        constants, reference = self.engine.constants, self.engine.layout.redundant_experts.si
        if balance != "eplb" or redundant_experts is None or np.all(np.equal(reference, 0)):
            return constants[f"imbalance_{balance}"].si
        return redundancy_imbalance(
            redundant_experts,
            unbalanced=constants.imbalance_none.si,
            balanced=constants.imbalance_eplb.si,
            reference_experts=reference,
        )

    def quantity(self, path: str) -> Quantity:
        """The number at a path such as ``hardware.die.hbm_bandwidth``.

        Raises
        ------
        SpecError
            If there is none.
        """
        kind, _, rest = path.partition(".")
        node = node_at(getattr(self, kind), rest)
        if not isinstance(node, Quantity):
            raise SpecError.of(f"{path} is no number")
        return node

    def with_kv_precision(self, precision: str) -> Case:
        """The case with its KV cache in another precision."""
        return replace(self, model=replace_node(self.model, "precision.kv", precision))

    def replaced(self, path: str, value: Numeric) -> Case:
        """The case with one number at another value in SI units: a number, or an array for many at once.

        ``path`` starts with the kind of spec: ``hardware.die.hbm_bandwidth``.
        """
        kind = path.partition(".")[0]
        return replace(self, **{kind: replace_value(getattr(self, kind), path, value)})


def load_case(
    workload: str | Path,
    *,
    hardware: str | Path | None = None,
    engine: str | Path | None = None,
    model: str | Path | None = None,
    settings: Iterable[str] = (),
) -> Case:
    """Load a case by names or files and apply ``PATH=VALUE`` settings to it.

    The model is that of the workload if none is given; a workload under another one is called so.

    Raises
    ------
    SpecError
        For unknown names, faulty files and faulty settings.
    """
    traffic = load_workload(workload)
    machine = load_hardware(hardware or traffic.defaults.hardware or DEFAULT_HARDWARE)
    own = load_model(model) if model else load_model_of(traffic)
    if model and model != traffic.model:
        traffic = traffic.model_copy(update={"name": f"{own.name} at {traffic.name}"})
    specs = {
        "hardware": machine,
        "engine": load_engine(engine or traffic.defaults.engine or machine.engine or DEFAULT_ENGINE),
        "model": own,
        "workload": traffic,
    }
    return Case(**apply_overrides(specs, list(settings)))
