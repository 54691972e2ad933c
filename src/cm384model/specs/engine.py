"""The serving engine: which kernels and libraries run, what they cost, how they lay out memory."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from cm384model.specs.spec import Constants, Free, Spec


class Engine(Spec):
    """An engine as its data file describes it."""

    spec_kind: ClassVar[str] = "engine"

    ep_library: str
    prefill_ep_library: str
    constants: Constants = Field(default_factory=Free)
    layout: Constants = Field(default_factory=Free)
    memory: Constants = Field(default_factory=Free)
