"""The operators that ``cm384 op`` shows, each with DeepSeek-R1's sizes as defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from cm384model.laws import attention as attention_laws
from cm384model.laws import mla as mla_laws
from cm384model.laws.moe import experts_touched
from cm384model.prediction import operators
from cm384model.prediction.case import Case
from cm384model.prediction.families import attention_of, feed_forward_of, model_parameters
from cm384model.prediction.families.dense import swiglu
from cm384model.prediction.families.dsa import index_scores, sparse_core
from cm384model.prediction.memory import kv_bytes_per_token_layer
from cm384model.prediction.operators import ELEMENT_BYTES, Die
from cm384model.prediction.shapes import latent
from cm384model.prediction.terms import Term, merged

Operands = Mapping[str, Any]

USUAL = {
    "heads": 64.0,
    "kv_heads": 8.0,
    "head_dim": 128.0,
    "intermediate": 2048.0,
    "experts": 256.0,
    "top_k": 8.0,
    "index_heads": 64.0,
    "index_dim": 128.0,
}
"""Sizes of operators that the case's model does not have. [-]"""


def defaults(case: Case, name: str) -> dict[str, Any]:
    """Sizes of an operator where the user gives none: those of the case's model."""
    a, p = case.model.architecture, case.model.precision
    sizes = USUAL | attention_of(case.model).sizes(case.model) | feed_forward_of(case.model).sizes(case.model)
    heads = {name: sizes[name] for name in ("heads", "kv_heads", "head_dim")}
    gemm = {
        "m": 96.0,
        "n": 2.0 * sizes["intermediate"],
        "k": float(a.hidden.si),
        "groups": 1.0,
        "precision": p.weights,
    }
    exchange = {
        "ep": 320.0,
        "tokens_per_die": 96.0,
        "destinations": sizes["top_k"],
        "library": case.engine.ep_library,
    }
    scale = case.engine.constants.dispatch_scale_bytes.si
    index = {
        "tokens_per_die": 24.0,
        "batch_per_die": 8.0,
        "kv_len": case.decode_kv_len,
        "index_heads": sizes["index_heads"],
        "index_dim": sizes["index_dim"],
    }
    collective = {"message_bytes": 1e6, "ranks": float(case.hardware.dies_per_node)}
    by_name: dict[str, dict[str, Any]] = {
        "gemm": gemm,
        "grouped_gemm": gemm,
        "mla_decode": {
            "batch_per_die": 48.0,
            "tokens_per_request": 1.0,
            "kv_len": case.decode_kv_len,
            "heads": float(a.heads.si),
            "aic_share": 1.0,
        },
        "sparse_attention": {"tokens_per_die": 24.0, "positions": 2048.0, "heads": float(a.heads.si)},
        "lightning_indexer": index,
        "indexed_attention": index | {"heads": float(a.heads.si), "positions": 2048.0},
        "mla_prefill": {
            "tokens_per_die": 8192.0,
            "prompt_len": float(case.workload.traffic.prompt_len.si),
            "heads": float(a.heads.si),
        },
        "dispatch": exchange | {"message_bytes": a.hidden.si * ELEMENT_BYTES[p.activations] + scale},
        "combine": exchange | {"message_bytes": a.hidden.si * ELEMENT_BYTES["bf16"]},
        "grouped_gemm_swiglu": gemm,
        "moe_ffn": {
            "tokens": 256.0,
            "hidden": float(a.hidden.si),
            "intermediate": sizes["intermediate"],
            "experts": sizes["experts"],
            "top_k": sizes["top_k"],
            "ep": 8.0,
            "precision": p.weights,
        },
        "vector": {"rows": 96.0, "row_bytes": 4.0 * a.hidden.si, "kernels": 1.0},
        "core_split": {"aic_share": 0.5, "moved_bytes": 64e6},
        "gqa_decode": {
            "batch": 16.0,
            "kv_len": case.decode_kv_len,
            **heads,
        },
        "gqa_prefill": {
            "batch": 1.0,
            "prompt_len": float(case.workload.traffic.prompt_len.si),
            **heads,
        },
        "model_load": {"loads": 1.0, "hit_rate": 0.0},
        "kv_transfer": {
            "kv_len": float(case.workload.traffic.prompt_len.si),
            "plane": "rdma",
            "streams": 1.0,
        },
    }
    return dict(by_name.get(name, collective))


def model_bytes(case: Case) -> float:
    """Weights of the whole model at its precision, MTP and redundant experts not counted. [B]"""
    published = case.model.published.total_parameters
    parameters = model_parameters(case.model).total if published is None else published.si
    return float(parameters) * ELEMENT_BYTES[case.model.precision.weights]


def _gemm(die: Die, case: Case, o: Operands) -> Term:
    dynamic = o["precision"] == "w8a8_dynamic"
    precision = "int8" if dynamic else o["precision"]
    product = operators.gemm(die, "gemm", o["m"], o["n"], o["k"], groups=o["groups"], precision=precision)
    return (
        merged("gemm", operators.quantise(die, o["m"] * o["groups"], o["k"]), product) if dynamic else product
    )


def _gemm_swiglu(die: Die, case: Case, o: Operands) -> Term:
    """The fused up-projection: the product, and SwiGLU with quantisation in its epilogue."""
    up = _gemm(die, case, o)
    return merged("grouped_gemm_swiglu", up, _swiglu(die, case, o["m"] * o["groups"], o["n"] / 2))


def _moe_ffn(die: Die, case: Case, o: Operands) -> Term:
    """Local experts of one die: both products, SwiGLU between, the weighted sum after."""
    slots, draws = o["experts"] / o["ep"], o["tokens"] * o["top_k"]
    used = experts_touched(slots, draws, choices=o["experts"])
    rows = draws / o["ep"]
    operands = {"m": rows / used, "groups": used, "precision": o["precision"]}
    return merged(
        "moe_ffn",
        _gemm(die, case, operands | {"n": 2 * o["intermediate"], "k": o["hidden"]}),
        _swiglu(die, case, rows, o["intermediate"]),
        _gemm(die, case, operands | {"n": o["hidden"], "k": o["intermediate"]}),
        _vector(die, case, {"rows": draws, "row_bytes": 4 * o["hidden"], "kernels": 1.0}),
    )


def _swiglu(die: Die, case: Case, rows: Any, intermediate: Any) -> Term:
    return swiglu(die, case.model, rows, intermediate, die.hardware.ops.swiglu.efficiency.si)


def _vector(die: Die, case: Case, o: Operands) -> Term:
    efficiency = die.hardware.ops.vector.efficiency.si
    return operators.vector(die, "vector", o["rows"], o["row_bytes"], o["kernels"], efficiency=efficiency)


def _core_split(die: Die, case: Case, o: Operands) -> Term:
    """A memory-bound operator on a share of the cores."""
    time = o["moved_bytes"] / case.system.die(o["aic_share"]).bandwidth
    return Term("core_split", time, {"bytes": o["moved_bytes"], "memory": time})


def _sparse_attention(die: Die, case: Case, o: Operands) -> Term:
    shapes = latent(case.model)
    return sparse_core(die, shapes, o["tokens_per_die"], o["positions"], o["heads"], "bf16", "bf16")


def _lightning_indexer(die: Die, case: Case, o: Operands) -> Term:
    return index_scores(
        die,
        o["tokens_per_die"],
        o["tokens_per_die"] * o["kv_len"],
        o["batch_per_die"] * o["kv_len"],
        o["kv_len"],
        heads=o["index_heads"],
        index_dim=o["index_dim"],
        cache="bf16",
        activations="bf16",
    )


def _indexed_attention(die: Die, case: Case, o: Operands) -> Term:
    """What grows with the context and what does not, of one layer: indexer, then attention to its picks."""
    core = _sparse_attention(die, case, {**o, "positions": np.minimum(o["positions"], o["kv_len"])})
    return merged("indexed_attention", _lightning_indexer(die, case, o), core)


def _gqa_decode(die: Die, case: Case, o: Operands) -> Term:
    widths = {"heads": o["heads"], "head_dim": o["head_dim"]}
    tokens = o["batch"]
    flop = attention_laws.attention_decode_flop(tokens, o["kv_len"], **widths)
    moved = attention_laws.attention_decode_bytes(
        o["batch"],
        tokens,
        o["kv_len"],
        **widths,
        kv_heads=o["kv_heads"],
        kv_bytes=ELEMENT_BYTES["bf16"],
        activation_bytes=ELEMENT_BYTES["bf16"],
    )
    return operators.attention(die, "gqa_decode", flop, moved, o["kv_len"], constants_name="gqa_decode")


def _gqa_prefill(die: Die, case: Case, o: Operands) -> Term:
    widths = {"heads": o["heads"], "head_dim": o["head_dim"]}
    tokens = o["batch"] * o["prompt_len"]
    flop = attention_laws.attention_prefill_flop(tokens, o["prompt_len"], **widths)
    moved = attention_laws.attention_prefill_bytes(
        tokens, **widths, kv_heads=o["kv_heads"], activation_bytes=ELEMENT_BYTES["bf16"]
    )
    return operators.attention(die, "gqa_prefill", flop, moved, o["prompt_len"], constants_name="gqa_prefill")


def _mla_decode(die: Die, case: Case, o: Operands) -> Term:
    a, p = latent(case.model), case.model.precision
    tokens = o["batch_per_die"] * o["tokens_per_request"]
    widths = {"heads": o["heads"], "latent_dim": a.kv_lora_rank.si, "rope_dim": a.qk_rope_dim.si}
    flop = mla_laws.mla_decode_flop(tokens, o["kv_len"], **widths)
    moved = mla_laws.mla_decode_bytes(
        o["batch_per_die"],
        tokens,
        o["kv_len"],
        **widths,
        kv_bytes=ELEMENT_BYTES[p.kv],
        activation_bytes=ELEMENT_BYTES[p.attention],
    )
    shared = case.system.die(o["aic_share"])
    die = replace(shared, launch_latency=None)
    return operators.attention(die, "mla_decode", flop, moved, o["kv_len"], constants_name="mla_decode")


def _mla_prefill(die: Die, case: Case, o: Operands) -> Term:
    a = latent(case.model)
    widths = {
        "heads": o["heads"],
        "qk_dim": a.qk_nope_dim.si + a.qk_rope_dim.si,
        "v_dim": a.v_head_dim.si,
    }
    flop = mla_laws.mla_prefill_flop(o["tokens_per_die"], o["prompt_len"], **widths)
    moved = mla_laws.mla_prefill_bytes(o["tokens_per_die"], **widths, activation_bytes=ELEMENT_BYTES["bf16"])
    return operators.attention(die, "mla_prefill", flop, moved, o["prompt_len"], constants_name="mla_prefill")


def _exchange(kind: str) -> Callable[[Die, Case, Operands], Term]:
    def run(die: Die, case: Case, o: Operands) -> Term:
        return operators.exchange(
            die,
            kind,
            o["tokens_per_die"],
            o["ep"],
            o["destinations"],
            o["message_bytes"],
            library=f"{o['library']}_{kind}",
        )

    return run


def _collective(kind: str) -> Callable[[Die, Case, Operands], Term]:
    def run(die: Die, case: Case, o: Operands) -> Term:
        return operators.collective(die, kind, kind, o["message_bytes"], o["ranks"])

    return run


def _kv_transfer(die: Die, case: Case, o: Operands) -> Term:
    size = (
        o["kv_len"]
        * case.model.architecture.layers.si
        * kv_bytes_per_token_layer(case.system, o["kv_len"])
        / o["streams"]
    )
    return operators.transfer(die, "kv_transfer", size, plane=o["plane"])


def _model_load(die: Die, case: Case, o: Operands) -> Term:
    return operators.model_load(die, model_bytes(case), o["loads"], o["hit_rate"])


OPERATORS: dict[str, Callable[[Die, Case, Operands], Term]] = {
    "gemm": _gemm,
    "grouped_gemm": _gemm,
    "grouped_gemm_swiglu": _gemm_swiglu,
    "moe_ffn": _moe_ffn,
    "vector": _vector,
    "core_split": _core_split,
    "gqa_decode": _gqa_decode,
    "gqa_prefill": _gqa_prefill,
    "sparse_attention": _sparse_attention,
    "lightning_indexer": _lightning_indexer,
    "indexed_attention": _indexed_attention,
    "mla_decode": _mla_decode,
    "mla_prefill": _mla_prefill,
    "dispatch": _exchange("dispatch"),
    "combine": _exchange("combine"),
    "all_gather": _collective("all_gather"),
    "all_to_all": _collective("all_to_all"),
    "all_reduce": _collective("all_reduce"),
    "reduce_scatter": _collective("reduce_scatter"),
    "kv_transfer": _kv_transfer,
    "model_load": _model_load,
}
"""Every stand-alone operator by name."""
