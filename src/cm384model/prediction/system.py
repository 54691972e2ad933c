"""What a prediction is about: a machine, a serving engine and a model."""

from __future__ import annotations

from dataclasses import dataclass

from cm384model.laws.vector import shared_bandwidth
from cm384model.numeric import Numeric
from cm384model.prediction.operators import Die
from cm384model.specs.engine import Engine
from cm384model.specs.hardware import Hardware
from cm384model.specs.model import Model


@dataclass(frozen=True)
class System:
    """A machine that runs a model under a serving engine."""

    hardware: Hardware
    engine: Engine
    model: Model

    @property
    def kv_precision(self) -> str:
        """Precision of the KV cache."""
        return self.model.precision.kv

    def die(self, share: Numeric = 1.0) -> Die:
        """The share of a die that one stream runs on, with this engine's launch overhead. [-]"""
        exponent = self.hardware.ops.vector.bandwidth_share_exponent.si
        bandwidth = self.hardware.die.hbm_bandwidth.si
        slowed = bandwidth / shared_bandwidth(bandwidth, share, exponent=exponent)
        constants = self.engine.constants
        return Die(
            self.hardware,
            cube_share=share,
            vector_share=share,
            contention=slowed,
            launch_latency=constants.kernel_launch.si,
            startup_share=constants.operator_startup.si,
        )
