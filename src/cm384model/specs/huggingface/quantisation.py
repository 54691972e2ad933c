"""In which formats a checkpoint is stored and served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cm384model.specs.diagnostics import with_suggestion
from cm384model.specs.huggingface.reader import Reader

FORMATS: dict[str, dict[str, str]] = {
    "bf16": {"weights": "bf16", "activations": "bf16"},
    "w8a8": {"weights": "int8", "activations": "int8"},
    "w8a16": {"weights": "int8", "activations": "bf16"},
    "w4a8": {"weights": "int8", "activations": "int8", "experts": "int4"},
    "w4a16": {"weights": "int4", "activations": "bf16"},
    "fp8": {"weights": "fp8", "activations": "fp8"},
}
"""What each word means; ``w4a8`` keeps all but the routed experts in 8 bits, as Ascend engines do."""
KEPT = {"attention": "bf16", "kv": "bf16", "embedding": "bf16", "lm_head": "bf16"}
WIDTHS = {"bfloat16": "bf16", "float16": "bf16"}


def precisions(reader: Reader, chosen: str | None, *, experts: bool) -> dict[str, str]:
    """The table ``[precision]`` of the model file; ``chosen`` wins over what the config says."""
    stated = _stated(reader, chosen)
    word = dict(FORMATS[chosen]) if chosen else stated
    if not experts and "experts" in word:
        word["weights"] = word.pop("experts")
    order = ("weights", "activations", "attention", "kv", "embedding", "lm_head", "experts")
    merged = KEPT | word
    if merged.get("experts") == merged["weights"]:
        merged.pop("experts")
    return {name: merged[name] for name in order if name in merged}


def known_format(word: str | None) -> str | None:
    """What is wrong with a word for a format; None if nothing."""
    if word is None or word in FORMATS:
        return None
    return with_suggestion(f"--quantisation '{word}' is not known", word, FORMATS)


def _stated(reader: Reader, chosen: str | None) -> dict[str, str]:
    """Formats that the config states."""
    reason = f"--quantisation {chosen} was given" if chosen else ""
    if chosen:
        for key in ("quantization_config", "quantize", "torch_dtype", "dtype", "expert_dtype"):
            reader.settle(key, reason)
        return {}
    words = reader.take("quantize", "precision")
    config = reader.take("quantization_config", "precision")
    if config is not None and not isinstance(config, Mapping):
        reader.fail("quantization_config: needs a table")
        return FORMATS["bf16"]
    dtype = reader.found("torch_dtype", "dtype")
    width = None if dtype is None else reader.take(dtype, "precision")
    if words:
        return _named(reader, str(words), "quantize")
    if config:
        return _configured(reader, config)
    if dtype is None:
        reader.settled["torch_dtype"] = "not there; bf16 is assumed"
    elif width not in WIDTHS:
        reader.refuse(f"weights in {width} ({dtype}); give --quantisation")
    return dict(FORMATS["bf16"])


def _named(reader: Reader, words: str, key: str) -> dict[str, str]:
    """A format by its name, such as ``w8a8_dynamic``."""
    known = words.lower().split("_")[0]
    if known not in FORMATS:
        reader.refuse(f"quantisation '{words}' ({key}); give --quantisation {'|'.join(FORMATS)}")
        return dict(FORMATS["bf16"])
    return dict(FORMATS[known])


def _configured(reader: Reader, config: Mapping[str, Any]) -> dict[str, str]:
    """The format that a quantization_config describes."""
    method = str(config.get("quant_method", config.get("quantize", "")))
    if method == "fp8":
        return dict(FORMATS["fp8"])
    if method == "compressed-tensors":
        return _compressed(reader, config)
    if method in ("gptq", "awq"):
        bits = config.get("bits", config.get("w_bit"))
        if bits in (4, 8):
            return dict(FORMATS[f"w{bits}a16"])
        reader.refuse(f"{method} with {bits} bits; give --quantisation")
        return dict(FORMATS["bf16"])
    return _named(reader, method, "quantization_config")


def _compressed(reader: Reader, config: Mapping[str, Any]) -> dict[str, str]:
    """Compressed tensors: bits of weights and activations, and whether experts alone have them."""
    groups = list((config.get("config_groups") or {}).values())
    formats = {_group(group) for group in groups if isinstance(group, Mapping)}
    if len(formats) != 1 or None in formats:
        reader.refuse("compressed-tensors with several or unknown groups; give --quantisation")
        return dict(FORMATS["bf16"])
    (word,) = formats
    precision = dict(FORMATS[word or "bf16"])
    ignored = " ".join(str(entry) for entry in config.get("ignore") or ())
    if "self_attn" in ignored and word in ("w4a16", "w8a16"):
        precision = FORMATS["bf16"] | {"experts": precision["weights"]}
    scheme = config.get("kv_cache_scheme")
    if isinstance(scheme, Mapping) and scheme.get("num_bits") == 8:
        precision["kv"] = "fp8" if scheme.get("type") == "float" else "int8"
    return precision


def _group(group: Mapping[str, Any]) -> str | None:
    weights, inputs = group.get("weights") or {}, group.get("input_activations")
    bits, kind = weights.get("num_bits"), weights.get("type")
    if kind == "float":
        return "fp8" if bits == 8 else None
    entering = 16 if inputs is None else inputs.get("num_bits")
    word = f"w{bits}a{entering}"
    return word if word in FORMATS else None
