"""What is asked of the planner."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Objective = Literal["throughput", "npus", "latency"]
Serving = Literal["disaggregated", "colocated", "both"]
Layouts = Literal["default", "all"]

ABLATIONS = ("microbatch", "mtp", "attention-tp", "expert-tp", "redundancy", "caching")
"""What ``--without`` can take from the planner's choices."""


@dataclass(frozen=True)
class Slo:
    """Limits that every plan keeps. [s]"""

    tpot: float
    ttft: float
    e2e: float = float("inf")


@dataclass(frozen=True)
class Request:
    """One planning problem.

    Attributes
    ----------
    npus : int
        NPUs to spend, the spare ones included. [-]
    slo : Slo
    objective : {"throughput", "npus", "latency"}
        Most requests per second within ``npus``; fewest NPUs for ``rate``; lowest TPOT at ``rate``.
    rate : float or None
        Requests per second to serve, for the last two objectives. [1/s]
    top : int
        Plans to return. [-]
    max_concurrency : float
        Most requests that may decode at once. [-]
    spare_nodes : int
        Nodes kept free for failures. [-]
    reuse : float
        Share of the prompt tokens that come from the context cache. [-]
    without : frozenset of str
        Choices taken from the planner, of `ABLATIONS`.
    kv_precisions : tuple of str
        Precisions of the KV cache to choose from; empty means the model's own.
    serving : {"disaggregated", "colocated", "both"}
        Pools of prefill and of decode instances, instances that do both, or the best of each.
    layouts : {"default", "all"}
        How dies may share a model: what pays for its family, or every way there is.
    scale_out : bool
        Whether an instance may reach beyond one scale-up network.
    """

    npus: int
    slo: Slo
    objective: Objective = "throughput"
    rate: float | None = None
    top: int = 5
    max_concurrency: float = float("inf")
    spare_nodes: int = 0
    reuse: float = 0.0
    without: frozenset[str] = field(default_factory=frozenset)
    kv_precisions: tuple[str, ...] = ()
    serving: Serving = "disaggregated"
    layouts: Layouts = "default"
    scale_out: bool = False
