"""How many nodes lend DRAM to the context cache: hit rates to choose from and what each needs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cm384model.laws.caching import cache_traffic, cache_working_set
from cm384model.numeric import Numeric
from cm384model.planning.request import Request
from cm384model.planning.results import CachePool
from cm384model.prediction.caching import PoolNode, kv_bytes_per_token, pool_node
from cm384model.prediction.case import Case
from cm384model.specs.reuse import ReuseCurve

MOST_REUSE = 0.999
"""Share of the prompt tokens that can come from the cache at most: the last is always computed. [-]"""

LEVEL_STEP = 0.01
"""Step between hit rates to choose from, where the size of a pool goes with the request rate. [-]"""

FINE_STEP = 0.0005
"""The same around the best of them. [-]"""


@dataclass(frozen=True)
class CacheLevels:
    """Hit rates to choose from, and the nodes of DRAM that each takes; rising, zero first.

    At a request rate a level takes ``fixed + per_rate x rate`` nodes to hold its tokens, and no
    fewer than its loads and its DRAM traffic take.

    Attributes
    ----------
    reuse : array
        Share of the prompt tokens found in the pool. [-]
    fixed : array
        Nodes that hold the tokens, at any rate. [-]
    per_rate : array
        Nodes that hold the tokens, for each request per second. [s]
    load : array
        Nodes whose links carry the loads, for each request per second. [s]
    dram : array
        Nodes whose DRAM carries loads and stores, for each request per second. [s]
    limit : int
        Most nodes of the pool. [-]
    node : PoolNode or None
        What one node gives; None where no pool is sized.
    """

    reuse: np.ndarray
    fixed: np.ndarray
    per_rate: np.ndarray
    load: np.ndarray
    dram: np.ndarray
    limit: int = 0
    node: PoolNode | None = None

    def nodes(self, level: np.ndarray, rate: float) -> np.ndarray:
        """The fewest nodes that carry some levels at a rate. [-]"""
        held = self.fixed[level] + self.per_rate[level] * rate
        moved = np.maximum(self.load[level], self.dram[level]) * rate
        fewest: np.ndarray = np.ceil(np.maximum(held, moved) * (1 - 1e-12))
        return fewest

    @property
    def most_rate(self) -> np.ndarray:
        """Requests per second that each level carries with the most nodes. [1/s]"""
        most = np.full(len(self.reuse), np.inf)
        left = self.limit - self.fixed
        for nodes, each in (
            (left, self.per_rate),
            (left + self.fixed, self.load),
            (left + self.fixed, self.dram),
        ):
            most = np.minimum(most, np.divide(nodes, each, out=np.full(len(most), np.inf), where=each > 0))
        return most

    def pool(self, case: Case, request: Request, reuse: float, rate: float) -> CachePool | None:
        """The smallest pool of one level at a rate, and its figures; None where no pool is sized."""
        if self.node is None:
            return None
        level = np.asarray(np.searchsorted(self.reuse, reuse))
        nodes, node, prompt_len = int(self.nodes(level, rate)), self.node, case.workload.traffic.prompt_len.si
        each = float(kv_bytes_per_token(case))
        needs = {
            "capacity": self.fixed[level] + self.per_rate[level] * rate,
            f"{request.cache_plane} bandwidth": self.load[level] * rate,
            "dram bandwidth": self.dram[level] * rate,
        }
        tokens = nodes * float(node.capacity_tokens)
        taken_in = float(cache_working_set(rate, prompt_len, reuse, 1.0))
        return CachePool(
            nodes=nodes,
            limit_nodes=self.limit,
            capacity_bytes=nodes * float(node.capacity_bytes),
            capacity_tokens=tokens,
            capacity_blocks=tokens / float(case.engine.constants.cache_block_tokens.si),
            hit_rate=reuse,
            retention_s=tokens / taken_in,
            load_bytes_per_s=float(cache_traffic(rate, prompt_len, reuse, bytes_per_token=each)),
            load_limit_bytes_per_s=nodes * float(node.load_rate),
            dram_bytes_per_s=float(cache_traffic(rate, prompt_len, 1.0, bytes_per_token=each)) * (nodes > 0),
            dram_limit_bytes_per_s=nodes * float(node.dram_rate),
            bound_by=max(needs, key=lambda name: float(needs[name])) if nodes else "",
        )


def cache_levels(case: Case, request: Request) -> CacheLevels:
    """The hit rates that a request leaves to choose from.

    One, without a size, where only a share is given. Of a curve at given sizes: the hit rate of
    every number of nodes. Of a curve whose sizes go with the rate: every whole percent, or
    what the request names, and the highest. A share with a time of retention is such a
    curve, a straight line: the pool serves as many of the users as it has room for.

    Raises
    ------
    SpecError
        If the machine or the engine does not say what a node lends.
    """
    curve, none = _curve_of(case, request), np.zeros(1)
    if "caching" in request.without:
        return CacheLevels(none, none, none, none, none)
    if curve is None:
        return CacheLevels(np.array([request.reuse]), none, none, none, none)
    node, limit = pool_node(case, request.cache_plane), request.cache_nodes
    prompt_len, each = case.workload.traffic.prompt_len.si, kv_bytes_per_token(case)
    reuse, fixed, per_rate = _of_curve(case, curve, node, limit, request.cache_levels)
    reuse, fixed, per_rate = (np.concatenate([none, column]) for column in (reuse, fixed, per_rate))
    used = reuse > 0
    load = cache_traffic(1.0, prompt_len, reuse, bytes_per_token=each) / node.load_rate
    dram = cache_traffic(1.0, prompt_len, used * 1.0, bytes_per_token=each) / node.dram_rate
    kept = np.concatenate([[True], used[1:] & (limit > 0)])
    reuse, fixed, per_rate, load, dram = (c[kept] for c in (reuse, fixed, per_rate, load, dram))
    return CacheLevels(reuse, fixed, per_rate, load, dram, limit, node)


def whole_percents() -> np.ndarray:
    """Hit rates to choose from where the size of a pool goes with the request rate. [-]"""
    levels: np.ndarray = np.arange(1, round(1 / LEVEL_STEP)) * LEVEL_STEP
    return levels


def finer(case: Case, request: Request, reuse: float) -> Request | None:
    """The request with every `FINE_STEP` around one hit rate alone.

    None where the cache is not used or has a hit rate for every number of nodes already.
    """
    curve = _curve_of(case, request)
    if reuse == 0 or curve is None or curve.requests_per_s is None:
        return None
    return replace(request, cache_levels=tuple(reuse + _fine_steps()))


def with_nodes(case: Case, request: Request, nodes: int, rate: float) -> Request:
    """The request with another limit on the nodes, and closely the hit rates that these hold at a rate."""
    request, curve = replace(request, cache_nodes=nodes), _curve_of(case, request)
    if curve is None or curve.requests_per_s is None:
        return request
    size = nodes * _in_a_node(case, curve, pool_node(case, request.cache_plane))
    held = float(curve.at(size * curve.requests_per_s / rate))
    return with_both(request, replace(request, cache_levels=tuple(held + _fine_steps())))


def _fine_steps() -> np.ndarray:
    steps = round(LEVEL_STEP / FINE_STEP)
    fine: np.ndarray = np.arange(-steps, steps + 1) * FINE_STEP
    return fine


def with_both(coarse: Request, fine: Request) -> Request:
    """The request with the hit rates of both."""
    levels = np.union1d(coarse.cache_levels or whole_percents(), fine.cache_levels)
    return replace(coarse, cache_levels=tuple(levels))


def _curve_of(case: Case, request: Request) -> ReuseCurve | None:
    """The curve of a request, in requests per second of the workload where its sizes go with a rate."""
    curve, prompt_len = request.cache_curve, float(case.workload.traffic.prompt_len.si)
    if request.cache_retention is not None:
        held = float(cache_working_set(1.0, prompt_len, request.reuse, request.cache_retention))
        return ReuseCurve("tokens", np.array([held]), np.array([request.reuse]), requests_per_s=1.0)
    if curve is None or curve.token_rate is None:
        return curve
    return curve.for_requests(curve.token_rate / prompt_len)


def _in_a_node(case: Case, curve: ReuseCurve, node: PoolNode) -> Numeric:
    """What one node holds, in the unit of the curve."""
    blocks = node.capacity_tokens / case.engine.constants.cache_block_tokens.si
    return {"bytes": node.capacity_bytes, "tokens": node.capacity_tokens, "blocks": blocks}[curve.unit]


def _of_curve(
    case: Case, curve: ReuseCurve, node: PoolNode, limit: int, chosen: tuple[float, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hit rates of a curve with the nodes that each takes, at any rate and for each request per second."""
    in_a_node, asked = _in_a_node(case, curve, node), curve.requests_per_s
    if asked is None:
        nodes = np.arange(1.0, limit + 1)
        reuse, first = np.unique(np.minimum(curve.at(nodes * in_a_node), MOST_REUSE), return_index=True)
        return reuse, nodes[first], np.zeros(len(reuse))
    highest = min(float(curve.hit_rate[-1]), MOST_REUSE)
    reuse = np.array(chosen) if chosen else whole_percents()
    reuse = np.append(reuse[(reuse > 0) & (reuse < highest)], highest)
    return reuse, np.zeros(len(reuse)), curve.size_for(reuse) / in_a_node / asked
