"""Which columns a sweep can have."""

from __future__ import annotations

from collections.abc import Iterable

from cm384model.sweeping.evaluate import MEMORY_COLUMNS, evaluate
from cm384model.sweeping.plans import plan_columns
from cm384model.sweeping.study import FILES, GAIN_AND_COST, Study

STATUS = ("feasible", "reasons")
"""Whether a row keeps every constraint, and which ones it does not."""


BESIDE = {"decode": ("step_time_s",), "prefill": (), "colocated": ("ttft_s", "requests_per_s")}
"""Columns of the default beside what makes a row good and its cost, by phase."""

PLAN_DEFAULT = (
    *("requests_per_s", "throughput_tokens_per_s_per_npu", "tpot_s", "ttft_s"),
    *("decode_ep", "decode_batch_per_die", "decode_instances"),
    *("prefill_ep", "prefill_tokens_per_npu", "prefill_instances", "bound_by"),
)


def column_groups(study: Study) -> dict[str, list[str]]:
    """Columns by group; ``default`` is what is written unless ``--columns`` says else."""
    axes = [axis.column for axis in study.axes]
    status = list(STATUS) if study.keep.mode == "all" else []
    if study.phase == "plan":
        results = plan_columns()
        everything = _unique(axes, FILES, STATUS, results)
        return {"default": _unique(axes, status, PLAN_DEFAULT), "axes": axes, "all": everything}
    probe = evaluate(study, [0] * len(study.outer), [slice(0, 1)] * len(study.inner))
    fields, terms = list(probe.deployment), list(probe.terms)
    skipped = {*fields, *terms, *axes, *MEMORY_COLUMNS, *FILES}
    results = [name for name in probe.columns if name not in skipped]
    gain, cost = GAIN_AND_COST[study.phase]
    return {
        "default": _unique(axes, status, [cost], BESIDE[study.phase], [gain, "free_bytes"]),
        "axes": axes,
        "deployment": fields,
        "terms": terms,
        "memory": list(MEMORY_COLUMNS),
        "all": _unique(axes, FILES, fields, STATUS, results, MEMORY_COLUMNS, terms),
    }


def _unique(*groups: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for group in groups for name in group))
