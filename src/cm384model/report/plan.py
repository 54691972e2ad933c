"""Reports of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cm384model.planning.results import (
    CachePool,
    ColocatedPlan,
    DecodePool,
    MixedPools,
    Plan,
    PlanResult,
    PrefillPool,
)
from cm384model.planning.vary import Varied
from cm384model.prediction.case import Case
from cm384model.prediction.scale_out import asked
from cm384model.report.blocks import Block, Command, Table
from cm384model.report.colocated_plan import colocated_blocks, instance_words
from cm384model.report.instances import at_words, decode_words, legend, prefill_words, split_cores
from cm384model.report.report import Report, flat
from cm384model.report.values import limit_words, npus_words, significant, with_unit


def plan_report(case: Case, result: PlanResult, words: str) -> Report:
    """The ranked plans, how many candidates they won against, and how to ask why.

    ``words`` chose the case on the command line; they stand in the command to paste.
    """
    blocks: list[Block] = [_title(case, result)]
    if result.colocated:
        blocks += colocated_blocks(case, result, words)
    if result.plans:
        blocks += [
            _table(case, result.plans),
            legend(pool for plan in result.plans for pool in (plan.prefill, plan.decode)),
            f"{_limits(result.plans[0], result.slo.get('e2e_s'))}\n{_help(result)}",
            *([_cache(case, result)] if result.plans[0].cache else []),
            *([_frontier(result)] if result.frontier else []),
            _counts(result),
            "why plan 1:",
            Command(explain_command(case, result, words)),
            *([Command(cache_command(case, result, words))] if result.plans[0].prefill.reuse else []),
        ]
    else:
        blocks += [_counts(result)]
    records = [flat(plan) for plan in result.plans or result.colocated]
    if result.plans and result.colocated:
        records = [{"serving": "disaggregated"} | record for record in records]
        records += [{"serving": "colocated"} | flat(plan) for plan in result.colocated]
    return Report(blocks, _aligned(records), result, result.notes)


def _aligned(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of several kinds, all with the keys of all."""
    names = dict.fromkeys(name for record in records for name in record)
    return [{name: record.get(name) for name in names} for record in records]


def explain_command(case: Case, result: PlanResult, words: str) -> str:
    """The command that explains the pool which limits the best plan."""
    plan = result.plans[0]
    pool: DecodePool | PrefillPool = plan.decode if _decode_limits(plan) else plan.prefill
    phase = "decode" if _decode_limits(plan) else "prefill"
    if _decode_limits(plan) and plan.decode.kv_precision != case.model.precision.kv:
        words += f" --set model.precision.kv={plan.decode.kv_precision}"
    return f"cm384 explain {words} --phase {phase} --at {at_words(case, pool)}{asked(case, pool.ep)}"


def cache_command(case: Case, result: PlanResult, words: str) -> str:
    """The command that explains what loading from the cache costs the prefill of the best plan."""
    pool = result.plans[0].prefill
    at = at_words(case, pool) + asked(case, pool.ep)
    return f"cm384 explain {words} cache_load --phase prefill --at {at}"


def _title(case: Case, result: PlanResult) -> str:
    dies = result.npus * int(case.hardware.dies_per_npu)
    limits = ", ".join(
        f"{name.removesuffix('_s').upper()} <= {limit_words(limit)}" for name, limit in result.slo.items()
    )
    if result.rate_requests_per_s is not None:
        limits = f"{result.objective} at {result.rate_requests_per_s:g} requests/s, {limits}"
    return (
        f"{result.workload} on {result.hardware} with {result.engine}, "
        f"{npus_words(result.npus)} ({dies} dies), {limits}"
    )


def _table(case: Case, plans: tuple[Plan, ...]) -> Table:
    cores = split_cores(case)
    rows = [
        (
            str(plan.rank),
            *_pools(plan, cores),
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


def _pools(plan: Plan, cores: int) -> tuple[str, str]:
    """The pools of a plan in words."""
    p, d = plan.prefill, plan.decode
    return f"{p.instances} x {prefill_words(p)}", f"{d.instances} x {decode_words(d, cores)}"


def _bound(bound_by: str) -> str:
    """``decode: experts (compute, 29%)`` without the pool and without the bound of the term."""
    _, _, term = bound_by.rpartition(": ")
    name, _, inside = term.partition(" (")
    share = inside.rpartition(", ")[2].rstrip(")")
    return f"{name} {share}".strip()


def _decode_limits(plan: Plan) -> bool:
    return plan.bound_by.startswith("decode")


def _limits(plan: Plan, e2e: float | None) -> str:
    """What limits the best plan, the load of both pools, and the slack of every limit."""
    d, p, rate, drifting = plan.decode, plan.prefill, plan.requests_per_s, plan.ttft_arrivals_s
    return "\n".join(
        (
            f"plan 1 is limited by {plan.bound_by}; load: decode {d.utilisation:.1%} of "
            f"{significant(d.capacity_requests_per_s)} requests/s, prefill {p.utilisation:.1%} of "
            f"{significant(p.capacity_requests_per_s)}",
            f"TPOT {_interval(plan.tpot_s, plan.tpot_s_low, plan.tpot_s_high, 1e3)} ms, "
            f"slack {_slack(plan.tpot_slack_s, 1e3)} ms; "
            f"TTFT {_interval(plan.ttft_s, plan.ttft_s_low, plan.ttft_s_high, 1)} s, "
            f"95th percentile {significant(plan.ttft_p95_s, 3)} s, slack {_slack(plan.ttft_slack_s, 1)} s"
            + (f"; as the arrivals drift {significant(drifting, 3)} s" if drifting is not None else "")
            + (f"; E2E {significant(plan.e2e_s)} s, slack {_slack(e2e - plan.e2e_s, 1)} s" if e2e else ""),
            f"requests/s {_interval(rate, plan.requests_per_s_low, plan.requests_per_s_high, 1)}; "
            f"tokens/s of the plan {significant(plan.throughput_tokens_per_s)}; memory left on a die: "
            f"decode {d.free_bytes / 1e9:.1f} GB, prefill {p.free_bytes / 1e9:.1f} GB",
        )
    )


def _cache(case: Case, result: PlanResult) -> str:
    """The pool of the best plan: its size, what it finds, its traffic, and what sets its size."""
    plan, cache = result.plans[0], result.plans[0].cache
    if cache is None:
        return ""
    if not cache.nodes:
        return f"context cache: unused, 0 of at most {cache.limit_nodes} nodes of DRAM"
    dram, share = case.hardware.node.dram_capacity, case.engine.constants.cache_dram_share
    lent = f"{share.si:.0%} ({share.confidence}) of their "
    if dram is not None:
        lent += f"{with_unit(dram.si, 'B', 2)} ({dram.confidence}) of DRAM"
    load, most = cache.load_bytes_per_s, cache.load_limit_bytes_per_s
    moved, most_moved = cache.dram_bytes_per_s, cache.dram_limit_bytes_per_s
    return "\n".join(
        (
            f"context cache: {cache.nodes} of at most {cache.limit_nodes} nodes lend {lent}: "
            f"{with_unit(cache.capacity_bytes, 'B', 3)}",
            f"  {cache.capacity_tokens / 1e6:,.1f} M tokens in {cache.capacity_blocks:,.0f} blocks; "
            f"size set by {cache.bound_by}",
            f"  hit rate {cache.hit_rate:.1%} of the prompt tokens; a token not asked for stays "
            f"{_duration(cache.retention_s)}",
            f"  loads over {plan.prefill.plane} {with_unit(load, 'B/s', 3)} of {with_unit(most, 'B/s', 3)} "
            f"({load / most:.1%}), DRAM {with_unit(moved, 'B/s', 3)} of {with_unit(most_moved, 'B/s', 3)} "
            f"({moved / most_moved:.1%})",
        )
    )


def _cache_cells(cache: CachePool) -> tuple[str, str]:
    return str(cache.nodes), f"{cache.hit_rate:.1%}"


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:,.3g} min"


def _slack(seconds: float, scale: float) -> str:
    """What is left of a limit; nothing where a search stopped at it."""
    return significant(seconds * scale, 3) if seconds > 1e-9 else "0"


def _interval(value: float, low: float | None, high: float | None, scale: float) -> str:
    """A value and its 80 % interval, where there is one."""
    text = significant(value * scale, 4)
    if low is None or high is None:
        return text
    return f"{text} ({significant(low * scale, 3)} .. {significant(high * scale, 3)})"


def _help(result: PlanResult) -> str:
    """What binds, what would help, what the second plan trades, and the weakest inputs."""
    at_rate = result.rate_requests_per_s is not None
    changes = ", ".join(
        f"{m.change} {m.requests_per_s_change:+.1%}" for m in result.marginals if m.requests_per_s_change
    )
    weakest = ", ".join(
        f"{w.path.partition('.')[2]} ({w.confidence}, {w.requests_per_s_change_low:+.1%} .. "
        f"{w.requests_per_s_change_high:+.1%})"
        for w in result.weakest_inputs
    )
    lines = {
        f"binding constraint{' above that rate' if at_rate else ''}": result.binding,
        f"{'most requests/s of its NPUs' if at_rate else 'requests/s'} if": changes,
        "runner-up": result.runner_up,
        "mixed decode sizes": _mixed(result.mixed),
        "weakest inputs, requests/s": weakest,
    }
    return "\n".join(f"{name}: {text}" for name, text in lines.items() if text)


def _mixed(mixed: MixedPools | None) -> str:
    if mixed is None:
        return ""
    decode = " + ".join(f"{count} x {name}" for name, count in mixed.decode_instances.items())
    return (
        f"{decode} beside {mixed.prefill_instances} prefill instances, {npus_words(mixed.npus)}: "
        f"{significant(mixed.requests_per_s)} requests/s ({mixed.requests_per_s_change:+.1%})"
    )


def _frontier(result: PlanResult) -> Table:
    rows = [
        (
            significant(point.tpot_s * 1e3, 3),
            significant(point.ttft_s, 3),
            significant(point.requests_per_s),
            significant(point.throughput_tokens_per_s),
            f"EP{point.decode_ep} b{point.batch_per_die}",
            str(point.decode_npus),
            str(point.prefill_npus),
        )
        for point in result.frontier
    ]
    header = ("TPOT\n[ms]", "TTFT\n[s]", "req/s", "tok/s", "decode", "decode\nNPUs", "prefill\nNPUs")
    return Table(header, rows, "rrrrlrr")


def vary_report(case: Case, varied: list[Varied]) -> Report:
    """One line per value: the best plan under it, or why there is none."""
    cores = split_cores(case)
    sized = any(plan.cache is not None for one in varied for plan in one.result.plans[:1])
    rows, machine = [], []
    for one in varied:
        plans: tuple[Plan | ColocatedPlan, ...] = one.result.plans or one.result.colocated
        plan = plans[0] if plans else None
        cache = ("-", "-")
        if isinstance(plan, Plan):
            pools = _pools(plan, cores)
            cache = cache if plan.cache is None else _cache_cells(plan.cache)
        else:
            pools = "-", "-" if plan is None else instance_words(plan, cores)
        why = "" if one.result.infeasible is None else one.result.infeasible.constraint
        rows.append((one.value, *pools, *_totals(plan), *(cache if sized else ()), why))
        machine.append({"varied": one.name, "value": one.value} | ({} if plan is None else flat(plan)))
    header = (
        varied[0].name,
        "prefill",
        "decode",
        "NPUs\n/dies",
        "TPOT\n[ms]",
        "TTFT\n[s]",
        "req/s",
        *(("cache\nnodes", "hit\nrate") if sized else ()),
        "no plan because",
    )
    notes = list(dict.fromkeys(note for one in varied for note in one.result.notes))
    aligned = "lllrrrr" + ("rr" if sized else "") + "l"
    return Report([Table(header, rows, aligned)], _aligned(machine), [vars(one) for one in varied], notes)


def _totals(plan: Plan | ColocatedPlan | None) -> tuple[str, ...]:
    """NPUs and dies, TPOT, TTFT and requests per second of a plan."""
    if plan is None:
        return ("-", "-", "-", "-")
    return (
        f"{plan.npus}/{plan.dies}",
        significant(plan.tpot_s * 1e3, 3),
        significant(plan.ttft_s, 3),
        significant(plan.requests_per_s),
    )


def _counts(result: PlanResult) -> str:
    per_second = result.candidates / max(result.elapsed_s, 1e-9)
    return (
        f"{result.candidates:,} candidates in {result.elapsed_s:.2f} s ({per_second / 1e6:.1f} M/s), "
        f"{result.evaluated_candidates:,} evaluated, {result.feasible_candidates:,} feasible; "
        f"rejected {_rejected(result.rejected)}"
    )


def _rejected(rejected: Mapping[str, int]) -> str:
    pools: dict[str, list[str]] = {}
    for name, count in rejected.items():
        pool, _, reason = name.partition(".")
        if count:
            pools.setdefault(pool, []).append(f"{reason} {count:,}")
    return "; ".join(f"{pool}: {', '.join(counts)}" for pool, counts in pools.items()) or "none"
