"""From a Hugging Face ``config.json`` to a model file, every key accounted for."""

from __future__ import annotations

import fnmatch
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cm384model.specs.diagnostics import Problem, SpecError, with_suggestion
from cm384model.specs.files import faults
from cm384model.specs.huggingface import attention, feed_forward
from cm384model.specs.huggingface.quantisation import known_format, precisions
from cm384model.specs.huggingface.reader import Reader
from cm384model.specs.model import Model

ATTENTION: dict[str, Callable[[Reader], None]] = {
    "mla": attention.mla,
    "dsa": attention.dsa,
    "gqa": attention.gqa,
}
FEED_FORWARD: dict[str, Callable[[Reader], None]] = {
    "dense": feed_forward.dense,
    "moe": feed_forward.moe,
    "scmoe": feed_forward.scmoe,
}
ARCHITECTURES: dict[str, str] = {
    "DeepseekV2ForCausalLM": "mla-moe",
    "DeepseekV3ForCausalLM": "mla-moe",
    "DeepseekV32ForCausalLM": "dsa-moe",
    "GlmMoeDsaForCausalLM": "dsa-moe",
    "LongcatFlashForCausalLM": "mla-scmoe",
    "Ernie4_5_MoeForCausalLM": "gqa-moe",
    "Glm4MoeForCausalLM": "gqa-moe",
    "GptOssForCausalLM": "gqa-moe",
    "HYV3ForCausalLM": "gqa-moe",
    "HunYuanMoEV1ForCausalLM": "gqa-moe",
    "MiniMaxM2ForCausalLM": "gqa-moe",
    "MixtralForCausalLM": "gqa-moe",
    "PanguProMoEForCausalLM": "gqa-moe",
    "Qwen3MoeForCausalLM": "gqa-moe",
    "LlamaForCausalLM": "gqa-dense",
    "MistralForCausalLM": "gqa-dense",
    "Qwen2ForCausalLM": "gqa-dense",
    "Qwen3ForCausalLM": "gqa-dense",
}
"""Families of the architectures that are modelled."""
NOT_MODELLED: dict[str, str] = {
    "DeepseekV4ForCausalLM": "compressed attention (CSA and HCA), whose caches and kernels the config does "
    "not describe",
    "Llama4ForConditionalGeneration": "attention in chunks, and experts in every second layer",
    "Llama4ForCausalLM": "attention in chunks, and experts in every second layer",
    "MiniMaxM1ForCausalLM": "linear (lightning) attention in seven of eight layers",
    "MiniMaxText01ForCausalLM": "linear (lightning) attention in seven of eight layers",
    "Qwen3NextForCausalLM": "linear attention (gated delta net) in three of four layers",
    "Qwen3_5MoeForCausalLM": "linear attention (gated delta net) in three of four layers",
    "Step3TextForCausalLM": "attention with factorised queries over one shared key-value head",
    "Step3VLForConditionalGeneration": "attention with factorised queries over one shared key-value head",
}
"""Architectures that are known and refused, with the reason."""
MODEL_TYPES: dict[str, str] = {
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM",
    "deepseek_v4": "DeepseekV4ForCausalLM",
    "ernie4_5_moe": "Ernie4_5_MoeForCausalLM",
    "ernie_moe": "Ernie4_5_MoeForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "glm_moe_dsa": "GlmMoeDsaForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "hunyuan_v1_moe": "HunYuanMoEV1ForCausalLM",
    "hy_v3": "HYV3ForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "llama": "LlamaForCausalLM",
    "llama4_text": "Llama4ForCausalLM",
    "longcat_flash": "LongcatFlashForCausalLM",
    "minimax_m1": "MiniMaxM1ForCausalLM",
    "minimax_m2": "MiniMaxM2ForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "step3_text": "Step3TextForCausalLM",
}
"""Architecture of a configuration that names its type alone, as a text_config does."""
NO_EFFECT: dict[str, str] = {
    "rope_*": "positions cost nothing extra",
    "compress_rope_theta": "positions cost nothing extra",
    "max_position_embeddings": "limits the context, not the cost",
    "max_position_embedding": "limits the context, not the cost",
    "max_seq_len": "limits the context, not the cost",
    "partial_rotary_factor": "positions cost nothing extra",
    "rotary_dim": "positions cost nothing extra",
    "*_norm_eps": "a constant",
    "rms_norm_eps": "a constant",
    "hidden_act": "vector work is counted by bytes",
    "swiglu_limit": "vector work is counted by bytes",
    "attention_bias": "biases are not counted",
    "mlp_bias": "biases are not counted",
    "use_qk_norm": "norms are not counted as weights",
    "qk_norm": "norms are not counted as weights",
    "attention_dropout": "training",
    "initializer_range": "training",
    "aux_loss_alpha": "training",
    "router_aux_loss_coef": "training",
    "output_router_logits": "training",
    "seq_aux": "training",
    "pretraining_tp": "training",
    "norm_topk_prob": "a scalar of the router",
    "scoring_func": "a scalar of the router",
    "*scaling_factor": "a scalar of the router",
    "topk_method": "how the router picks, not how many",
    "n_group": "the engine says how many copies cross the fabric",
    "topk_group": "the engine says how many copies cross the fabric",
    "ep_size": "the deployment says",
    "use_cache": "always",
    "use_mtp": "the deployment says",
    "mtp_transformer_layers": "one layer per MTP module",
    "*_token_id": "vocabulary",
    "auto_map": "code of the publisher",
    "transformers_version": "a version",
    "_name_or_path": "a name",
    "model_type": "the architecture is named",
}
"""Keys that change no cost here, with the reason; ``*`` stands for anything."""


@dataclass(frozen=True)
class Imported:
    """A model file and what became of every key.

    Attributes
    ----------
    text : str
        The model file.
    model : Model
    used : dict of str to str
        Keys with what they became.
    ignored : dict of str to str
        Keys without effect with the reason.
    unmapped : tuple of str
        Keys that are not known: they may matter.
    """

    text: str
    model: Model
    used: dict[str, str]
    ignored: dict[str, str]
    unmapped: tuple[str, ...]


def read_config(path: Path) -> dict[str, Any]:
    """The configuration in a file.

    Raises
    ------
    SpecError
        If the file cannot be read or holds no JSON object.
    """
    try:
        text = path.read_text(encoding="utf-8")
        config = json.loads(text)
    except json.JSONDecodeError as error:
        line = "".join(text.splitlines()[error.lineno - 1 : error.lineno])
        message = f"not valid JSON: {error.msg}"
        raise SpecError([Problem(message, str(path), error.lineno, error.colno, 1, line)]) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SpecError.of(f"cannot read '{path}': {reason}") from None
    if not isinstance(config, dict):
        raise SpecError.of(f"'{path}' holds no JSON object", "a config.json of Hugging Face is one")
    return config


def import_config(
    config: Mapping[str, Any],
    *,
    name: str,
    reference: str,
    read: str | None = None,
    quantisation: str | None = None,
) -> Imported:
    """The model file of a configuration.

    Parameters
    ----------
    config : mapping
        A Hugging Face ``config.json``.
    name : str
        Name of the model.
    reference : str
        Where the configuration is found, for the sources of the model file.
    read : str, optional
        The day it was read; today by default.
    quantisation : str, optional
        How the model is served, such as ``w8a8``, where that is not what the config says.

    Raises
    ------
    SpecError
        With everything that is missing, contradictory or not modelled.
    """
    wrong = known_format(quantisation)
    if wrong:
        raise SpecError.of(wrong)
    wrapper, inner = _language_part(config)
    reader = Reader(inner)
    family = _family(reader, wrapper)
    reader.number("hidden", "hidden_size")
    reader.number("vocab", "vocab_size")
    reader.number("layers", *(("num_layers",) if "scmoe" in family else ()), "num_hidden_layers")
    reader.optional("mtp_layers", "num_nextn_predict_layers", "num_mtp_modules")
    first, _, second = family.partition("-")
    ATTENTION[first](reader)
    FEED_FORWARD[second](reader)
    tied = bool(reader.take("tie_word_embeddings", "architecture.tied_embeddings"))
    precision = precisions(reader, quantisation, experts=second != "dense")
    if reader.problems:
        raise SpecError(reader.problems)
    day = read or datetime.now(UTC).date().isoformat()
    text = _text(name, family, reader, precision, tied=tied, reference=reference, day=day)
    model = _checked(text, reader)
    ignored, unmapped = _rest(reader)
    ignored |= dict.fromkeys(wrapper, "not the language model")
    return Imported(text, model, dict(sorted(reader.used.items())), ignored, unmapped)


def _language_part(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """What stands around the language model of a multimodal configuration, and the language model."""
    inner = config.get("text_config", config.get("language_config"))
    if not isinstance(inner, Mapping):
        return {}, config
    around = {key: value for key, value in config.items() if key not in ("text_config", "language_config")}
    shared = {
        k: v
        for k, v in around.items()
        if k in ("quantization_config", "torch_dtype", "dtype") and k not in inner
    }
    return {k: v for k, v in around.items() if k not in shared}, {**shared, **inner}


def _family(reader: Reader, wrapper: Mapping[str, Any]) -> str:
    """The family of the architecture.

    Raises
    ------
    SpecError
        If it is unknown or not modelled.
    """
    for source in (reader.config, wrapper):
        stated = source.get("architectures") or [MODEL_TYPES.get(str(source.get("model_type")))]
        word = stated[0] if isinstance(stated, list) and stated else None
        if word in NOT_MODELLED:
            raise SpecError.of(
                f"not modelled: {word}: {NOT_MODELLED[word]}", "docs/import-model.md lists what is"
            )
        if word in ARCHITECTURES:
            reader.take("architectures", "family")
            if "architectures" not in reader.config:
                reader.take("model_type", "family")
            return ARCHITECTURES[word]
    config = {**wrapper, **reader.config}
    named = config.get("architectures") or config.get("model_type")
    if not named:
        raise SpecError.of(
            "neither 'architectures' nor 'model_type' says what this is", "is it the config.json of a model?"
        )
    word = str(named[0] if isinstance(named, list) else named)
    if "vision" in word.lower() or ("image_size" in config and "vocab_size" not in config):
        raise SpecError.of(f"not modelled: {word} is a vision tower", "give the config of the language model")
    raise SpecError.of(
        with_suggestion(f"not modelled: unknown architecture '{word}'", word, ARCHITECTURES),
        f"known are {', '.join(sorted(ARCHITECTURES))}",
    )


def _text(
    name: str,
    family: str,
    reader: Reader,
    precision: Mapping[str, str],
    *,
    tied: bool,
    reference: str,
    day: str,
) -> str:
    """The model file."""
    words = "/".join(dict.fromkeys(precision[key] for key in ("weights", "activations")))
    experts = f", experts {precision['experts']}" if "experts" in precision else ""
    lines = [
        "# Written by cm384 import-model.",
        "schema = 1",
        f"name = {json.dumps(name)}",
        f"title = {json.dumps(f'{name}, {words}{experts}')}",
        f'family = "{family}"',
        "",
        "[sources]",
        f'config = {{ title = "config.json of {name}", ref = {json.dumps(reference)}, read = "{day}" }}',
        "",
        "[architecture]",
    ]
    width = max(map(len, reader.numbers))
    for key, number in reader.numbers.items():
        source = json.dumps(number.source)
        start = f"{key:<{width}} = {{ value = {number.value},"
        lines.append(
            f'{start:<{width + 21}} unit = "-", source = {source}, kind = "defined", confidence = "B" }}'
        )
    lines += [f"tied_embeddings = {str(tied).lower()}"] if tied else []
    lines += ["", "[precision]", *(f'{key} = "{value}"' for key, value in precision.items())]
    return "\n".join(lines) + "\n"


def _checked(text: str, reader: Reader) -> Model:
    """The model of a text that was written here, or what does not fit together in its numbers."""
    data = tomllib.loads(text)
    kind: type[Model] = Model.class_of(data)
    try:
        return kind.model_validate(data, context={"sources": list(data["sources"])})
    except ValidationError as error:
        names = {path.removeprefix("architecture."): key for key, path in reader.used.items()}
        raise SpecError(
            [
                Problem(f"{names.get(str(loc[-1]), '.'.join(map(str, loc)))}: {message}", hint=hint)
                for loc, message, hint in faults(error, kind)
            ]
        ) from None


def _rest(reader: Reader) -> tuple[dict[str, str], tuple[str, ...]]:
    """Keys without effect with their reason, and keys that are not known."""
    ignored, unmapped = dict(reader.settled), []
    for key, value in reader.config.items():
        if key in reader.used or key in ignored:
            continue
        reason = next((r for pattern, r in NO_EFFECT.items() if fnmatch.fnmatch(key, pattern)), None)
        if reason is None and (value is None or value is False):
            reason = "not in use"
        if reason is None:
            unmapped.append(key)
        else:
            ignored[key] = reason
    return dict(sorted(ignored.items())), tuple(sorted(unmapped))


def plain_name(text: str) -> str:
    """A text as the name of a model: lower case, digits, dots and dashes."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or "model"
