"""Layers with a shortcut: several attention and dense blocks beside one mixture of experts.

The mixture starts from the first block and joins after the last (LongCat-Flash), so a layer's
experts can run beside its dense blocks. Two microbatches use that freedom whole; a single batch
hides the exchanges of its tokens there, and its experts wait, so its step is an upper bound.
"""

from __future__ import annotations

from cm384model.numeric import Numeric
from cm384model.prediction.families import moe
from cm384model.prediction.families.dense import feed_forward
from cm384model.prediction.families.interface import Flow, LayerTerms, Parameters
from cm384model.prediction.families.moe import copies, dense_width, place, row_width, sizes, split_bytes
from cm384model.prediction.operators import ELEMENT_BYTES, Die
from cm384model.prediction.placement import Placement
from cm384model.prediction.shapes import shortcut
from cm384model.prediction.terms import Term
from cm384model.specs.model import Model

__all__ = [
    "blocks",
    "copies",
    "layer_terms",
    "leading_layers",
    "leading_terms",
    "parameters",
    "place",
    "row_width",
    "sizes",
    "split_bytes",
    "weight_bytes",
]


def blocks(model: Model) -> Numeric:
    """Attention blocks of one layer, each followed by a dense one. [-]"""
    return shortcut(model).blocks.si


def layer_terms(die: Die, model: Model, tokens: Numeric, placement: Placement, flow: Flow) -> LayerTerms:
    """The mixture, and the dense blocks in the stream of the attention blocks."""
    a, mixture = shortcut(model), moe.layer_terms(die, model, tokens, placement, flow)
    block = feed_forward(
        die,
        model,
        tokens,
        dense_width(a),
        groups=1.0,
        vector_efficiency=flow.vector_efficiency,
        name="dense_blocks",
    )
    return LayerTerms(mixture.terms, mixture.exchanged, [block.times(a.blocks.si)])


def leading_layers(model: Model) -> Numeric:
    """All layers are alike. [-]"""
    return 0.0


def leading_terms(die: Die, model: Model, tokens: Numeric, placement: Placement, flow: Flow) -> list[Term]:
    """There is no leading layer."""
    return []


def weight_bytes(model: Model, placement: Placement, layers: Numeric, tp: Numeric) -> dict[str, Numeric]:
    """As a mixture, and the dense blocks whole on every die. [B]"""
    a = shortcut(model)
    block = 3 * a.hidden.si * dense_width(a) * ELEMENT_BYTES[model.precision.weights]
    dense = {"dense_layers": layers * a.blocks.si * block}
    return moe.weight_bytes(model, placement, layers, tp) | dense


def parameters(model: Model) -> Parameters:
    """The mixtures and the dense blocks. [-]"""
    a, mixture = shortcut(model), moe.parameters(model)
    dense = a.layers.si * a.blocks.si * 3 * a.hidden.si * dense_width(a)
    return Parameters(mixture.total + dense, mixture.active + dense)
