"""Reports of plans whose instances prefill and decode."""

from __future__ import annotations

from cm384model.planning.colocated import colocated_at
from cm384model.planning.results import ColocatedPlan, PlanResult
from cm384model.prediction.case import Case
from cm384model.prediction.scale_out import asked
from cm384model.report.blocks import Block, Command, Table
from cm384model.report.instances import decode_words, split_cores
from cm384model.report.values import interval, percent, setting, significant, with_unit


def colocated_blocks(case: Case, result: PlanResult, words: str) -> list[Block]:
    """The ranked plans, how they stand beside the best pools, and how to ask why."""
    best = result.colocated[0]
    at = ",".join(f"{name}={setting(value)}" for name, value in colocated_at(best).items())
    if best.kv_precision != case.model.precision.kv:
        words += f" --set model.precision.kv={best.kv_precision}"
    return [
        *([_beside(result)] if result.plans else []),
        _table(case, result.colocated),
        "b: requests per die   mb: microbatches   MTP: draft tokens per step   TP: dies that share heads\n"
        "ETP: dies that split experts   tokens: prompt tokens of a prefill batch on one NPU",
        f"TPOT {interval(best.tpot_s_low, best.tpot_s_high, 's')}, requests/s "
        f"{interval(best.requests_per_s_low, best.requests_per_s_high, '-')} in 80 of 100 cases; "
        f"prefill takes {percent(best.prefill_share)} of the time, a step alone "
        f"{with_unit(best.step_time_s, 's')}",
        "why colocated plan 1:",
        Command(f"cm384 explain {words} --phase colocated --at {at}{asked(case, best.ep)}"),
    ]


def _beside(result: PlanResult) -> str:
    """The best plan of each way to serve."""
    one, other = result.colocated[0], result.plans[0]
    change = one.requests_per_s / other.requests_per_s - 1
    return (
        f"instances that do both beside pools apart: {significant(one.requests_per_s)} against "
        f"{significant(other.requests_per_s)} requests/s ({change:+.1%}), TPOT "
        f"{with_unit(one.tpot_s, 's')} against {with_unit(other.tpot_s, 's')}, TTFT "
        f"{with_unit(one.ttft_s, 's')} against {with_unit(other.ttft_s, 's')}"
    )


def _table(case: Case, plans: tuple[ColocatedPlan, ...]) -> Table:
    cores = split_cores(case)
    rows = [
        (
            str(plan.rank),
            instance_words(plan, cores),
            f"{plan.npus}/{plan.dies}",
            significant(plan.tpot_s * 1e3, 3),
            significant(plan.ttft_s, 3),
            significant(plan.requests_per_s),
            significant(plan.throughput_tokens_per_s_per_npu),
            f"{plan.concurrency:.0f}",
            f"{plan.relative:.2f}",
            percent(plan.prefill_share),
        )
        for plan in plans
    ]
    header = (
        *("#", "prefill and decode", "NPUs\n/dies", "TPOT\n[ms]", "TTFT\n[s]", "req/s", "tok/s\n/NPU"),
        *("in\nflight", "rela-\ntive", "time in\nprefill"),
    )
    return Table(header, rows, "rlrrrrrrrr")


def instance_words(plan: ColocatedPlan, cores: int) -> str:
    """The instances of a plan in a few words."""
    return f"{plan.instances} x {decode_words(plan, cores)} {plan.tokens_per_npu:.0f} tokens"
