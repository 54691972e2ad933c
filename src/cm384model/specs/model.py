"""The language model: its family, the shapes that the family needs, and the precisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import AfterValidator, create_model, model_validator

from cm384model.specs.diagnostics import with_suggestion
from cm384model.specs.quantity import Count, CountOrZero, Quantity, fault
from cm384model.specs.spec import Section, Spec

Precision = Literal["int4", "fp4", "int8", "fp8", "bf16"]


class Architecture(Section):
    """Shapes that every family states."""

    hidden: Count
    vocab: Count
    layers: Count
    mtp_layers: CountOrZero
    heads: Count
    tied_embeddings: bool = False


# --- attention --------------------------------------------------------------------------------------------


class Latent(Architecture):
    """Multi-head latent attention: one compressed latent and one rotary key for all heads."""

    q_lora_rank: CountOrZero
    kv_lora_rank: Count
    qk_nope_dim: Count
    qk_rope_dim: Count
    v_head_dim: Count


class SparseLatent(Latent):
    """Latent attention over the positions that an indexer picks (DeepSeek sparse attention).

    ``index_layers`` of the layers own an indexer; the others use the picks of the last one.
    """

    index_heads: Count
    index_dim: Count
    index_top_k: Count
    index_layers: Count

    @model_validator(mode="after")
    def _check_index(self) -> Self:
        at_most(self, "index_layers", self.layers, "layers")
        return self


class GroupedQuery(Architecture):
    """Grouped-query attention; multi-head attention where ``kv_heads`` are as many as ``heads``.

    With a ``window``, ``window_layers`` of the layers attend to that many positions only.
    """

    kv_heads: Count
    head_dim: Count
    window: Count | None = None
    window_layers: Count | None = None

    @model_validator(mode="after")
    def _check_groups(self) -> Self:
        if number(self.heads) % number(self.kv_heads):
            raise fault(
                f"{number(self.heads):g} heads do not divide into {number(self.kv_heads):g} groups",
                "heads is a multiple of kv_heads",
                key="kv_heads",
            )
        if (self.window is None) != (self.window_layers is None):
            raise fault(
                "window and window_layers go together",
                key="window_layers" if self.window is None else "window",
            )
        if self.window_layers is not None:
            at_most(self, "window_layers", self.layers, "layers")
        return self


# --- feed-forward -----------------------------------------------------------------------------------------


class Dense(Architecture):
    """One gated feed-forward per layer."""

    dense_intermediate: Count


class Mixture(Architecture):
    """A mixture of experts, after ``dense_layers`` leading dense layers.

    ``zero_experts`` take part in routing and compute nothing.
    """

    dense_layers: CountOrZero
    dense_intermediate: Count | None = None
    moe_intermediate: Count
    routed_experts: Count
    shared_experts: CountOrZero
    top_k: Count
    zero_experts: CountOrZero | None = None

    @property
    def choices(self) -> Any:
        """Experts that the router chooses from. [-]"""
        if self.zero_experts is None:
            return self.routed_experts.si
        return self.routed_experts.si + self.zero_experts.si

    @property
    def computing_top_k(self) -> Any:
        """Picks of one token that compute something, in the mean over even routing. [-]"""
        if self.zero_experts is None:
            return self.top_k.si
        return self.top_k.si * self.routed_experts.si / self.choices

    @model_validator(mode="after")
    def _check_experts(self) -> Self:
        at_most(self, "top_k", self.routed_experts, "routed_experts")
        at_most(self, "dense_layers", self.layers, "layers")
        if self.dense_intermediate is None and number(self.dense_layers):
            raise fault("dense layers need dense_intermediate", key="dense_layers")
        return self


class Shortcut(Mixture):
    """Layers of several attention and dense blocks beside one mixture of experts (LongCat)."""

    dense_intermediate: Count
    blocks: Count

    @model_validator(mode="after")
    def _check_no_leading(self) -> Self:
        if number(self.dense_layers):
            raise fault(
                "a layer with a shortcut has its dense blocks inside; dense_layers is 0", key="dense_layers"
            )
        return self


def number(quantity: Quantity) -> float:
    """The plain value, without a trace in a recording."""
    return float(quantity.value)


def at_most(section: Section, name: str, limit: Quantity, limit_name: str) -> None:
    """Fail at the key ``name`` if its value is above a limit."""
    value = number(getattr(section, name))
    if value > number(limit):
        raise fault(f"{value:g} is more than {limit_name} = {number(limit):g}", key=name)


# --- the families -----------------------------------------------------------------------------------------

ATTENTION: dict[str, type[Architecture]] = {"mla": Latent, "dsa": SparseLatent, "gqa": GroupedQuery}
"""Numbers of each attention family, by its word."""
FEED_FORWARD: dict[str, type[Architecture]] = {"dense": Dense, "moe": Mixture, "scmoe": Shortcut}
"""Numbers of each feed-forward family, by its word."""
FAMILIES = tuple(f"{attention}-{ffn}" for attention in ATTENTION for ffn in FEED_FORWARD)
"""What a model file may give as its family."""


def _known_family(family: str) -> str:
    if family not in FAMILIES:
        raise fault(
            with_suggestion(f"'{family}' is not known", family, FAMILIES), f"one of {', '.join(FAMILIES)}"
        )
    return family


class Precisions(Section):
    """In which format each part is stored and computed.

    ``experts`` is the format of the routed experts where it is not that of the other weights.
    """

    weights: Precision
    activations: Precision
    attention: Precision
    kv: Precision
    embedding: Precision
    lm_head: Precision
    experts: Precision | None = None


class Published(Section):
    """Sizes the makers state, to check our counts against."""

    total_parameters: Count | None = None
    active_parameters: Count | None = None


class Model(Spec):
    """A language model as its data file describes it.

    The class of a model that was read is a subclass whose architecture has the numbers of its
    family: a word for the attention and one for the feed-forward part, such as ``mla-moe``.
    """

    spec_kind: ClassVar[str] = "model"
    not_settable: ClassVar[frozenset[str]] = Spec.not_settable | {"published", "family"}

    family: Annotated[str, AfterValidator(_known_family)]
    architecture: Architecture
    precision: Precisions
    published: Published = Published()

    @property
    def family_words(self) -> tuple[str, str]:
        """The attention and the feed-forward family."""
        attention, _, feed_forward = self.family.partition("-")
        return attention, feed_forward

    @classmethod
    def class_of(cls, data: Mapping[str, Any]) -> type[Self]:
        """The class that knows the numbers of the family that a file states."""
        family = data.get("family")
        name = class_name(family) if family in FAMILIES else "UnknownModel"
        return cast(type[Self], globals().get(name) or __getattr__(name))


class UnknownModel(Model):
    """A model of no known family, whose shapes cannot be checked."""

    architecture: Any


def class_name(family: str) -> str:
    """Name of the class of the models of a family, such as ``MlaMoeModel``."""
    return "".join(word.capitalize() for word in (*family.split("-"), "model"))


def __getattr__(name: str) -> Any:
    """The classes of the families, each built when it is first asked for."""
    for family in FAMILIES:
        if name == class_name(family):
            attention, _, ffn = family.partition("-")
            bases = (ATTENTION[attention], FEED_FORWARD[ffn])
            shapes: Any = create_model(f"{name}Shapes", __base__=bases, __module__=__name__)
            made = create_model(name, __base__=Model, __module__=__name__, architecture=(shapes, ...))
            globals()[f"{name}Shapes"] = shapes
            globals()[name] = made
            return made
    if name.endswith("Shapes"):
        __getattr__(name.removesuffix("Shapes"))
        return globals()[name]
    raise AttributeError(name)
