"""Which constant moves an answer most: every range on its own, sorted by its effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cm384model.evidence.colocated_intervals import colocated_residual, colocated_uncertainty
from cm384model.evidence.intervals import (
    decode_uncertainty,
    prefill_uncertainty,
    residual,
)
from cm384model.prediction.case import Case
from cm384model.prediction.evaluate import At
from cm384model.prediction.explain import PREDICTORS, Phase
from cm384model.prediction.results import SCHEMA

QUANTITY = {"decode": "tpot_s", "prefill": "batch_time_s", "colocated": "tpot_s"}
"""What is looked at in each phase."""
UNCERTAINTY = {
    "decode": decode_uncertainty,
    "prefill": prefill_uncertainty,
    "colocated": colocated_uncertainty,
}
"""The effects of the inputs in each phase."""


@dataclass(frozen=True)
class InputEffect:
    """A number with a range, and the relative change of the answer at both ends of the range."""

    path: str
    value: float
    unit: str
    range: tuple[float, float]
    kind: str
    confidence: str
    source: str
    effect_low: float
    effect_high: float


@dataclass(frozen=True)
class Sensitivity:
    """A prediction with the effect of every input that has a range, largest first.

    ``residual`` is the model's own 80 % error on measured rows like this one, in log space; with
    all effects in quadrature it makes the 80 % interval.
    """

    feasible: bool
    reasons: tuple[str, ...]
    workload: str
    hardware: str
    engine: str
    phase: str
    deployment: Mapping[str, Any]
    quantity: str
    predicted: float
    predicted_low: float
    predicted_high: float
    residual: float
    effects: tuple[InputEffect, ...]
    notes: tuple[str, ...] = ()
    schema: int = SCHEMA


def sensitivity(case: Case, phase: Phase, at: At) -> Sensitivity:
    """The effects of all inputs on the `QUANTITY` of a deployment.

    Raises
    ------
    SpecError
        As the prediction.
    """
    prediction, found, quantity = PREDICTORS[phase](case, at), UNCERTAINTY[phase](case, at), QUANTITY[phase]
    error = colocated_residual(case) if phase == "colocated" else residual(case, phase, "")
    low, high = found.interval(quantity, error)
    effects = found.weakest(quantity, len(found.effects[quantity]))
    return Sensitivity(
        feasible=prediction.feasible,
        reasons=prediction.reasons,
        workload=case.workload.name,
        hardware=case.hardware.name,
        engine=case.engine.name,
        phase=phase,
        deployment=prediction.deployment,
        quantity=quantity,
        predicted=found.nominal[quantity],
        predicted_low=low,
        predicted_high=high,
        residual=error,
        effects=tuple(
            InputEffect(
                path=effect.path,
                value=float(effect.quantity.value),
                unit=effect.quantity.unit,
                range=effect.quantity.range or (effect.quantity.value, effect.quantity.value),
                kind=effect.quantity.kind,
                confidence=effect.quantity.confidence,
                source=effect.quantity.origin,
                effect_low=effect.low,
                effect_high=effect.high,
            )
            for effect in effects
        ),
        notes=prediction.notes,
    )
