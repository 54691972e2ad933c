"""What a user says about one deployment with ``--at``: names, units, bounds, defaults."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cm384model.specs.diagnostics import Problem, SpecError, with_suggestion
from cm384model.specs.units import Dimension, parse_value


@dataclass(frozen=True)
class Field:
    """One thing that ``--at`` can set.

    A field with ``words`` takes one of them and one that is ``free`` any word; any other takes
    a number between ``low`` and ``high``, whole where ``whole`` says so. No number is so large
    that a product of some overflows.
    """

    help: str
    dimension: Dimension = "number"
    low: float = 0.0
    high: float = 1e12
    whole: bool = False
    words: tuple[str, ...] = ()
    free: bool = False

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""
        if self.words:
            return "one of " + ", ".join(self.words)
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} from {self.low:g} to {self.high:g}"

    def read(self, name: str, value: Any) -> Any:
        """The value in SI units.

        Raises
        ------
        SpecError
            If it is no value of this field.
        """
        if self.free:
            return value
        if self.words:
            if value not in self.words:
                raise SpecError.of(
                    with_suggestion(f"{name} = {value!s} is not known", str(value), self.words),
                    f"allowed: {self.allowed}",
                )
            return value
        try:
            number = parse_value(value, self.dimension) if isinstance(value, str) else float(value)
        except SpecError as error:
            (problem,) = error.problems
            raise SpecError.of(f"{name}: {problem.message}", problem.hint) from None
        if not self.low <= number <= self.high or (self.whole and number != int(number)):
            raise SpecError.of(f"{name} = {value!s} is out of bounds", f"allowed: {self.allowed}")
        return number


BALANCES = ("perfect", "eplb", "none")
PRECISIONS = ("bf16", "int8", "fp8", "fp4", "w8a8_dynamic")

_EP = Field("expert-parallel degree, in dies", low=1, whole=True)
_MICROBATCHES = Field("1 serial, 2 two interleaved streams", low=1, high=2, whole=True)
_BALANCE = Field("balance of the experts", words=BALANCES)
_IMBALANCE = Field("load of the busiest die over the mean; overrides balance", low=1, high=64)
_REDUNDANT = Field("redundant copies of routed experts", high=1024, whole=True)
_TP = Field("dies that share the heads of their requests", low=1, high=128, whole=True)
_SCALE_OUT = Field("whether an instance may reach beyond one scale-up network", words=("no", "yes"))
_EXPERT_TP = Field("dies that split the columns of their experts", low=1, high=128, whole=True)
_CP = Field(
    "parts of the sequence of a prompt, each on attention_tp dies; 0 as the engine has it",
    high=128,
    whole=True,
)

DECODE_FIELDS = {
    "ep": _EP,
    "batch_per_die": Field("requests that a die decodes at once, in the mean", low=0.001),
    "batch_per_npu": Field("requests that an NPU decodes at once, in the mean", low=0.001),
    "microbatches": _MICROBATCHES,
    "attention_aic_share": Field(
        "cores of the attention stream; best split by default", low=0.001, high=0.999
    ),
    "attention_tp": _TP,
    "draft_tokens": Field("draft tokens per iteration (MTP)", high=4, whole=True),
    "expert_tp": _EXPERT_TP,
    "acceptance": Field("probability that a draft is accepted", high=1),
    "kv_len": Field("mean context of a request, in tokens", "tokens", low=1),
    "balance": _BALANCE,
    "imbalance": _IMBALANCE,
    "redundant_experts": _REDUNDANT,
    "scale_out": _SCALE_OUT,
}

PREFILL_FIELDS = {
    "ep": _EP,
    "tokens_per_npu": Field("prompt tokens of one batch on one NPU", "tokens", low=1),
    "prompt_len": Field("tokens of one prompt", "tokens", low=1),
    "reuse": Field("share of prompt tokens whose cache comes from the pool", high=0.999),
    "plane": Field("network between pool and dies; local: the dies kept it", words=("ub", "vpc", "local")),
    "attention_tp": _TP,
    "expert_tp": _EXPERT_TP,
    "context_parallel": _CP,
    "pipeline_stages": Field("stages of the layers, each on its share of the dies", low=1, whole=True),
    "chunks": Field("parts of a batch that follow each other through the stages", low=1, whole=True),
    "balanced_chunks": Field("1 parts of equal time, 0 of equal tokens", high=1, whole=True),
    "microbatches": _MICROBATCHES,
    "balance": _BALANCE,
    "imbalance": _IMBALANCE,
    "redundant_experts": _REDUNDANT,
    "scale_out": _SCALE_OUT,
}

COLOCATED_FIELDS = {
    "ep": _EP,
    "batch_per_die": DECODE_FIELDS["batch_per_die"],
    "batch_per_npu": DECODE_FIELDS["batch_per_npu"],
    "concurrency": Field("requests in the instance at once, those in prefill included", low=1),
    "prompts": Field("requests of a run to the end, so many as concurrency at once", low=1, whole=True),
    "prompt_len": PREFILL_FIELDS["prompt_len"],
    "output_len": Field("tokens of one output", "tokens", low=2),
    "tokens_per_npu": Field(
        "prompt tokens of a prefill batch or chunk on one NPU; by default what ends per step", "tokens", low=1
    ),
    "mixed_overlap": Field("share of the shorter of prefill and decode that mixed iterations hide", high=1),
    "reuse": PREFILL_FIELDS["reuse"],
    "plane": PREFILL_FIELDS["plane"],
    "attention_tp": _TP,
    "expert_tp": _EXPERT_TP,
    "context_parallel": _CP,
    "microbatches": Field("of decode: 1 serial, 2 two interleaved streams", low=1, high=2, whole=True),
    "prefill_microbatches": Field("of prefill: 1 serial, 2 interleaved", low=1, high=2, whole=True),
    "attention_aic_share": DECODE_FIELDS["attention_aic_share"],
    "draft_tokens": DECODE_FIELDS["draft_tokens"],
    "acceptance": DECODE_FIELDS["acceptance"],
    "kv_len": DECODE_FIELDS["kv_len"],
    "balance": _BALANCE,
    "imbalance": _IMBALANCE,
    "scale_out": _SCALE_OUT,
    "redundant_experts": _REDUNDANT,
}

PHASE_FIELDS = {"decode": DECODE_FIELDS, "prefill": PREFILL_FIELDS, "colocated": COLOCATED_FIELDS}
"""What ``--at`` takes, by phase."""
LOADS = ("batch_per_die", "batch_per_npu", "concurrency")
"""Fields that say how many requests an instance decodes: a deployment has one of them."""
SAME_THING = (LOADS, ("imbalance", "balance"))
"""Groups of fields that say the same thing in several ways."""

DISAGGREGATED_FIELDS = {
    **{
        name: COLOCATED_FIELDS[name]
        for name in ("ep", "prompts", "prompt_len", "output_len", "reuse", "attention_tp", "draft_tokens")
    },
    **{name: COLOCATED_FIELDS[name] for name in ("acceptance", "balance", "imbalance", "redundant_experts")},
    "concurrency": Field("requests in both pools at once", low=1),
    "most_running": Field("requests that the decode pool takes at once", low=1),
    "arrivals_per_s": Field("requests per second that the client sends; by default all at once", low=0.001),
    "prefill_ep": Field("expert-parallel degree of one prefill instance, in dies", low=1, whole=True),
    "prefill_tp": Field("dies that share the weights of attention in prefill", low=1, high=128, whole=True),
    "prefill_context_parallel": _CP,
    "prefill_stages": PREFILL_FIELDS["pipeline_stages"],
    "prefill_instances": Field("equal prefill instances", low=1, whole=True),
}

_TOKENS = Field("tokens of one die", "tokens", low=1)
_MESSAGE = Field("bytes that the benchmark counts as the message", "bytes", low=1)
_RANKS = Field("dies that take part", low=1, whole=True)
_ROWS = Field("rows of one product", low=0.001)
_COUNT = Field("a size", low=1, whole=True)
_PRECISION = Field(
    "precision of the operands; w8a8_dynamic adds the kernel that quantises them", words=PRECISIONS
)
_GEMM = {
    "m": _ROWS,
    "n": Field("columns of one product", low=1, whole=True),
    "k": Field("depth of one product", low=1, whole=True),
    "groups": Field("equal products", low=1, whole=True),
    "precision": _PRECISION,
}
_EXCHANGE = {
    "ep": _EP,
    "tokens_per_die": _TOKENS,
    "destinations": Field("experts that a token is sent to", low=1, whole=True),
    "message_bytes": Field("bytes of one token's message", "bytes", low=1),
    "library": Field("EP library and mode, as named in the hardware's ops", free=True),
}
_CONTEXT = Field("context of a request, in tokens", "tokens", low=1)
_PICKS = Field("cached positions that each token attends to", low=1)
_INDEX = {
    "tokens_per_die": _TOKENS,
    "batch_per_die": Field("requests of one die", low=1),
    "kv_len": _CONTEXT,
    "index_heads": _COUNT,
    "index_dim": _COUNT,
}
_COLLECTIVE = {"message_bytes": _MESSAGE, "ranks": _RANKS}

OPERATOR_FIELDS: dict[str, dict[str, Field]] = {
    "gemm": _GEMM,
    "grouped_gemm": _GEMM,
    "grouped_gemm_swiglu": _GEMM,
    "moe_ffn": {
        "tokens": Field("tokens of the instance", low=1, whole=True),
        "hidden": _COUNT,
        "intermediate": _COUNT,
        "experts": _COUNT,
        "top_k": _COUNT,
        "ep": _EP,
        "precision": _PRECISION,
    },
    "vector": {
        "rows": _ROWS,
        "row_bytes": Field("bytes that all kernels read and write per row", "bytes", low=1),
        "kernels": _COUNT,
    },
    "core_split": {
        "aic_share": Field("share of the cores", low=0.01, high=1),
        "moved_bytes": Field("traffic of the operator", "bytes", low=1),
    },
    "gqa_decode": {
        "batch": _COUNT,
        "kv_len": _CONTEXT,
        "heads": _COUNT,
        "kv_heads": _COUNT,
        "head_dim": _COUNT,
    },
    "gqa_prefill": {
        "batch": _COUNT,
        "prompt_len": Field("tokens of one prompt", "tokens", low=1),
        "heads": _COUNT,
        "kv_heads": _COUNT,
        "head_dim": _COUNT,
    },
    "mla_decode": {
        "batch_per_die": Field("requests of one die", low=1),
        "tokens_per_request": Field("query tokens per request", low=1, whole=True),
        "kv_len": _CONTEXT,
        "heads": _COUNT,
        "aic_share": Field("share of the cores", low=0.01, high=1),
    },
    "sparse_attention": {
        "tokens_per_die": _TOKENS,
        "positions": _PICKS,
        "heads": _COUNT,
    },
    "lightning_indexer": _INDEX,
    "indexed_attention": _INDEX | {"positions": _PICKS, "heads": _COUNT},
    "mla_prefill": {
        "tokens_per_die": _TOKENS,
        "prompt_len": Field("tokens of one prompt", "tokens", low=1),
        "heads": _COUNT,
    },
    "model_load": {
        "loads": Field("copies of the model that cross the bucket's link", low=1, whole=True),
        "hit_rate": Field("chance that the model is in memory already", high=1),
    },
    "dispatch": _EXCHANGE,
    "combine": _EXCHANGE,
    "all_gather": _COLLECTIVE,
    "all_to_all": _COLLECTIVE,
    "all_reduce": _COLLECTIVE,
    "reduce_scatter": _COLLECTIVE,
    "kv_transfer": {
        "kv_len": Field("tokens of one request", "tokens", low=1),
        "plane": Field("network", words=("rdma", "ub", "vpc")),
        "streams": Field("dies of a request's prefill instance that send at once", low=1, whole=True),
    },
}
"""What each operator of ``cm384 op`` takes; sizes not given are DeepSeek-R1's."""


def read_at(at: Mapping[str, Any] | Iterable[str], fields: Mapping[str, Field], what: str) -> dict[str, Any]:
    """Values by name from ``name=value`` items (commas allowed) or from a mapping.

    Raises
    ------
    SpecError
        With every unknown name, bad value and repetition at once, and with names that set the same thing.
    """
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    for name, value in _pairs(at, problems):
        if name not in fields:
            message = with_suggestion(f"{what} has no '{name}'", name, fields)
            problems.append(Problem(message, hint=f"it takes {', '.join(fields)}"))
        elif name in values:
            problems.append(Problem(f"{name} is given twice"))
        else:
            try:
                values[name] = fields[name].read(name, value)
            except SpecError as error:
                problems += error.problems
                values[name] = None
    problems += said_twice(values)
    if problems:
        raise SpecError(problems)
    return values


def said_twice(names: Collection[str]) -> list[Problem]:
    """A problem for every group of `SAME_THING` of which there are several names."""
    found = [[name for name in group if name in names] for group in SAME_THING]
    return [
        Problem(f"{' and '.join(both)} set the same thing", hint="give one of them")
        for both in found
        if len(both) > 1
    ]


def _pairs(at: Mapping[str, Any] | Iterable[str], problems: list[Problem]) -> Iterable[tuple[str, Any]]:
    if isinstance(at, Mapping):
        yield from at.items()
        return
    items = [at] if isinstance(at, str) else at
    for item in (part.strip() for text in items for part in text.split(",")):
        name, equals, value = item.partition("=")
        if equals and name and value:
            yield name.strip(), value.strip()
        elif item:
            problems.append(
                Problem(f"'{item}' is not name=value", hint="for example --at ep=320,batch_per_die=48")
            )
