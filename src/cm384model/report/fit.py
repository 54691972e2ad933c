"""Reports of what fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cm384model.prediction.capacity import Capacity, InstanceCapacity, Size
from cm384model.prediction.case import Case
from cm384model.report.blocks import Block, Table
from cm384model.report.predict import settings
from cm384model.report.report import Report
from cm384model.report.values import npus_words, percent, setting

MATTERS = {
    "decode": ("kv_len", "batch_per_die", "draft_tokens", "redundant_experts", "attention_tp", "expert_tp"),
    "prefill": (
        *("prompt_len", "tokens_per_npu", "microbatches", "imbalance", "redundant_experts", "expert_tp"),
        *("context_parallel", "pipeline_stages", "chunks"),
    ),
}
"""Values of a deployment that its memory depends on."""


def fit_report(case: Case, result: Capacity) -> Report:
    """The answer, the ledger of each instance, the frontier, and what single changes give."""
    shown = result.instances
    blocks: list[Block] = [_title(case, result), _answer(result), _summary(result), _ledger(shown)]
    buffers = _buffers(result)
    blocks += [buffers] if buffers else []
    if any(point.batch for instance in shown for point in instance.by_context):
        blocks += [_by_context(result), _by_batch(result)]
    blocks += [_what_ifs(result)]
    records = [
        {
            "ep": instance.ep,
            "npus": instance.size.npus,
            "dies": instance.size.dies,
            "context": point.context,
            "batch": point.batch,
            "requests": point.requests,
        }
        for instance in shown
        for point in (*instance.by_context, *instance.by_batch)
    ]
    return Report(blocks, records, result, result.notes)


def _title(case: Case, result: Capacity) -> str:
    names = [name for name in MATTERS[result.phase] if name in result.deployment]
    load = settings({name: result.deployment[name] for name in names})
    if "batch_per_die" not in names and "tokens_per_npu" not in names:
        load += ", one prompt"
    return (
        f"{result.workload} on {result.hardware} with {result.engine}, {result.phase}\n"
        f"{load} (weights {case.model.precision.weights}, KV cache {case.model.precision.kv})"
    )


def _answer(result: Capacity) -> str:
    if result.smallest is None:
        return f"no instance of up to {npus_words(result.npus)} holds it"
    answer = f"smallest instance that holds it: {_size(result.smallest)}"
    if result.smallest_of_nodes is not None:
        nodes = result.smallest_of_nodes.nodes
        answer += f"; of whole nodes: {_size(result.smallest_of_nodes)}, {nodes} node{'s' * (nodes > 1)}"
    return answer


def _size(size: Size) -> str:
    return f"{npus_words(size.npus)} ({size.dies} dies)"


def _summary(result: Capacity) -> Table:
    decode = result.phase == "decode"
    context = setting(result.deployment["kv_len" if decode else "prompt_len"])
    load = f"batch {setting(result.deployment['batch_per_die'])}" if decode else "its load"
    rows = [
        (
            f"EP{instance.ep}",
            str(instance.size.npus),
            str(instance.size.dies),
            "yes" if instance.feasible else "no",
            _count(instance.largest_batch),
            _count(instance.longest_context),
            instance.bound_by,
            instance.lever or "",
        )
        for instance in result.instances
    ]
    batch = "requests/die" if decode else "prompts/batch"
    header = (
        "instance",
        "NPUs",
        "dies",
        "fits",
        f"{batch}\nof {context}",
        f"context\nat {load}",
        "most of a full\ndie goes to",
        "setting that\ngives most",
    )
    return Table(header, rows, "lrrlrrll")


def _ledger(shown: Sequence[InstanceCapacity]) -> Table:
    """Parts of a die in GB with their shares; what no instance has is left out."""
    names = dict.fromkeys(part.name for instance in shown for part in instance.ledger)
    ledgers = [{part.name: part for part in instance.ledger} for instance in shown]
    rows: list[tuple[str, ...]] = [
        (
            "capacity",
            *(cell for instance in shown for cell in (f"{instance.capacity_bytes / 1e9:.3f}", percent(1))),
        )
    ]
    for name in names:
        parts = [ledger[name] for ledger in ledgers if name in ledger]
        if any(part.size_bytes for part in parts):
            cells = [cell for part in parts for cell in (f"{part.size_bytes / 1e9:.3f}", percent(part.share))]
            rows.append((name, *cells))
    header = [name for instance in shown for name in (f"EP{instance.ep}\n[GB]", "\nshare")]
    return Table(("memory of a die", *header), rows, "l" + "r" * len(header))


def _buffers(result: Capacity) -> str:
    """What the exchange buffers hold; they are given in binary megabytes where they are configured."""
    sizes = [
        f"{next(p.size_bytes for p in instance.ledger if p.name == 'exchange_buffers') / 2**20:.1f} MiB "
        f"on EP{instance.ep}"
        for instance in result.instances
    ]
    if result.phase != "decode":
        return f"exchange_buffers: {', '.join(sizes)}, for the rows that arrive"
    tokens = result.deployment["batch_per_die"] * (1 + result.deployment["draft_tokens"])
    noun = "token" if tokens == 1 else "tokens"
    return f"exchange_buffers: {', '.join(sizes)}, for {setting(tokens)} {noun} of every die of the instance"


def _by_context(result: Capacity) -> Table:
    decode = result.phase == "decode"
    rows = []
    for points in zip(*(instance.by_context for instance in result.instances), strict=True):
        cells = [
            cell
            for point in points
            for cell in ((_count(point.batch), _count(point.requests)) if decode else (_count(point.batch),))
        ]
        rows.append((_context(points[0].context), *cells))
    header = [
        name
        for instance in result.instances
        for name in (
            (f"EP{instance.ep}\nper die", f"\nof {instance.size.npus} NPUs")
            if decode
            else (f"EP{instance.ep}\n{instance.size.npus} NPUs",)
        )
    ]
    first = "context\n-> most requests" if decode else "prompt\n-> most prompts in a batch"
    return Table((first, *header), rows, "l" + "r" * len(header))


def _by_batch(result: Capacity) -> Table:
    """Longest context for each batch, down to the last batch that some instance holds."""
    longest = max(result.instances, key=lambda instance: len(instance.by_batch)).by_batch
    rows = []
    for i, point in enumerate(longest):
        cells = [
            _count(instance.by_batch[i].context if i < len(instance.by_batch) else 0)
            for instance in result.instances
        ]
        rows.append((f"{point.batch:,}", *cells))
    header = [f"EP{instance.ep}\n{instance.size.npus} NPUs" for instance in result.instances]
    decode = result.phase == "decode"
    first = "requests per die\n-> longest context" if decode else "prompts in a batch\n-> longest prompt"
    return Table((first, *header), rows, "l" + "r" * len(header))


def _what_ifs(result: Capacity) -> Table:
    """One row for each change; the changes of load and size differ between instances."""
    found = [{_kind(change.change): change for change in instance.what_ifs} for instance in result.instances]
    kinds = dict.fromkeys(kind for changes in found for kind in changes)
    rows = [
        ("as asked", *_cells(result, lambda i: (i.largest_batch, i.longest_context)), _npus(result.smallest))
    ]
    for kind in kinds:
        changes = [changes.get(kind) for changes in found]
        first = next(change for change in changes if change is not None)
        name = first.change if len({change.change for change in changes if change}) == 1 else kind
        cells = [
            cell
            for change in changes
            for cell in (
                ("", "") if change is None else (_count(change.largest_batch), _count(change.longest_context))
            )
        ]
        rows.append((name, *cells, _npus(first.smallest)))
    header = [name for instance in result.instances for name in (f"EP{instance.ep}\nbatch", "\ncontext")]
    return Table(("one change", *header, "fewest\nNPUs"), rows, "l" + "r" * len(header) + "r")


def _cells(result: Capacity, values: Callable[[InstanceCapacity], tuple[int, int]]) -> list[str]:
    return [_count(value) for instance in result.instances for value in values(instance)]


def _kind(change: str) -> str:
    """A change in words, for one that reads differently for every instance."""
    name = change.removeprefix("--at ").partition("=")[0]
    return {"ep": "twice the dies", "tokens_per_npu": "half the tokens per NPU"}.get(name, change)


def _npus(size: Size | None) -> str:
    return "-" if size is None else str(size.npus)


def _count(value: int) -> str:
    return f"{value:,}" if value else "-"


def _context(tokens: int) -> str:
    return f"{tokens // 2**20}M" if tokens >= 2**20 else f"{tokens // 2**10}K"
