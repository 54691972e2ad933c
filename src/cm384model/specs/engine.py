"""The serving engine: which kernels and libraries run, what they cost, how they lay out memory."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from cm384model.specs.constants import ENGINE, only
from cm384model.specs.inheritance import ExtendsEngine
from cm384model.specs.spec import Constants, Free, Spec


class Engine(Spec):
    """An engine as its data file describes it.

    ``decode_streams`` says what two microbatches interleave in decode: the attention and the
    expert path on disjoint cores, or all compute on all cores and the communication beside it.
    ``prefill_attention`` says whether the dies of an instance share the heads of every prompt
    (staged sequence and head parallelism) or keep their prompts to themselves. ``scale_out``
    says that its EP library is made to cross scale-up networks, so that nobody need ask for it.
    ``residuals`` has the model's error on measurements of one's own, by stage of their calibration.
    """

    spec_kind: ClassVar[str] = "engine"
    not_settable: ClassVar[frozenset[str]] = Spec.not_settable | {"extends"}

    extends: ExtendsEngine | None = None

    decode_streams: Literal["attention-experts", "compute-communication"]
    ep_library: str
    prefill_attention: Literal["sp-tp-sp", "data-parallel"]
    prefill_ep_library: str
    scale_out: bool = False
    constants: Annotated[Constants, only(ENGINE["constants"])] = Field(default_factory=Free)
    layout: Annotated[Constants, only(ENGINE["layout"])] = Field(default_factory=Free)
    memory: Annotated[Constants, only(ENGINE["memory"])] = Field(default_factory=Free)
    residuals: Constants = Field(default_factory=Free)
