"""Reports of a plan."""

from __future__ import annotations

from collections.abc import Mapping

from cm384model.planning.results import DecodePool, Plan, PlanResult, PrefillPool
from cm384model.prediction.case import Case
from cm384model.report.blocks import Block, Command, Table
from cm384model.report.report import Report, flat
from cm384model.report.values import significant, tokens, with_unit

LEGEND = (
    "EP: dies of an instance   K: 1024 prompt tokens per NPU and batch   b: requests per die   "
    "mb: microbatches\n"
    "16:8: AIC cores of a die for attention and experts   MTP: draft tokens per step"
)


def plan_report(case: Case, result: PlanResult, words: str) -> Report:
    """The ranked plans, how many candidates they won against, and how to ask why.

    ``words`` chose the case on the command line; they stand in the command to paste.
    """
    blocks: list[Block] = [_title(case, result)]
    if result.plans:
        blocks += [
            _table(case, result.plans),
            LEGEND,
            f"{_limits(result.plans[0])}\n{_counts(result)}",
            "why plan 1:",
            Command(explain_command(result, words)),
        ]
    else:
        blocks += [_counts(result)]
    return Report(blocks, [flat(plan) for plan in result.plans], result)


def explain_command(result: PlanResult, words: str) -> str:
    """The command that explains the pool which limits the best plan."""
    plan = result.plans[0]
    if _decode_limits(plan):
        d = plan.decode
        phase = "decode"
        at = f"ep={d.ep},batch_per_die={d.batch_per_die},microbatches={d.microbatches}"
        at += f",draft_tokens={d.draft_tokens}"
    else:
        p = plan.prefill
        phase = "prefill"
        at = f"ep={p.ep},tokens_per_npu={p.tokens_per_npu},microbatches={p.microbatches}"
    return f"cm384 explain {words} --phase {phase} --at {at}"


def _title(case: Case, result: PlanResult) -> str:
    dies = result.npus * int(case.hardware.dies_per_npu)
    limits = ", ".join(
        f"{name.removesuffix('_s').upper()} <= {with_unit(limit, 's', 6)}"
        for name, limit in result.slo.items()
    )
    return (
        f"{result.workload} on {result.hardware} with {result.engine}, "
        f"{result.npus} NPUs ({dies} dies), {limits}"
    )


def _table(case: Case, plans: tuple[Plan, ...]) -> Table:
    cores = int(case.hardware.die.aic_cores.si)
    rows = [
        (
            str(plan.rank),
            _prefill(plan.prefill),
            _decode(plan.decode, cores),
            f"{plan.npus}/{plan.dies}",
            significant(plan.tpot_s * 1e3, 3),
            significant(plan.ttft_s, 3),
            significant(plan.requests_per_s),
            significant(plan.throughput_tokens_per_s_per_npu),
            f"{plan.concurrency:.0f}",
            f"{plan.relative:.2f}",
            _bound(plan.bound_by),
        )
        for plan in plans
    ]
    header = (
        "#",
        "prefill",
        "decode",
        "NPUs\n/dies",
        "TPOT\n[ms]",
        "TTFT\n[s]",
        "req/s",
        "tok/s\n/NPU",
        "in\nflight",
        "rela-\ntive",
        "bound by",
    )
    return Table(header, rows, "rllrrrrrrrl")


def _prefill(pool: PrefillPool) -> str:
    return f"{pool.instances} x EP{pool.ep} {tokens(pool.tokens_per_npu)} {pool.microbatches}mb"


def _decode(pool: DecodePool, cores: int) -> str:
    split = ""
    if pool.microbatches > 1:
        attention = round(pool.attention_aic_share * cores)
        split = f" {attention}:{cores - attention}"
    return (
        f"{pool.instances} x EP{pool.ep} b{pool.batch_per_die} {pool.microbatches}mb{split}"
        f" MTP{pool.draft_tokens}"
    )


def _bound(bound_by: str) -> str:
    """``decode: experts (compute, 29%)`` without the pool and without the bound of the term."""
    _, _, term = bound_by.rpartition(": ")
    name, _, inside = term.partition(" (")
    share = inside.rpartition(", ")[2].rstrip(")")
    return f"{name} {share}".strip()


def _decode_limits(plan: Plan) -> bool:
    return plan.bound_by.startswith("decode")


def _limits(plan: Plan) -> str:
    pools: dict[str, DecodePool | PrefillPool] = {"decode": plan.decode, "prefill": plan.prefill}
    limiting, other = ("decode", "prefill") if _decode_limits(plan) else ("prefill", "decode")
    could = pools[other].capacity_requests_per_s
    return (
        f"plan 1 is limited by {plan.bound_by}; {limiting} serves "
        f"{significant(pools[limiting].capacity_requests_per_s)} requests/s, {other} could serve "
        f"{significant(could)}"
    )


def _counts(result: PlanResult) -> str:
    per_second = result.candidates / max(result.elapsed_s, 1e-9)
    return (
        f"{result.candidates:,} candidates in {result.elapsed_s:.2f} s ({per_second / 1e6:.1f} M/s), "
        f"{result.feasible_candidates:,} feasible; rejected {_rejected(result.rejected)}"
    )


def _rejected(rejected: Mapping[str, int]) -> str:
    pools: dict[str, list[str]] = {}
    for name, count in rejected.items():
        pool, _, reason = name.partition(".")
        if count:
            pools.setdefault(pool, []).append(f"{reason} {count:,}")
    return "; ".join(f"{pool}: {', '.join(counts)}" for pool, counts in pools.items()) or "none"
