"""What the pools are chosen from, what a combination must keep, and combinations as columns."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from cm384model.numeric import Numeric
from cm384model.planning.request import Request
from cm384model.planning.walk import Options
from cm384model.prediction.serving import drifting_delay, prefill_delay, prefill_delay_p95


@dataclass(frozen=True)
class Pools:
    """Combinations of a decode option, a prefill option and instance counts, as columns.

    ``decode`` and ``prefill`` are rows of the options; ``rate`` is served requests per second.
    """

    decode: np.ndarray
    decode_instances: np.ndarray
    prefill: np.ndarray
    prefill_instances: np.ndarray
    rate: np.ndarray
    tpot: np.ndarray
    npus: np.ndarray
    ttft: np.ndarray

    def __len__(self) -> int:
        return len(self.rate)

    def take(self, rows: np.ndarray) -> Pools:
        """Some of the combinations."""
        return Pools(*(column[rows] for column in vars(self).values()))

    @staticmethod
    def joined(parts: list[Pools]) -> Pools:
        """One set of combinations from several, or from none."""
        names = [column.name for column in fields(Pools)]
        return Pools(*(np.concatenate([np.zeros(0), *(vars(part)[n] for part in parts)]) for n in names))


@dataclass(frozen=True)
class Problem:
    """The options of both phases and what a combination must keep."""

    request: Request
    npus: int
    output_len: float
    decode: Options
    prefill: Options

    def budget(self, rows: np.ndarray) -> np.ndarray:
        """What is left of TTFT for queueing and prefill beside each decode option. [s]"""
        slo, decode = self.request.slo, self.decode
        after = decode.transfer[rows] + decode.delay[rows]
        limit = np.minimum(slo.ttft, slo.e2e - (self.output_len - 1) * decode.tpot[rows])
        left: np.ndarray = limit - after
        return left

    def most_rate(self, rows: np.ndarray) -> np.ndarray:
        """Requests per second that the limit on concurrency allows, by Little's law. [1/s]"""
        most: np.ndarray = self.request.max_concurrency / (self.output_len * self.decode.tpot[rows])
        return most

    def prefill_delay(self, rate: Numeric, option: np.ndarray, instances: Numeric) -> np.ndarray:
        """Mean queueing and prefill time of a pool at a rate, infinite above what its cache carries. [s]"""
        p = self.prefill
        delay: np.ndarray = prefill_delay(
            rate,
            instances=instances,
            **self._batches(option),
        )
        return np.where(rate <= p.most[option] * (1 + 1e-12), delay - p.spared[option], np.inf)

    def ttft_p95(self, pools: Pools) -> np.ndarray:
        """95th percentile of TTFT of each combination. [s]"""
        option = pools.prefill.astype(int)
        delay = prefill_delay_p95(
            pools.rate,
            instances=pools.prefill_instances,
            **self._batches(option),
        )
        ttft: np.ndarray = delay + self._after_prefill(option, pools.decode.astype(int))
        return ttft

    def ttft_drifting(self, pools: Pools, row: int) -> float:
        """Mean TTFT of one combination where arrivals drift as in the request's trace. [s]"""
        option, trace = np.array(int(pools.prefill[row])), self.request.arrivals
        if trace is None:
            raise ValueError("a request without arrivals has no rate that drifts")
        rates = trace.rates(DRIFT_INTERVAL)
        delay = drifting_delay(
            rates / rates.mean() * pools.rate[row],
            DRIFT_INTERVAL,
            instances=pools.prefill_instances[row],
            **self._batches(option),
        )
        return float(delay + self._after_prefill(option, pools.decode[row].astype(int)))

    def _batches(self, option: np.ndarray) -> dict[str, np.ndarray]:
        """The batches of some prefill options, as the closed forms of the queue take them."""
        p = self.prefill
        return {"prompts": p.prompts[option], "full_time": p.delay[option], "alone_time": p.alone[option]}

    def _after_prefill(self, option: np.ndarray, decode: np.ndarray) -> np.ndarray:
        """From the end of prefill to the first token, less what prefill stores after its own. [s]"""
        d = self.decode
        after: np.ndarray = d.transfer[decode] + d.delay[decode] - self.prefill.spared[option]
        return after


DRIFT_INTERVAL = 20.0
"""Interval at which the rate of a trace is taken; on Azure's, 10 to 60 s give the same. [s]"""
