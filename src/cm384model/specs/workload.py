"""What is asked of the machine: traffic, deadlines, and how it is served."""

from __future__ import annotations

from typing import ClassVar, Literal

from cm384model.specs.quantity import Deadline, Ratio, Share, Tokens
from cm384model.specs.spec import Section, Spec


class Traffic(Section):
    """Lengths of the requests: means, and how far the outputs spread."""

    prompt_len: Tokens
    output_len: Tokens
    output_len_cv: Ratio | None = None


class Slo(Section):
    """Deadlines of the service."""

    tpot: Deadline
    ttft: Deadline


class Serving(Section):
    """Facts of the traffic that the engine meets: drafts accepted, experts balanced."""

    acceptance: Share
    balance: Literal["perfect", "eplb", "none"]


class Defaults(Section):
    """The engine and the hardware to plan for if none is named."""

    engine: str | None = None
    hardware: str | None = None


class Workload(Spec):
    """A workload as its data file describes it."""

    spec_kind: ClassVar[str] = "workload"
    not_settable: ClassVar[frozenset[str]] = Spec.not_settable | {"model", "defaults"}

    model: str
    traffic: Traffic
    slo: Slo
    serving: Serving
    defaults: Defaults = Defaults()
