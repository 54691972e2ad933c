"""How far to trust a prediction: the ranges of its inputs, carried through the model.

One evaluation gives every sensitivity: each sourced number becomes an array that is at its low
end in one row, at its high end in the next, and nominal everywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cm384model.numeric import Numeric
from cm384model.prediction.case import Case
from cm384model.recording import Reading, recording
from cm384model.specs.quantity import Quantity

Outputs = Mapping[str, Numeric]


@dataclass(frozen=True)
class Effect:
    """What one input's range does to one output, with everything else at its nominal value.

    ``low`` and ``high`` are relative changes of the output at the two ends of the range.
    """

    path: str
    quantity: Quantity
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the distance between the two ends, in log space. [-]"""
        return float(abs(np.log1p(self.high) - np.log1p(self.low)) / 2)


@dataclass(frozen=True)
class Uncertainty:
    """Intervals and effects of every output of one evaluation."""

    nominal: dict[str, float]
    effects: dict[str, list[Effect]]

    def interval(self, output: str, residual: float = 0.0) -> tuple[float, float]:
        """80 % interval of an output.

        The delta method on the log: effects of independent inputs add in quadrature, and so
        does ``residual``, the 80 % half-width of the model's error on measured rows like this.
        A range is read as an 80 % interval of its input, so no factor enters.
        """
        width = float(np.sqrt(sum(e.half_width**2 for e in self.effects[output]) + residual**2))
        return self.nominal[output] * float(np.exp(-width)), self.nominal[output] * float(np.exp(width))

    def weakest(self, output: str, count: int) -> list[Effect]:
        """The inputs whose ranges move an output most, largest first."""
        return sorted(self.effects[output], key=lambda e: e.half_width, reverse=True)[:count]


def propagate(case: Case, evaluate: Callable[[Case], Outputs]) -> Uncertainty:
    """Evaluate a scalar prediction, and how the range of each number it reads moves it.

    Parameters
    ----------
    case : Case
        What the prediction depends on.
    evaluate : callable
        Takes a case whose numbers may be arrays of shape ``(n,)`` and returns outputs by name,
        each a scalar or of that shape.

    Returns
    -------
    Uncertainty
        Nominal values, and per output an `Effect` for every number with a range.
    """
    return propagate_each(case, evaluate, 1)[0]


def propagate_each(case: Case, evaluate: Callable[[Case], Outputs], count: int) -> list[Uncertainty]:
    """The same for several predictions at once: outputs broadcast to shape ``(count, n)``."""
    with recording() as entries:
        evaluate(case)
    read = {e.path: e.quantity for e in entries if isinstance(e, Reading) and e.quantity.range is not None}
    rows = 2 * len(read) + 1
    varied = case
    for i, (path, quantity) in enumerate(read.items()):
        values = np.full(rows, float(quantity.si))
        values[2 * i], values[2 * i + 1] = quantity.range_si or (values[-1], values[-1])
        varied = varied.replaced(path, values)
    outputs = {name: np.broadcast_to(value, (count, rows)) for name, value in evaluate(varied).items()}
    return [_effects(read, {name: values[row] for name, values in outputs.items()}) for row in range(count)]


def _effects(read: Mapping[str, Quantity], outputs: Mapping[str, np.ndarray]) -> Uncertainty:
    """Of outputs under every single change, the last of which is none."""
    changes = {name: values / (values[-1] or 1.0) - bool(values[-1]) for name, values in outputs.items()}
    effects = {
        name: [
            Effect(path, quantity, float(change[2 * i]), float(change[2 * i + 1]))
            for i, (path, quantity) in enumerate(read.items())
        ]
        for name, change in changes.items()
    }
    return Uncertainty({name: float(values[-1]) for name, values in outputs.items()}, effects)
