"""The published rows: measurements of others, each with the deployment or operator it is of."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from cm384model.evidence.rowfile import Line, read_lines
from cm384model.numeric import Numeric
from cm384model.prediction.case import DEFAULT_ENGINE, DEFAULT_HARDWARE, DEFAULT_WORKLOAD, Case, load_case
from cm384model.prediction.colocated import closed_loop_run
from cm384model.prediction.disaggregated import disaggregated_run, read_run
from cm384model.prediction.evaluate import (
    decode_deployment,
    decode_outputs,
    operator_term,
    prefill_deployment,
    prefill_outputs,
    require,
)
from cm384model.prediction.evaluate_colocated import (
    colocated_deployment,
    colocated_outputs,
    read_colocated,
)
from cm384model.specs.deployment import OPERATOR_FIELDS
from cm384model.specs.diagnostics import Problem, SpecError, with_suggestion
from cm384model.specs.load import load_model, load_workload
from cm384model.specs.model import Model
from cm384model.specs.overrides import apply_overrides
from cm384model.specs.spec import node_at
from cm384model.specs.units import SI_UNIT, Dimension

COLUMNS = (
    "id",
    "group",
    "subject",
    "at",
    "against",
    "quantity",
    "published",
    "unit",
    "band",
    "used_for_fit",
    "tier",
    "workload",
    "model",
    "hardware",
    "engine",
    "settings",
    "acceptance",
    "source",
    "reason",
)
REQUIRED = ("id", "subject", "at", "quantity", "published", "unit", "band")

GROUPS = (
    "operators.gemm",
    "operators.grouped_gemm",
    "operators.attention",
    "operators.vector",
    "operators.exchange",
    "operators.collective",
    "operators.ub",
    "decode",
    "prefill",
    "ablations",
    "caching",
    "loading",
    "serving.decode",
    "serving.end_to_end",
    "serving.nvidia",
    "other_machine",
    "other_systems",
)
"""Groups of the shipped rows, in the order of the reports."""

_OPERATOR: dict[str, Dimension] = {
    "time_s": "time",
    "bytes_per_s": "byte_rate",
    "flop_per_s": "flop_rate",
}
_PREFILL: dict[str, Dimension] = {
    "batch_time_s": "time",
    "layer_time_s": "time",
    "throughput_tokens_per_s_per_npu": "token_rate",
}
QUANTITIES: dict[str, dict[str, Dimension]] = {
    "op": _OPERATOR,
    "decode": {
        "tpot_s": "time",
        "step_time_s": "time",
        "layer_time_s": "time",
        "attention_stream_time_s": "time",
        "expert_stream_time_s": "time",
        "throughput_tokens_per_s_per_npu": "token_rate",
    },
    "prefill": _PREFILL,
    "colocated": {
        "tpot_s": "time",
        "ttft_s": "time",
        "throughput_tokens_per_s_per_npu": "token_rate",
        "run_tpot_s": "time",
        "run_ttft_s": "time",
        "run_tokens_per_s_per_npu": "token_rate",
    },
    "disaggregated": {"tpot_s": "time", "run_tokens_per_s_per_npu": "token_rate"},
    "caching": {**_PREFILL, "ttft_s": "time"},
    "loading": {"time_s": "time"},
    "fact": {"time_s": "time", "bytes_per_s": "byte_rate"},
}
"""What can be measured of each kind of subject, and in which dimension."""


RUN = {"run_tpot_s": "tpot", "run_ttft_s": "ttft", "run_tokens_per_s_per_npu": "throughput"}
"""Quantities of a run to the end, and their names there."""


@dataclass(frozen=True)
class Row:
    """One measurement, and the deployment or operator that it is of; ``published`` is in SI units.

    ``against`` makes it a ratio: quantity at ``against`` over quantity at ``at``. A row with a
    ``reason`` is listed and not predicted. ``model`` is empty where it is that of the workload.
    ``acceptance`` gives the ends between which the source leaves the acceptance of a draft open.
    """

    id: str
    group: str
    subject: str
    at: str
    against: str
    quantity: str
    published: float
    unit: str
    band: float
    used_for_fit: bool
    tier: str
    workload: str
    model: str
    hardware: str
    engine: str
    settings: tuple[str, ...]
    acceptance: tuple[float, float] | None
    source: str
    reason: str
    line: Line | None = field(default=None, repr=False, compare=False)

    @property
    def kind(self) -> str:
        """The first word of the subject: one of `QUANTITIES`."""
        return self.subject.partition(" ")[0]

    def located(self, error: SpecError) -> SpecError:
        """An error about this row, at its line."""
        return error if self.line is None else self.line.located(error)


def shipped_rows() -> list[Row]:
    """The published rows that come with the project."""
    return read_rows(Path(str(files("cm384model.evidence") / "published.csv")))


def read_rows(path: Path) -> list[Row]:
    """Rows of a file in the ledger's columns; an empty band is allowed only beside a reason.

    Raises
    ------
    SpecError
        With every faulty line: unknown column, subject or quantity, a number that is not positive
        and finite, a unit that does not fit, an id that stands there twice.
    """
    problems: list[Problem] = []
    rows: list[Row] = []
    for line in read_lines(path, COLUMNS, REQUIRED):
        try:
            rows.append(_row(line))
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    return rows


def _row(line: Line) -> Row:
    reason, fit = line["reason"], line["used_for_fit"] or "no"
    if fit not in ("yes", "no"):
        raise line.error(f"used_for_fit = '{fit}' is not known", fit, "one of yes, no")
    published, unit, band = math.nan, line["unit"], math.nan
    if not reason:
        dimension = dimension_of(line)
        published, unit = line.si("published", dimension), SI_UNIT[dimension]
        band = line.positive("band")
    elif line["published"]:
        published = line.positive("published")
    return Row(
        id=line["id"],
        group=line["group"] or "mine",
        subject=line["subject"],
        at=line["at"],
        against=line["against"],
        quantity=line["quantity"],
        published=published,
        unit=unit,
        band=band,
        used_for_fit=fit == "yes",
        tier=line["tier"],
        workload=line["workload"] or DEFAULT_WORKLOAD,
        model=line["model"],
        hardware=line["hardware"] or DEFAULT_HARDWARE,
        engine=line["engine"] or DEFAULT_ENGINE,
        settings=tuple(part for part in line["settings"].split(";") if part),
        acceptance=_span(line),
        source=line["source"],
        reason=reason,
        line=line,
    )


def _span(line: Line) -> tuple[float, float] | None:
    """The ends of ``0.5..0.9``; None where the cell is empty."""
    text = line["acceptance"]
    if not text:
        return None
    try:
        low, high = (float(end) for end in text.split(".."))
    except ValueError:
        raise line.error(f"acceptance = '{text}' is no range", text, "for example 0.5..0.9") from None
    if not 0 <= low < high <= 1:
        raise line.error(f"acceptance = '{text}' is out of bounds", text, "two numbers from 0 to 1, rising")
    return low, high


def dimension_of(line: Line) -> Dimension:
    """Dimension of a line's value: that of its quantity, a plain number if it is a ratio.

    Raises
    ------
    SpecError
        For a subject or a quantity that there is not.
    """
    subject, quantity = line["subject"], line["quantity"]
    kind, _, operator = subject.partition(" ")
    if kind not in QUANTITIES or (kind == "op" and not operator):
        names = [f"op {name}" for name in OPERATOR_FIELDS]
        message = with_suggestion(f"unknown subject '{subject}'", subject, [*QUANTITIES, *names])
        raise line.error(
            message, subject, "one of decode, prefill, colocated, disaggregated, caching, loading, op NAME"
        )
    if kind == "op" and operator not in OPERATOR_FIELDS:
        message = with_suggestion(f"there is no operator '{operator}'", operator, OPERATOR_FIELDS)
        raise line.error(message, operator, "cm384 list operators tells them all")
    known = QUANTITIES[kind]
    if quantity not in known:
        message = with_suggestion(f"{kind} has no quantity '{quantity}'", quantity, known)
        raise line.error(message, quantity, f"one of {', '.join(known)}")
    return "number" if line["against"] else known[quantity]


@functools.cache
def _case(workload: str, model: str, hardware: str, engine: str, settings: tuple[str, ...]) -> Case:
    """A case of files that are read once each."""
    case = _plain(workload, hardware, engine)
    specs = vars(case) | ({"model": _model(model)} if model else {})
    return Case(**apply_overrides(specs, settings))


@functools.cache
def _plain(workload: str, hardware: str, engine: str) -> Case:
    return load_case(workload, hardware=hardware, engine=engine)


@functools.cache
def _model(name: str) -> Model:
    return load_model(name)


def case_of(row: Row) -> Case:
    """The case a row was measured under."""
    return _case(row.workload, row.model, row.hardware, row.engine, row.settings)


@functools.cache
def model_of(workload: str) -> str:
    """Name of the model of a workload."""
    return load_workload(workload).model


def predicted_value(case: Case, row: Row, acceptance: Numeric | None = None) -> Numeric:
    """What the model says about a row under a case, whose numbers may be arrays.

    Where the row leaves the acceptance of a draft open, it is taken in the middle by default.
    """
    if row.acceptance and acceptance is None:
        acceptance = sum(row.acceptance) / 2
    value = _quantity(case, row.subject, row.at, row.quantity, acceptance)
    if not row.against:
        return value
    return _quantity(case, row.subject, row.against, row.quantity, acceptance) / value


def _quantity(case: Case, subject: str, at: str, quantity: str, acceptance: Numeric | None) -> Numeric:
    kind, _, name = subject.partition(" ")
    if kind == "fact":
        return node_at(case.hardware, at.removeprefix("path=")).si
    if kind in ("op", "loading"):
        term, _ = operator_term(case, name or "model_load", at)
        work = {"bytes_per_s": "bytes", "flop_per_s": "flop"}
        return term.part(work[quantity]) / term.time if quantity in work else term.time
    accepted = {} if acceptance is None else {"acceptance": acceptance}
    if kind == "decode":
        return decode_outputs(case, replace(decode_deployment(case, at), **accepted))[1][quantity]
    if kind == "colocated":
        return _colocated(case, read_colocated(case, at) | accepted, quantity)
    if kind == "disaggregated":
        return disaggregated_run(case, read_run(case, at) | accepted)[quantity]
    layout = "ep=32," if kind == "caching" else ""
    outputs = prefill_outputs(case, prefill_deployment(case, layout + at))[1]
    return outputs["batch_time_s" if quantity == "ttft_s" else quantity]


def _colocated(case: Case, given: dict[str, Any], quantity: str) -> Numeric:
    deployment = colocated_deployment(case, given)
    if quantity not in RUN:
        return colocated_outputs(case, given, deployment)[1][quantity]
    require(given, ("prompts",), "colocated", "--at ep=16,concurrency=64,prompts=256")
    prompts, concurrency = given["prompts"], given["concurrency"]
    run = closed_loop_run(case.system, deployment, prompts=prompts, concurrency=concurrency)
    value: Numeric = getattr(run, RUN[quantity])
    return value


def in_groups(rows: Iterable[Row], groups: Sequence[str]) -> list[Row]:
    """Rows of the groups that begin with one of the words; all rows if there are no words.

    Raises
    ------
    SpecError
        For a word with which no group begins.
    """
    rows = list(rows)
    known = list(dict.fromkeys(row.group for row in rows))
    for word in groups:
        if not any(group.startswith(word) for group in known):
            raise SpecError.of(
                with_suggestion(f"there is no group '{word}'", word, known), f"groups are {', '.join(known)}"
            )
    return [row for row in rows if any(row.group.startswith(word) for word in groups or ("",))]
