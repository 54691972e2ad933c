"""Import of Hugging Face configurations: real ones, broken ones, foreign ones."""

from __future__ import annotations

import copy
import json
import tomllib
from pathlib import Path

import pytest

from cm384model.specs.catalogue import names
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.huggingface import import_config, read_config
from cm384model.specs.huggingface.importer import ARCHITECTURES, MODEL_TYPES, NOT_MODELLED, plain_name
from cm384model.specs.load import load_model
from cm384model.specs.model import FAMILIES
from cm384model.specs.quantity import Quantity

CONFIGS = Path(__file__).parent / "configs"
FIXTURES = sorted(path.stem for path in CONFIGS.glob("*.json"))
REFUSED = {
    "deepseek-v4-flash": "compressed attention",
    "deepseek-v4-pro": "compressed attention",
    "gpt-oss-120b": "quantisation 'mxfp4'",
    "gpt-oss-20b": "quantisation 'mxfp4'",
    "llama-4-maverick": "attention in chunks",
    "minimax-m1": "linear (lightning) attention",
    "qwen3-next-80b-a3b": "linear attention (gated delta net)",
    "step-3": "factorised queries",
}
SHIPPED = {
    "deepseek-r1": ("deepseek-r1", "w8a8"),
    "deepseek-v3": ("deepseek-v3", "w8a8"),
    "deepseek-v3.2": ("deepseek-v3.2", "w8a8"),
    "glm-4.5": ("glm-4.5", "w8a8"),
    "glm-5": ("glm-5", "w8a8"),
    "glm-5.2": ("glm-5.2", "w8a8"),
    "hy3-preview": ("hy3-preview", "bf16"),
    "kimi-k2": ("kimi-k2-instruct", "w8a8"),
    "kimi-k2-thinking": ("kimi-k2-thinking", None),
    "llama-3.1-70b": ("llama-3.1-70b", None),
    "longcat-flash": ("longcat-flash", "w8a8"),
    "minimax-m2": ("minimax-m2", "w8a8"),
    "mixtral-8x22b": ("mixtral-8x22b", None),
    "qwen3-235b-a22b": ("qwen3-235b-a22b", "w8a8"),
    "qwen3-coder-480b-a35b": ("qwen3-coder-480b-a35b", "w8a8"),
    "qwen3-30b-a3b": ("qwen3-30b-a3b", None),
    "qwen3-32b": ("qwen3-32b", None),
    "qwen3-8b": ("qwen3-8b", None),
}


def config(name, **changes):
    """A fixture with keys changed, or taken out where None is given as ``...``."""
    data = copy.deepcopy(read_config(CONFIGS / f"{name}.json")) | changes
    return {key: value for key, value in data.items() if value is not ...}


def imported(data, **options):
    return import_config(data, name="some-model", reference="config.json", read="2026-11-29", **options)


def problems(data, **options):
    with pytest.raises(SpecError) as caught:
        imported(data, **options)
    return [problem.message for problem in caught.value.problems]


def shapes(model):
    return {name: q.value for name, q in model.architecture if isinstance(q, Quantity)}


# --- real ones ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in FIXTURES if name not in REFUSED])
def test_every_key_is_accounted_for(name):
    data = config(name)
    result = imported(data)
    assert result.unmapped == ()
    assert set(result.used) | set(result.ignored) >= set(data)
    assert not set(result.used) & set(result.ignored)
    for path, quantity in result.model.architecture:
        if isinstance(quantity, Quantity):
            assert quantity.source.startswith(("config ", "derived: ")), path
            if quantity.source.startswith("config "):
                assert quantity.source.split()[1] in result.used
    assert tomllib.loads(result.text)["name"] == "some-model"


@pytest.mark.parametrize(("name", "reason"), REFUSED.items())
def test_what_is_not_modelled_says_why(name, reason):
    (message,) = problems(config(name))
    assert message.startswith("not modelled: ")
    assert reason in message


@pytest.mark.parametrize("name", names("model"))
def test_a_shipped_model_is_what_its_config_gives(name):
    fixture, quantisation = SHIPPED[name]
    ours, theirs = imported(config(fixture), quantisation=quantisation).model, load_model(name)
    assert shapes(ours) == shapes(theirs)
    assert ours.family == theirs.family
    assert ours.precision == theirs.precision


def test_at_least_twelve_families_of_checkpoints_are_shipped():
    assert set(SHIPPED) == set(names("model"))


def test_a_window_in_every_second_layer():
    result = imported(config("gpt-oss-120b"), quantisation="bf16")
    assert shapes(result.model)["window"] == 128
    assert shapes(result.model)["window_layers"] == 18
    assert "quantization_config" in result.ignored


def test_a_window_in_all_layers_of_mistral_and_in_the_last_of_qwen2():
    mistral = config("llama-3.1-8b", architectures=["MistralForCausalLM"], sliding_window=4096)
    assert shapes(imported(mistral).model)["window_layers"] == 32
    qwen = config("qwen3-8b", sliding_window=4096, use_sliding_window=True, max_window_layers=28)
    assert shapes(imported(qwen).model)["window_layers"] == 36 - 28
    assert "window" not in shapes(imported(qwen | {"use_sliding_window": False}).model)


def test_the_language_model_of_a_multimodal_config():
    inner = config("kimi-k2-thinking", architectures=..., quantization_config=...)
    quantised = config("kimi-k2-thinking")["quantization_config"]
    outer = {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "text_config": inner,
        "vision_config": {"hidden_size": 1152},
        "quantization_config": quantised,
    }
    result = imported(outer)
    assert shapes(result.model) == shapes(imported(config("kimi-k2-thinking")).model)
    assert result.ignored["vision_config"] == "not the language model"
    assert result.model.precision.experts == "int4"


def test_shared_indexers_are_counted():
    assert shapes(imported(config("glm-5.2")).model)["index_layers"] == 21


def test_tied_embeddings():
    assert imported(config("ernie-4.5-300b-a47b")).model.architecture.tied_embeddings is True


def test_shared_experts_by_their_width():
    data = config("qwen3-30b-a3b", shared_expert_intermediate_size=2 * 768)
    assert shapes(imported(data).model)["shared_experts"] == 2
    (message,) = problems(data | {"shared_expert_intermediate_size": 1000})
    assert message == "not modelled: a shared expert of width 1000 beside routed ones of width 768"


# --- quantisation ---------------------------------------------------------------------------------------


def compressed(bits, inputs, kind="int", **more):
    activations = None if inputs is None else {"num_bits": inputs, "type": kind}
    group = {"weights": {"num_bits": bits, "type": kind}, "input_activations": activations}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, **more}


@pytest.mark.parametrize(
    ("quantised", "expected"),
    [
        ({"quant_method": "fp8"}, ("fp8", "fp8", None)),
        ({"quant_method": "gptq", "bits": 4}, ("int4", "bf16", None)),
        ({"quant_method": "awq", "w_bit": 4}, ("int4", "bf16", None)),
        ({"quant_method": "ascend", "quantize": "w8a8"}, None),
        ({"quantize": "w8a8_dynamic"}, ("int8", "int8", None)),
        (compressed(8, 8), ("int8", "int8", None)),
        (compressed(8, 8, "float"), ("fp8", "fp8", None)),
        (compressed(4, None), ("int4", "bf16", None)),
        (compressed(4, None, ignore=["re:.*self_attn.*"]), ("bf16", "bf16", "int4")),
        (compressed(3, None), None),
        ({"quant_method": "bitsandbytes"}, None),
    ],
)
def test_quantisation(quantised, expected):
    data = config("qwen3-30b-a3b", quantization_config=quantised)
    if expected is None:
        assert any("not modelled: " in message for message in problems(data))
        return
    precision = imported(data).model.precision
    assert (precision.weights, precision.activations, precision.experts) == expected


def test_quantised_cache():
    scheme = {"num_bits": 8, "type": "int"}
    data = config("qwen3-30b-a3b", quantization_config=compressed(8, 8, kv_cache_scheme=scheme))
    assert imported(data).model.precision.kv == "int8"


@pytest.mark.parametrize(
    ("word", "name", "expected"),
    [
        ("w4a8", "glm-5", ("int8", "int8", "int4")),
        ("w4a8", "qwen3-32b", ("int4", "int8", None)),
        ("bf16", "deepseek-v3", ("bf16", "bf16", None)),
        ("w8a16", "deepseek-v3", ("int8", "bf16", None)),
    ],
)
def test_quantisation_by_word(word, name, expected):
    precision = imported(config(name), quantisation=word).model.precision
    assert (precision.weights, precision.activations, precision.experts) == expected


def test_an_unknown_word():
    assert problems(config("glm-5"), quantisation="w8a9") == [
        "--quantisation 'w8a9' is not known. Did you mean 'w8a8'?"
    ]


# --- broken and foreign ones ----------------------------------------------------------------------------


def test_everything_that_is_missing_is_said_at_once():
    data = config("deepseek-v3", hidden_size=..., kv_lora_rank=..., num_experts_per_tok=...)
    assert problems(data) == [
        "missing key 'hidden_size': the model file needs it as architecture.hidden",
        "missing key 'kv_lora_rank': the model file needs it as architecture.kv_lora_rank",
        "missing key 'num_experts_per_tok' (or moe_topk, moe_top_k, moe_k, experts_per_token): "
        "the model file needs it as architecture.top_k",
    ]


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("qwen3-8b", {"hidden_size": "4096"}, "hidden_size: needs a whole number of at least 1, not '4096'"),
        ("qwen3-8b", {"hidden_size": 0}, "hidden_size: needs a whole number of at least 1, not 0"),
        ("qwen3-8b", {"hidden_size": True}, "hidden_size: needs a whole number of at least 1, not True"),
        ("qwen3-8b", {"vocab_size": 1.5}, "vocab_size: needs a whole number of at least 1, not 1.5"),
        ("qwen3-8b", {"num_key_value_heads": 5}, "num_key_value_heads: 32 heads do not divide into 5 groups"),
        (
            "llama-3.1-8b",
            {"num_attention_heads": 24},
            "hidden_size = 4096 does not divide into num_attention_heads = 24",
        ),
        (
            "qwen3-30b-a3b",
            {"num_experts_per_tok": 200},
            "num_experts_per_tok: 200 is more than routed_experts = 128",
        ),
        (
            "qwen3-30b-a3b",
            {"decoder_sparse_step": 2},
            "not modelled: experts in one of 2 layers (decoder_sparse_step)",
        ),
        (
            "qwen3-30b-a3b",
            {"mlp_only_layers": [3]},
            "not modelled: dense layers between the experts (mlp_only_layers)",
        ),
        (
            "minimax-m2",
            {"attn_type_list": [0, 1]},
            "not modelled: linear attention in some layers (attn_type_list)",
        ),
        (
            "qwen3-8b",
            {"layer_types": ["linear_attention"] * 36},
            "not modelled: attention of kind linear_attention (layer_types)",
        ),
        (
            "qwen3-8b",
            {"torch_dtype": "float32"},
            "not modelled: weights in float32 (torch_dtype); give --quantisation",
        ),
        (
            "glm-5",
            {"indexer_types": ["full"]},
            "not modelled: indexer_types has other entries than full and shared, or not one per layer",
        ),
        ("longcat-flash", {"zero_expert_type": "copy"}, "not modelled: zero experts of type copy"),
        ("hunyuan-a13b", {"moe_topk": [8] * 31 + [4]}, "not modelled: moe_topk differs from layer to layer"),
        (
            "qwen3-8b",
            {"architectures": ["Qwen4ForCausalLM"]},
            "not modelled: unknown architecture 'Qwen4ForCausalLM'. Did you mean 'Qwen3ForCausalLM'?",
        ),
        (
            "qwen3-8b",
            {"architectures": ["CLIPVisionModel"]},
            "not modelled: CLIPVisionModel is a vision tower",
        ),
        (
            "qwen3-8b",
            {"architectures": ..., "model_type": ...},
            "neither 'architectures' nor 'model_type' says what this is",
        ),
    ],
)
def test_one_clear_error(name, changes, message):
    assert problems(config(name, **changes)) == [message]


def test_unknown_keys_are_named():
    result = imported(config("qwen3-8b", wonder_factor=3, another=False))
    assert result.unmapped == ("wonder_factor",)
    assert result.ignored["another"] == "not in use"


def test_a_list_that_is_the_same_everywhere_is_one_number():
    assert shapes(imported(config("hunyuan-a13b")).model)["top_k"] == 8


def test_every_architecture_has_a_known_family_and_every_type_an_architecture():
    assert set(ARCHITECTURES.values()) <= set(FAMILIES)
    assert not set(ARCHITECTURES) & set(NOT_MODELLED)
    assert set(MODEL_TYPES.values()) <= set(ARCHITECTURES) | set(NOT_MODELLED)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON: "),
        ('{\n "a": 1,\n', "not valid JSON: "),
        ("[1]", "holds no JSON object"),
        ("", "not valid JSON: "),
    ],
)
def test_a_file_that_is_no_config(tmp_path, text, message):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        read_config(path)
    assert message in caught.value.render()
    with pytest.raises(SpecError, match="cannot read"):
        read_config(tmp_path / "none.json")


def test_names():
    assert plain_name("Qwen3 235B_A22B") == "qwen3-235b-a22b"
    assert plain_name("--") == "model"


def test_fixtures_are_json_of_one_model_each():
    for name in FIXTURES:
        assert json.loads((CONFIGS / f"{name}.json").read_text())
