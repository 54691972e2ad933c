"""What a family of models says about itself: one interface for attention, one for feed-forward.

A family is a module of this package with the functions of `Attention` or `FeedForward`. The
rest of the predictor calls them and does not know which family it has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from cm384model.numeric import Numeric
from cm384model.prediction.operators import ELEMENT_BYTES, Die, gemm
from cm384model.prediction.placement import Placement
from cm384model.prediction.terms import Term
from cm384model.specs.hardware import Hardware
from cm384model.specs.model import Model
from cm384model.specs.spec import Constants


@dataclass(frozen=True)
class LayerTerms:
    """The terms of one part of a layer, in the order in which they run.

    Attributes
    ----------
    terms : list of Term
    exchanged : tuple of str
        Names of the terms that are communication.
    beside_attention : list of Term
        Terms that run in the stream of the attention part, after it.
    """

    terms: list[Term]
    exchanged: tuple[str, ...] = ()
    beside_attention: list[Term] = field(default_factory=list)

    @property
    def compute(self) -> list[Term]:
        """The terms on the cores."""
        own = [term for term in self.terms if term.name not in self.exchanged]
        return [*self.beside_attention, *own]

    @property
    def communication(self) -> list[Term]:
        """The terms on the fabric."""
        return [term for term in self.terms if term.name in self.exchanged]


@dataclass(frozen=True)
class Prompts:
    """What one die computes of a prefill batch, and with whom.

    Attributes
    ----------
    tokens : numeric
        Own tokens of the die that are computed. [tokens]
    prompt_len : numeric
        Tokens of a prompt, cached ones included. [tokens]
    reuse : numeric
        Share of a prompt that is cached. [-]
    shared : bool
        Whether the dies of an instance share prompts, or each keeps its own.
    ranks : numeric
        Dies that share the heads of a prompt by an exchange; 1 where prompts stay on a die. [-]
    tp : numeric
        Dies that share the weights. [-]
    cp : numeric
        Groups of ``tp`` dies that share the sequence of a prompt and gather its keys and values. [-]
    """

    tokens: Numeric
    prompt_len: Numeric
    reuse: Numeric
    shared: bool
    ranks: Numeric
    tp: Numeric
    cp: Numeric = 1.0

    @property
    def together(self) -> Numeric:
        """Dies that have the heads of a part of a sequence between them. [-]"""
        return np.maximum(self.ranks, self.tp)

    @property
    def gathers(self) -> bool:
        """Whether keys and values of a sequence come from several parts of it."""
        return bool(np.any(np.greater(self.cp, 1)))


@dataclass(frozen=True)
class Flow:
    """How tokens reach the feed-forward part of a layer.

    Attributes
    ----------
    tp : numeric
        Dies that share the weights of dense parts. [-]
    imbalance : numeric
        Load of the busiest die over the mean. [-]
    library : str
        EP library and mode.
    message_scale_bytes : numeric
        Scales in a dispatched message. [B]
    copies_limit : numeric
        Most copies of a token that cross the fabric, where a library sends one per node and
        forwards inside. [-]
    vector_efficiency : numeric
        Attained share of the memory bandwidth of vector work. [-]
    """

    tp: Numeric
    imbalance: Numeric
    library: str
    message_scale_bytes: Numeric
    copies_limit: Numeric
    vector_efficiency: Numeric


@dataclass(frozen=True)
class Parameters:
    """Numbers of weights, all of them and those that one token uses. [-]"""

    total: Numeric
    active: Numeric


class Attention(Protocol):
    """An attention family; ``heads`` are the model's, a *block* is one attention of one layer."""

    @property
    def SPLITS_PREFILL(self) -> bool:  # noqa: N802 (a constant of a module)
        """Whether dies can share the attention weights in prefill (``attention_tp``)."""

    @property
    def SPLITS_UNASKED(self) -> bool:  # noqa: N802
        """Whether dies share the attention weights by default, as many as the memory wants."""

    def decode_terms(
        self,
        die: Die,
        model: Model,
        requests: Numeric,
        tokens: Numeric,
        kv_len: Numeric,
        *,
        tp: Numeric,
        kv_precision: str,
        vector_efficiency: Numeric,
    ) -> list[Term]:
        """One block in decode, for the requests and tokens of one die, split over ``tp`` dies."""

    def prefill_terms(self, die: Die, model: Model, prompts: Prompts, constants: Constants) -> LayerTerms:
        """One block in prefill under the ``constants`` of an engine."""

    def kv_bytes_per_token(self, model: Model, *, kv_len: Numeric, precision: str, tp: Numeric) -> Numeric:
        """Cache of one token in one block on one of ``tp`` dies, mean over a context. [B/tokens]"""

    def weight_bytes(self, model: Model, tp: Numeric) -> Numeric:
        """Weights of one block on one of ``tp`` dies. [B]"""

    def parameters(self, model: Model) -> Numeric:
        """Weights of one block. [-]"""

    def row_width(self, model: Model) -> Numeric:
        """Numbers of the widest activation of one token. [-]"""

    def prefill_buffers(self, model: Model, prompts: Prompts) -> dict[str, Numeric]:
        """Buffers of the exchange in prefill on one die, by name. [B]"""

    def sizes(self, model: Model) -> dict[str, float]:
        """Operand sizes of this family for single operators. [-]"""


class FeedForward(Protocol):
    """A feed-forward family."""

    def blocks(self, model: Model) -> Numeric:
        """Attention blocks of one layer. [-]"""

    def place(
        self,
        hardware: Hardware,
        model: Model,
        ep: Numeric,
        redundant_experts: Numeric,
        expert_tp: Numeric = 1.0,
    ) -> Placement:
        """Where the experts are, if there are any, in groups of ``expert_tp`` dies that split them."""

    def layer_terms(
        self, die: Die, model: Model, tokens: Numeric, placement: Placement, flow: Flow
    ) -> LayerTerms:
        """The feed-forward part of one main layer for ``tokens`` of each die."""

    def leading_layers(self, model: Model) -> Numeric:
        """Layers before the main ones that are simpler than those. [-]"""

    def leading_terms(
        self, die: Die, model: Model, tokens: Numeric, placement: Placement, flow: Flow
    ) -> list[Term]:
        """The feed-forward part of a leading layer; empty in a family without."""

    def weight_bytes(
        self, model: Model, placement: Placement, layers: Numeric, tp: Numeric
    ) -> dict[str, Numeric]:
        """Weights of ``layers`` layers, leading ones included, on one die, by part. [B]"""

    def split_bytes(self, model: Model, tp: Numeric) -> Numeric:
        """Those of the weights on one of ``tp`` dies that the dies of a group share. [B]"""

    def copies(self, model: Model, slots: Numeric) -> Numeric:
        """Copies of one token that a die with so many expert slots can receive. [-]"""

    def parameters(self, model: Model) -> Parameters:
        """Weights of all layers. [-]"""

    def row_width(self, model: Model) -> Numeric:
        """Numbers of the widest activation of one token that a buffer holds. [-]"""

    def sizes(self, model: Model) -> dict[str, float]:
        """Operand sizes of this family for single operators. [-]"""


def compute_precision(stored: str, activations: str) -> str:
    """Format in which a product runs: the wider of the two; stored weights are converted to it."""
    return stored if ELEMENT_BYTES[stored] >= ELEMENT_BYTES[activations] else activations


def linear(
    die: Die,
    model: Model,
    name: str,
    rows: Numeric,
    columns: Numeric,
    depth: Numeric,
    *,
    groups: Numeric = 1.0,
    stored: str | None = None,
    rows_vary: Numeric = 0.0,
) -> Term:
    """A product with weights in their stored format: the model's, unless another is given."""
    p = model.precision
    stored = p.weights if stored is None else stored
    return gemm(
        die,
        name,
        rows,
        columns,
        depth,
        groups=groups,
        precision=compute_precision(stored, p.activations),
        stored=stored,
        rows_vary=rows_vary,
    )
