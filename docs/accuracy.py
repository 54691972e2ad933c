"""The generated parts of ``accuracy.md`` and of the README's table, by the code of ``cm384 validate``."""

from __future__ import annotations

import functools

from cm384model.evidence.intervals import residuals
from cm384model.evidence.published import shipped_rows
from cm384model.evidence.stages import shipped_stages
from cm384model.evidence.validate import CheckedRow, ErrorSummary, Validation, validate
from cm384model.report import validate as report
from cm384model.report.blocks import Block, Table, markdown
from cm384model.report.values import percent

LABELS = {
    "cm384_dsr1_decode_slo50_1024_1024_b128": "TPOT, 1,024 in, 1,024 out, 128 per NPU",
    "cm384_dsr1_decode_slo50_2048_256_b112": "TPOT, 2,048 in, 256 out, 112 per NPU",
    "cm384_dsr1_decode_slo50_4096_256_b96": "TPOT, 4,096 in, 256 out, 96 per NPU",
    "cm384_dsr1_decode_slo30_4096_256_b24": "TPOT, 4,096 in, 256 out, 24 per NPU",
    "cm384_dsr1_decode_slo15_4096_256_b8": "TPOT, 4,096 in, 256 out, 8 per NPU",
    "cm384_dsr1_prefill_default": "prefill per NPU, real routing",
    "cm384_dsr1_prefill_perfect_eplb": "prefill per NPU, perfect balance",
    "cann_dsr1_prefill_ep32_4k": "prefill batch, serial, forced balance",
    "cm384_layer_ops_stream_attention": "attention stream of one MoE layer",
    "cm384_layer_ops_stream_expert": "expert stream of one MoE layer",
    "cm384_dsr1_mtp_gain_b8": "TPOT without over with a draft token, 8 per NPU",
    "cm384_dsr1_mtp_gain_b128": "the same at 128 per NPU",
    "cm384_dsr1_prefill_microbatch_gain_4096": "prefill time of one over two microbatches",
    "cm384_ems_throughput_90_over_none": "throughput at 90 % reuse over none",
    "x_deepseek_h800_profile_decode_tpot": "H800: TPOT of DeepSeek's profile",
    "x_deepseek_h800_profile_prefill": "H800: prefill of DeepSeek's profile",
}
"""Rows of the README, in its words."""


@functools.cache
def found() -> Validation:
    """The ledger as it is, with the decode rows left out one by one."""
    return validate(shipped_rows(), leave_one_out=True)


def _page(*blocks: Block) -> str:
    return markdown(blocks).rstrip("\n")


def _predicted() -> list[CheckedRow]:
    return [row for row in found().rows if row.predicted is not None]


def readme() -> str:
    """The rows that readers of the README look for, then errors of operators, unseen rows and intervals."""
    by_id = {row.id: row for row in found().rows}
    lines = ["| figure | published | predicted | error | fitted |", "|---|--:|--:|--:|---|"]
    for name, label in LABELS.items():
        row = by_id[name]
        values = f"{report.value(row.published, row.unit)} | {report.value(row.predicted, row.unit)}"
        error = f"{100 * (row.error or 0):+.1f} %"
        lines.append(f"| {label} | {values} | {error} | {'yes' if row.used_for_fit else '**no**'} |")
    summary, unseen = found().summary, found().leave_one_out
    lines.append("")
    for part in summary.operators:
        which = "that fitted a constant" if part.used_for_fit else "that fitted none"
        lines.append(
            f"- {part.rows} operator rows on Ascend 910C {which}: median error {percent(part.median_error)}, "
            f"mean {percent(part.mean_error)}."
        )
    mean = sum(abs(row.error) for row in unseen) / len(unseen)
    lines.append(
        f"- The five decode rows, each predicted by a fit that never saw it: mean error {percent(mean)}."
    )
    lines.append(f"- {report.coverage_line(found())}.")
    return "\n".join(lines)


def summary() -> str:
    """Errors by group."""
    return _page(report.heading(found()), report.summary_table(report.group_summaries(found())))


def coverage() -> str:
    """How good the error bars are."""
    return report.coverage_line(found()) + "."


def targets() -> str:
    """Targets, bars and what was measured."""
    return _page(report.targets_table(found().targets))


def missed() -> str:
    """Targets that are missed, with the reason."""
    lines = [
        f"- **{target.title}**: {report.measured(target)}, bar {report.bar(target)}. {target.reason}"
        for target in found().targets
        if not target.met
    ]
    return "\n".join(lines)


def left_out() -> str:
    """Decode rows under fits that never saw them."""
    return _page(*report.left_out_blocks(found().leave_one_out))


def serving() -> str:
    """Every serving row."""
    return _page(report.rows_table(report.serving_rows(_predicted())))


def by_model() -> str:
    """Errors of steps, batches and runs by model."""
    return _page(report.summary_table(found().summary.models, "model"))


def by_engine() -> str:
    """The same by engine."""
    return _page(report.summary_table(found().summary.engines, "engine"))


def engines() -> str:
    """Every row of another engine or machine, by engine and model."""
    rows = [row for row in _predicted() if report.of_engines(row)]
    rows.sort(key=lambda row: (row.group, row.engine, row.model, row.id))
    header = ("row", "engine", "model", "deployment", "published", "predicted", "error", "band")
    cells = [
        (
            row.id,
            row.engine + (" (fitted)" if row.used_for_fit else ""),
            row.model,
            f"{row.subject}: {row.at}".replace(",", ", "),
            report.value(row.published, row.unit),
            report.predicted(row),
            f"{100 * (row.error or 0):+.1f} %",
            f"{100 * (row.band or 0):.3g} %",
        )
        for row in rows
    ]
    return _page(Table(header, cells, "llllrrrr"))


def kept_out() -> str:
    """Per engine, the rows that fitted a constant and those that were kept out, with the errors of both."""
    header = (
        "engine",
        "fitted constants",
        "rows used",
        "median",
        "worst",
        "rows kept out",
        "median",
        "worst",
    )
    cells = []
    for engine in dict.fromkeys(summary.group for summary in found().summary.engines):
        parts = {s.used_for_fit: s for s in found().summary.engines if s.group == engine}
        fitted = [stage for stage in shipped_stages() if stage.engine == engine and _serves(stage.rows)]
        names = [f"`{path.rpartition('.')[2]}`" for stage in fitted for path in stage.constants]
        cells.append(
            (engine, ", ".join(names) or "none", *_errors(parts.get(True)), *_errors(parts.get(False)))
        )
    return _page(Table(header, cells, "llrrrrrr"))


def spans() -> str:
    """What open acceptances hide: rows inside their span, and the error with one number for all."""
    rows = [row for row in _predicted() if row.open_low is not None]
    inside = sum(row.error == 0 for row in rows)
    middle = sorted(abs((row.predicted or 0) / (row.published or 1) - 1) for row in rows)
    return (
        f"{len(rows)} rows leave the acceptance open, {inside} of them lie in their span. With 0.7 per draft "
        f"for all, the median of their errors were {percent(middle[len(middle) // 2])}."
    )


def _serves(patterns: tuple[str, ...]) -> bool:
    return any(pattern.startswith(("decode", "prefill")) for pattern in patterns)


def _errors(summary: ErrorSummary | None) -> tuple[str, str, str]:
    if summary is None:
        return "0", "", ""
    return str(summary.rows), percent(summary.median_error), report.signed(summary.worst_error)


def worst() -> str:
    """The largest errors among never-fitted rows of this machine's operators, steps and batches."""
    unseen = [row for row in _predicted() if row.is_evidence and not report.of_engines(row)]
    rows = sorted(unseen, key=lambda row: -abs(row.error or 0))
    return _page(report.rows_table(rows[:12]))


def stages() -> str:
    """What was fitted together on what, and the error on rows that a fit never saw."""
    rows = [row for row in shipped_rows() if row.used_for_fit]
    cells = []
    for stage in shipped_stages():
        used = [row for row in rows if stage.matches(row)]
        if used:
            constants = ", ".join(f"`{path.partition('.')[2]}`" for path in stage.constants)
            unseen = percent(residuals()[stage.name])
            cells.append(
                (stage.name, str(len(used)), unseen, " ".join(f"`{p}`" for p in stage.rows), constants)
            )
    header = ("stage", "rows", "80 % of unseen rows below", "rows that match", "constants")
    return _page(Table(header, cells, "lrrll"))


def bands() -> str:
    """Which bands there are."""
    groups: dict[tuple[str, bool], dict[float, int]] = {}
    for row in _predicted():
        counts = groups.setdefault((row.group, row.used_for_fit), {})
        counts[row.band or 0.0] = counts.get(row.band or 0.0, 0) + 1
    cells = [
        (
            group,
            "fitted" if fitted else "never fitted",
            ", ".join(f"{100 * band:.3g} % ({count})" for band, count in sorted(counts.items())),
        )
        for (group, fitted), counts in groups.items()
    ]
    return _page(Table(("group", "rows were", "bands (rows)"), cells, "lll"))


def excluded() -> str:
    """Every row that is not predicted, by its reason."""
    reasons: dict[str, list[str]] = {}
    for row in found().rows:
        if row.predicted is None:
            reasons.setdefault(row.reason, []).append(row.id)
    ordered = sorted(reasons.items(), key=lambda item: (not item[0].startswith("implausible"), -len(item[1])))
    cells = [(reason, str(len(ids)), " ".join(f"`{name}`" for name in ids)) for reason, ids in ordered]
    return _page(Table(("reason", "rows", "ids"), cells, "lrl"))


PARTS = {
    "accuracy": readme,
    "accuracy_summary": summary,
    "accuracy_coverage": coverage,
    "accuracy_targets": targets,
    "accuracy_missed": missed,
    "accuracy_left_out": left_out,
    "accuracy_serving": serving,
    "accuracy_worst": worst,
    "accuracy_models": by_model,
    "accuracy_engines": by_engine,
    "accuracy_kept_out": kept_out,
    "accuracy_spans": spans,
    "accuracy_engine_rows": engines,
    "accuracy_stages": stages,
    "accuracy_bands": bands,
    "accuracy_excluded": excluded,
}
