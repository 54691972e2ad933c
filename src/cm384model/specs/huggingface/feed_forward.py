"""Feed-forward families from a configuration: one function per family."""

from __future__ import annotations

from cm384model.specs.huggingface.reader import Reader

ROUTED = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
TOP_K = ("num_experts_per_tok", "moe_topk", "moe_top_k", "moe_k", "experts_per_token")
SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
SHARED_WIDTH = ("shared_expert_intermediate_size", "shared_intermediate_size", "share_expert_dim")


def dense(reader: Reader) -> None:
    """One gated feed-forward in every layer."""
    reader.number("dense_intermediate", "intermediate_size", "ffn_hidden_size")


def moe(reader: Reader) -> None:
    """A mixture of experts after leading dense layers."""
    _experts(reader, "moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
    leading = _leading(reader)
    if leading is None:
        return
    if "dense_layers" not in reader.numbers:
        reader.derive("dense_layers", *leading)
    if leading[0]:
        reader.number("dense_intermediate", "intermediate_size")
    else:
        reader.settle("intermediate_size", "there is no dense layer")


def scmoe(reader: Reader) -> None:
    """A mixture of experts beside two attention and two dense blocks (LongCat-Flash)."""
    _experts(reader, "expert_ffn_hidden_size", "moe_intermediate_size")
    reader.number("dense_intermediate", "ffn_hidden_size", "intermediate_size")
    if reader.has("num_layers"):
        reader.settle("num_hidden_layers", "counts attention blocks; num_layers counts layers")
    reader.derive("dense_layers", 0, "the dense blocks stand in every layer")
    reader.derive("blocks", 2, "two attention and two dense blocks in every layer of LongCat-Flash")


def _experts(reader: Reader, *width_keys: str) -> None:
    width = reader.number("moe_intermediate", *width_keys)
    reader.number("routed_experts", *ROUTED)
    reader.number("top_k", *TOP_K)
    for key in TOP_K:
        if key not in reader.used:
            reader.settle(key, "said by another key")
    _shared(reader, width)
    if reader.has("zero_expert_num"):
        reader.number("zero_experts", "zero_expert_num", least=0)
        kind = reader.settle("zero_expert_type", "an expert that computes nothing")
        if kind not in (None, "identity"):
            reader.refuse(f"zero experts of type {kind}")


def _shared(reader: Reader, width: int | None) -> None:
    """Shared experts, as a number of experts of the routed width."""
    by_width = reader.found(*SHARED_WIDTH)
    if reader.found(*SHARED):
        count = reader.optional("shared_experts", *SHARED)
        if by_width is not None:
            stated = reader.settle(by_width, "said by the number of shared experts")
            if width and stated and stated != count * width:
                reader.fail(f"{by_width} = {stated} is not {count} shared experts of width {width}")
        return
    stated = 0 if by_width is None else reader.take(by_width, "architecture.shared_experts")
    if not stated or not width:
        reader.derive("shared_experts", 0, "no shared expert")
    elif stated % width:
        reader.refuse(f"a shared expert of width {stated} beside routed ones of width {width}")
    else:
        reader.derive("shared_experts", stated // width, f"config {by_width} / moe_intermediate_size")


def _leading(reader: Reader) -> tuple[int, str] | None:
    """Number of leading dense layers with its source; None if experts and dense layers alternate."""
    layers = reader.config.get("num_hidden_layers")
    for key in ("decoder_sparse_step", "moe_layer_freq", "moe_layer_interval", "interleave_moe_layer_step"):
        step = reader.settle(key, "experts in every layer after the dense ones")
        if isinstance(step, list):
            marks = [1 - mark for mark in step]
        elif step in (None, 1):
            continue
        else:
            reader.refuse(f"experts in one of {step} layers ({key})")
            return None
        return _first(reader, [i for i, mark in enumerate(marks) if mark], key)
    if reader.has("mlp_only_layers") and reader.config["mlp_only_layers"]:
        return _first(reader, reader.take("mlp_only_layers", "architecture.dense_layers"), "mlp_only_layers")
    reader.settle("mlp_only_layers", "no layer without experts")
    if reader.has("moe_layer_start_index"):
        start = reader.take("moe_layer_start_index", "architecture.dense_layers")
        end = reader.settle("moe_layer_end_index", "the last layer has experts")
        if isinstance(end, int) and isinstance(layers, int) and end not in (-1, layers - 1):
            reader.refuse("dense layers after the experts (moe_layer_end_index)")
            return None
        return start, "config moe_layer_start_index"
    if reader.has("first_k_dense_replace"):
        value = reader.whole("dense_layers", "first_k_dense_replace", least=0)
        return (value or 0), "config first_k_dense_replace"
    return 0, "no key names a dense layer"


def _first(reader: Reader, dense_layers: list[int], key: str) -> tuple[int, str] | None:
    """The dense layers of a list, if they are the first ones."""
    if dense_layers != list(range(len(dense_layers))):
        reader.refuse(f"dense layers between the experts ({key})")
        return None
    return len(dense_layers), f"config {key}"
