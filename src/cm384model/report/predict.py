"""Reports of one deployment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cm384model.prediction.case import Case
from cm384model.prediction.results import (
    ColocatedPrediction,
    DecodePrediction,
    MemoryResult,
    PrefillPrediction,
    TermResult,
)
from cm384model.report.blocks import Block, Table
from cm384model.report.report import Report
from cm384model.report.values import interval, npus_words, percent, scale, setting, significant, with_unit

Prediction = DecodePrediction | PrefillPrediction | ColocatedPrediction
TOTAL = {"decode": "step", "prefill": "batch", "colocated": "request"}
"""What the terms of a phase add up to."""


def predict_report(case: Case, prediction: Prediction) -> Report:
    """Figures, terms and memory of one deployment."""
    blocks: list[Block] = [heading(case, prediction.phase, prediction.deployment)]
    if prediction.feasible:
        blocks += [_figures(prediction), terms_table(prediction)]
    blocks.append(memory_table(prediction.memory))
    total = sum(term.time_s for term in prediction.terms)
    records = [
        {"name": t.name, "time_s": t.time_s, "share": t.time_s / total}
        | {"flop": t.flop, "bytes": t.bytes, "bound": t.bound}
        for t in prediction.terms
    ]
    return Report(blocks, records, prediction, prediction.notes)


def heading(case: Case, phase: str, deployment: Mapping[str, Any]) -> str:
    """What is predicted: the case, and the deployment with all its values."""
    npus = deployment["ep"] / case.hardware.dies_per_npu
    return (
        f"{case.workload.name} on {case.hardware.name} with {case.engine.name}, {phase}\n"
        f"one instance of {setting(deployment['ep'])} dies ({npus_words(npus)}): {settings(deployment)}"
    )


PLAIN = {
    "expert_tp": 1,
    "context_parallel": 0,
    "pipeline_stages": 1,
    "chunks": 1,
    "balanced_chunks": 1,
}
"""Layouts that most deployments do not have: not worth a word where they stay at this."""


def settings(deployment: Mapping[str, Any]) -> str:
    """A deployment as ``name=value`` words."""
    shown = {name: value for name, value in deployment.items() if PLAIN.get(name) != value}
    return " ".join(f"{name}={setting(value)}" for name, value in shown.items())


def _figures(prediction: Prediction) -> Table:
    if isinstance(prediction, ColocatedPrediction):
        rows = _colocated_rows(prediction)
    elif isinstance(prediction, DecodePrediction):
        rows = _decode_rows(prediction)
    else:
        rows = _prefill_rows(prediction)
    return Table(("", "", "80 % interval", ""), rows, "lrll")


def _decode_rows(p: DecodePrediction) -> list[tuple[str, str, str, str]]:
    tokens = f"{p.tokens_per_step:.2f} tokens per step and request"
    return [
        ("TPOT", _time(p.tpot_s), interval(p.tpot_s_low, p.tpot_s_high, "s"), tokens),
        ("step", _time(p.step_time_s), interval(p.step_time_s_low, p.step_time_s_high, "s"), ""),
        (
            "MoE layer",
            _time(p.layer_time_s),
            interval(p.layer_time_s_low, p.layer_time_s_high, "s"),
            _streams(p),
        ),
        _throughput(p, "output tokens/s per NPU"),
    ]


def _streams(p: DecodePrediction) -> str:
    first, second = _time(p.attention_stream_time_s), _time(p.expert_stream_time_s)
    return f"attention {first} and experts {second} per microbatch"


def _prefill_rows(p: PrefillPrediction) -> list[tuple[str, str, str, str]]:
    microbatches = f"{int(p.deployment['microbatches'])} microbatches"
    return [
        ("batch", _time(p.batch_time_s), interval(p.batch_time_s_low, p.batch_time_s_high, "s"), ""),
        (
            "MoE layer",
            _time(p.layer_time_s),
            interval(p.layer_time_s_low, p.layer_time_s_high, "s"),
            microbatches,
        ),
        _throughput(p, "input tokens/s per NPU"),
    ]


def _colocated_rows(p: ColocatedPrediction) -> list[tuple[str, str, str, str]]:
    prefill = f"prefill takes {percent(p.prefill_share or 0)} of the time"
    rows = [
        ("TPOT", _time(p.tpot_s), interval(p.tpot_s_low, p.tpot_s_high, "s"), prefill),
        ("TTFT", _time(p.ttft_s), interval(p.ttft_s_low, p.ttft_s_high, "s"), "prefilled when it comes"),
        ("request", _time(p.e2e_s), "", f"longest gap between tokens {_time(p.longest_gap_s)}"),
        ("step", _time(p.step_time_s), "", "no prefill beside it"),
        ("prefill", _time(p.prefill_time_s), "", f"of one prompt; a batch {_time(p.batch_time_s)}"),
        (
            "requests/s",
            significant(p.requests_per_s or 0),
            interval(p.requests_per_s_low, p.requests_per_s_high, "-"),
            f"{significant(p.concurrency or 0)} requests at once",
        ),
        _throughput(p, "output tokens/s per NPU"),
    ]
    if p.run_time_s is not None:
        low, high = p.run_tokens_per_s_per_npu_low, p.run_tokens_per_s_per_npu_high
        rows += [
            ("run", _time(p.run_time_s), "", f"{setting(p.deployment['prompts'])} requests, ramp and tail"),
            (
                "of the run",
                significant(p.run_tokens_per_s_per_npu or 0),
                interval(low, high, "-"),
                f"output tokens/s per NPU, TPOT {_time(p.run_tpot_s)}, TTFT {_time(p.run_ttft_s)}",
            ),
        ]
    return rows


def _throughput(p: Prediction, unit: str) -> tuple[str, str, str, str]:
    low, high = p.throughput_tokens_per_s_per_npu_low, p.throughput_tokens_per_s_per_npu_high
    predicted = significant(p.throughput_tokens_per_s_per_npu or 0)
    return "throughput", predicted, interval(low, high, "-"), unit


def _time(seconds: float | None) -> str:
    return with_unit(seconds or 0.0, "s")


def terms_table(prediction: Prediction) -> Table:
    """Terms with their shares; the sum less what overlap hides is the total."""
    hidden = prediction.hidden_time_s or 0.0
    return terms_of(prediction.terms, hidden, TOTAL[prediction.phase])


def terms_of(terms: Iterable[TermResult], hidden: float, total_name: str) -> Table:
    """Table of terms, closed by their sum, the hidden time and the total."""
    terms = tuple(terms)
    summed = sum(term.time_s for term in terms)
    second, time_unit = scale([summed / 10], "s")
    flop, flop_unit = scale([term.flop for term in terms], "FLOP")
    byte, byte_unit = scale([term.bytes for term in terms], "B")
    rows = [
        (
            term.name,
            f"{term.time_s / second:.3f}",
            percent(term.time_s / summed),
            f"{term.flop / flop:.3f}" if term.flop else "",
            f"{term.bytes / byte:.3f}" if term.bytes else "",
            term.bound if term.time_s else "",
        )
        for term in terms
    ]
    rows.append(("sum", f"{summed / second:.3f}", percent(1), "", "", ""))
    if hidden:
        rows.append(("hidden", f"{-hidden / second:.3f}", "", "", "", "overlap of two microbatches"))
    rows.append((total_name, f"{(summed - hidden) / second:.3f}", "", "", "", ""))
    header = ("term", f"time [{time_unit}]", "share", f"[{flop_unit}]", f"[{byte_unit}]", "bound")
    return Table(header, rows, "lrrrrl")


def memory_table(memory: MemoryResult) -> Table:
    """The ledger of one die: what is there, what takes it, what is left."""
    parts = dict(memory.parts_bytes)
    of_buffers = (
        *("exchange_buffers", "latent_gather", "head_exchange", "context_gather", "token_gather"),
        "activations",
    )
    buffers = {name: parts.pop(name) for name in of_buffers if name in parts}
    rows = [_row("capacity", memory.capacity_bytes, memory), _row("weights", memory.weights_bytes, memory)]
    rows += [_row(f"  {name}", size, memory) for name, size in parts.items() if size]
    rows += [
        _row("kv_cache", memory.kv_cache_bytes, memory),
        _row("buffers", memory.buffers_bytes, memory),
        *(_row(f"  {name}", size, memory) for name, size in buffers.items()),
        _row("reserve", memory.reserve_bytes, memory),
        _row("free", memory.free_bytes, memory),
    ]
    return Table(("memory of a die", "size [GB]", "share"), rows, "lrr")


def _row(name: str, size: float, memory: MemoryResult) -> tuple[str, str, str]:
    return name, f"{size / 1e9:.3f}", percent(size / memory.capacity_bytes)
