"""The model file: which numbers each family needs, and errors at the key."""

from __future__ import annotations

import copy
import pickle

import pytest

from cm384model.specs.catalogue import data_root, names
from cm384model.specs.diagnostics import SpecError
from cm384model.specs.files import read_spec
from cm384model.specs.load import load_model
from cm384model.specs.model import ATTENTION, FAMILIES, FEED_FORWARD, Model, class_name


def refusal(tmp_path, old, new, name="deepseek-r1"):
    text = (data_root() / f"workloads/models/{name}.toml").read_text()
    assert old in text
    path = tmp_path / "model.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(SpecError) as caught:
        read_spec(path, Model)
    return [(p.message, p.source_line.split(" ")[0]) for p in caught.value.problems]


@pytest.mark.parametrize(
    ("old", "new", "message", "at"),
    [
        ('"mla-moe"', '"mla-mo"', "family: 'mla-mo' is not known. Did you mean 'mla-moe'?", "family"),
        (
            "value = 8, ",
            "value = 800, ",
            "architecture.top_k: 800 is more than routed_experts = 256",
            "top_k",
        ),
        (
            "value = 3, ",
            "value = 64, ",
            "architecture.dense_layers: 64 is more than layers = 61",
            "dense_layers",
        ),
        ("top_k ", "topk ", "architecture.topk: unknown key 'topk'. Did you mean 'top_k'?", "topk"),
        ("kv_lora_rank ", "# ", "architecture: missing key 'kv_lora_rank'", "[architecture]"),
    ],
)
def test_errors_stand_at_the_key(tmp_path, old, new, message, at):
    assert refusal(tmp_path, old, new) == [(message, at)]


def test_errors_of_groups_and_blocks(tmp_path):
    (problem,) = refusal(tmp_path, "value = 8, ", "value = 7, ", name="qwen3-32b")
    assert problem == ("architecture.kv_heads: 64 heads do not divide into 7 groups", "kv_heads")
    dense = ("dense_layers     = { value = 0,", "dense_layers     = { value = 1,")
    (problem,) = refusal(tmp_path, *dense, name="qwen3-30b-a3b")
    assert problem == ("architecture.dense_layers: dense layers need dense_intermediate", "dense_layers")


def test_a_number_of_another_family_is_refused(tmp_path):
    found = refusal(tmp_path, '"mla-moe"', '"gqa-moe"')
    assert ("architecture: missing key 'kv_heads'", "[architecture]") in found
    assert ("architecture.kv_lora_rank: unknown key 'kv_lora_rank'", "kv_lora_rank") in found


def test_every_pair_of_words_is_a_family():
    assert len(FAMILIES) == len(ATTENTION) * len(FEED_FORWARD)
    for family in FAMILIES:
        kind = Model.class_of({"family": family})
        assert kind.__name__ == class_name(family)
        assert kind is Model.class_of({"family": family})


@pytest.mark.parametrize("name", names("model"))
def test_models_copy_and_pickle(name):
    model = load_model(name)
    assert pickle.loads(pickle.dumps(model)) == model == copy.deepcopy(model)
    assert model.published.total_parameters is not None
