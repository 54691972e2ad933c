"""The best plans of two cases side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from cm384model.planning.results import PlanResult
from cm384model.prediction.case import Case
from cm384model.prediction.compare import Figure, case_differences
from cm384model.prediction.results import SCHEMA

TOTALS = (
    "requests_per_s",
    "tpot_s",
    "ttft_s",
    "throughput_tokens_per_s_per_npu",
    "throughput_tokens_per_s",
    "concurrency",
    "npus",
    "dies",
)


@dataclass(frozen=True)
class PlanComparison:
    """Two planning results; figures and pools are those of the best plan of each."""

    feasible: bool
    reasons: tuple[str, ...]
    a: PlanResult
    b: PlanResult
    differences: tuple[Figure, ...]
    figures: tuple[Figure, ...]
    pools: tuple[Figure, ...]
    schema: int = SCHEMA


def compare_plan_results(case_a: Case, case_b: Case, a: PlanResult, b: PlanResult) -> PlanComparison:
    """Put the best plans of two results side by side."""
    both = bool(a.plans and b.plans)
    return PlanComparison(
        feasible=both,
        reasons=tuple(f"{name}: {why}" for name, result in (("A", a), ("B", b)) for why in result.reasons),
        a=a,
        b=b,
        differences=(*case_differences(case_a, case_b), *_asked(a, b)),
        figures=tuple(Figure.of(n, getattr(a.plans[0], n), getattr(b.plans[0], n)) for n in TOTALS)
        if both
        else (),
        pools=tuple(_pools(a, b)) if both else (),
    )


def _asked(a: PlanResult, b: PlanResult) -> Iterator[Figure]:
    if a.npus != b.npus:
        yield Figure.of("npus", a.npus, b.npus)
    for name in {**a.slo, **b.slo}:
        if a.slo.get(name) != b.slo.get(name):
            yield Figure.of(name, a.slo.get(name), b.slo.get(name))


def _pools(a: PlanResult, b: PlanResult) -> Iterator[Figure]:
    for phase in ("decode", "prefill"):
        first, second = getattr(a.plans[0], phase), getattr(b.plans[0], phase)
        for f in fields(first):
            yield Figure.of(f"{phase}.{f.name}", getattr(first, f.name), getattr(second, f.name))
