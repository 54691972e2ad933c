"""The language model: shapes and precisions."""

from __future__ import annotations

from typing import ClassVar, Literal

from cm384model.specs.quantity import Count, CountOrZero
from cm384model.specs.spec import Section, Spec

Precision = Literal["int4", "int8", "fp8", "bf16"]


class Architecture(Section):
    """Shapes of a mixture of experts with multi-head latent attention."""

    hidden: Count
    vocab: Count
    layers: Count
    dense_layers: CountOrZero
    mtp_layers: CountOrZero
    heads: Count
    q_lora_rank: CountOrZero
    kv_lora_rank: Count
    qk_nope_dim: Count
    qk_rope_dim: Count
    v_head_dim: Count
    dense_intermediate: Count
    moe_intermediate: Count
    routed_experts: Count
    shared_experts: CountOrZero
    top_k: Count


class Precisions(Section):
    """In which format each part is stored and computed."""

    weights: Precision
    activations: Precision
    attention: Precision
    kv: Precision
    embedding: Precision
    lm_head: Precision


class Published(Section):
    """Sizes the makers state, to check our counts against."""

    total_parameters: Count | None = None
    active_parameters: Count | None = None


class Model(Spec):
    """A language model as its data file describes it."""

    spec_kind: ClassVar[str] = "model"
    not_settable: ClassVar[frozenset[str]] = Spec.not_settable | {"published"}

    family: Literal["mla-moe"]
    architecture: Architecture
    precision: Precisions
    published: Published = Published()
