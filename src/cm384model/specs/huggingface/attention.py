"""Attention families from a configuration: one function per family."""

from __future__ import annotations

from cm384model.specs.huggingface.reader import Reader


def mla(reader: Reader) -> None:
    """Latent attention."""
    reader.number("heads", "num_attention_heads")
    reader.optional("q_lora_rank", "q_lora_rank")
    reader.number("kv_lora_rank", "kv_lora_rank")
    reader.number("qk_nope_dim", "qk_nope_head_dim")
    reader.number("qk_rope_dim", "qk_rope_head_dim")
    reader.number("v_head_dim", "v_head_dim")
    for key in ("num_key_value_heads", "head_dim", "qk_head_dim"):
        reader.settle(key, "latent attention has widths of its own")


def dsa(reader: Reader) -> None:
    """Latent attention with a lightning indexer."""
    mla(reader)
    reader.number("index_heads", "index_n_heads")
    reader.number("index_dim", "index_head_dim")
    reader.number("index_top_k", "index_topk")
    for key in ("index_topk_freq", "index_skip_topk_offset", "index_share_for_mtp_iteration"):
        reader.settle(key, "indexer_types says which layers own an indexer")
    kinds = reader.take("indexer_types", "architecture.index_layers")
    layers = reader.config.get("num_hidden_layers")
    if kinds is None:
        if isinstance(layers, int):
            reader.derive("index_layers", layers, "no indexer_types, every layer has an indexer")
    elif isinstance(kinds, list) and set(kinds) <= {"full", "shared"} and len(kinds) == layers:
        reader.derive("index_layers", kinds.count("full"), "layers marked full in config indexer_types")
    else:
        reader.refuse("indexer_types has other entries than full and shared, or not one per layer")


def gqa(reader: Reader) -> None:
    """Grouped-query or multi-head attention, some layers with a sliding window perhaps."""
    heads = reader.number("heads", "num_attention_heads")
    if reader.has("num_key_value_heads"):
        reader.number("kv_heads", "num_key_value_heads")
    elif heads:
        reader.derive("kv_heads", heads, "no num_key_value_heads, one per head")
    hidden = reader.config.get("hidden_size")
    if reader.has("head_dim"):
        reader.number("head_dim", "head_dim")
    elif heads and isinstance(hidden, int):
        if hidden % heads:
            reader.fail(
                f"hidden_size = {hidden} does not divide into num_attention_heads = {heads}",
                "a config with such heads states head_dim",
            )
        else:
            reader.derive("head_dim", hidden // heads, "config hidden_size / num_attention_heads")
    if reader.has("attention_chunk_size"):
        reader.refuse("attention in chunks (attention_chunk_size)")
    _kinds(reader)
    _window(reader)


def _kinds(reader: Reader) -> None:
    """Lists that mark layers without softmax attention."""
    marks = reader.settle("attn_type_list", "every layer is softmax attention")
    if marks is not None and set(marks) != {1}:
        reader.refuse("linear attention in some layers (attn_type_list)")


def _window(reader: Reader) -> None:
    """Sliding windows: by layer, in all layers, or not in use."""
    layers = reader.config.get("num_hidden_layers")
    window = reader.config.get("sliding_window")
    kinds = reader.config.get("layer_types")
    if kinds is not None:
        reader.used["layer_types"] = "architecture.window_layers"
        unknown = set(kinds) - {"full_attention", "sliding_attention"}
        if unknown:
            reader.refuse(f"attention of kind {', '.join(sorted(unknown))} (layer_types)")
            return
        if len(kinds) != layers:
            reader.fail(f"layer_types has {len(kinds)} entries for {layers} layers")
            return
        near, reason = kinds.count("sliding_attention"), "sliding_attention in config layer_types"
    elif window is None or reader.config.get("use_sliding_window") is False:
        near, reason = 0, ""
    elif reader.has("max_window_layers") and isinstance(layers, int):
        full = reader.take("max_window_layers", "architecture.window_layers")
        near, reason = layers - full, "config num_hidden_layers - max_window_layers"
    else:
        near, reason = layers or 0, "config num_hidden_layers, all with a window"
    reader.settle("use_sliding_window", "says whether sliding_window is in use")
    if near < 1:
        reader.settle("sliding_window", "not in use")
        reader.settle("max_window_layers", "no window is in use")
        return
    reader.number("window", "sliding_window")
    reader.derive("window_layers", near, reason)
