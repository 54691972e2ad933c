"""Model families: what their layers compute, hold and send. One module per family."""

from __future__ import annotations

from cm384model.prediction.families import dense, dsa, gqa, mla, moe, scmoe
from cm384model.prediction.families.interface import Attention, FeedForward, Parameters
from cm384model.specs.model import Model

__all__ = ["ATTENTION", "FEED_FORWARD", "attention_of", "feed_forward_of", "model_parameters"]

ATTENTION: dict[str, Attention] = {"mla": mla, "dsa": dsa, "gqa": gqa}
"""Every attention family by the first word of a model's family."""
FEED_FORWARD: dict[str, FeedForward] = {"dense": dense, "moe": moe, "scmoe": scmoe}
"""Every feed-forward family by the second word."""


def attention_of(model: Model) -> Attention:
    """The attention family of a model."""
    return ATTENTION[model.family_words[0]]


def feed_forward_of(model: Model) -> FeedForward:
    """The feed-forward family of a model."""
    return FEED_FORWARD[model.family_words[1]]


def model_parameters(model: Model) -> Parameters:
    """Weights of a model without norms, biases and MTP layers. [-]

    A token uses one row of the input embedding and the whole LM head, so ``active`` counts the
    head alone.
    """
    a, attention, feed_forward = model.architecture, attention_of(model), feed_forward_of(model)
    table = a.vocab.si * a.hidden.si
    blocks = a.layers.si * feed_forward.blocks(model) * attention.parameters(model)
    ffn = feed_forward.parameters(model)
    tables = table if a.tied_embeddings else 2 * table
    return Parameters(blocks + ffn.total + tables, blocks + ffn.active + table)
