"""Prefill and decode on dies of their own: how a run of a fixed number of requests passes both."""

from __future__ import annotations

import numpy as np

from cm384model.numeric import Numeric, law


@law
def two_pool_run_time(
    prompts: Numeric,
    concurrency: Numeric,
    *,
    prefill_interval: Numeric,
    prefill_latency: Numeric,
    decode_time: Numeric,
    arrival_interval: Numeric,
) -> Numeric:
    r"""Time to serve a fixed number of equal requests by a prefill and a decode pool, to the very end.

    At most so many requests are in the system at once, and a request that ends makes room for
    the next. All of the first round wait for the prefill pool together; from then on requests come
    to it one by one, as they end. The slowest of prefill pool, loop and arrivals sets the
    pace [1]_.

    .. math::
        t = \max\left(N p + d,\; C p + \frac{N}{C} (l + d),\; N a + l + d\right)

    Parameters
    ----------
    prompts : numeric
        Requests of the run, :math:`N`. [-]
    concurrency : numeric
        Most requests in the system at once, :math:`C`. [-]
    prefill_interval : numeric
        Time between two prompts that leave a busy prefill pool, :math:`p`. [s]
    prefill_latency : numeric
        Time of a prompt in prefill that finds it idle, :math:`l`. [s]
    decode_time : numeric
        Time of a request in decode, :math:`d`. [s]
    arrival_interval : numeric
        Time between two requests that the client sends, :math:`a`; 0 if it sends all at once. [s]

    Returns
    -------
    time : numeric
        Time of the whole run. [s]

    Notes
    -----
    Valid for ``prompts >= concurrency`` and requests of equal lengths. The transfer of the KV cache
    counts as part of the latency.

    Examples
    --------
    >>> pools = dict(prefill_interval=0.05, prefill_latency=0.4, decode_time=30.0, arrival_interval=0.0)
    >>> f"{two_pool_run_time(2400, 700, **pools):.1f}"
    '150.0'
    >>> f"{two_pool_run_time(128, 32, **pools):.1f}"
    '123.2'

    References
    ----------
    .. [1] denning1978, asymptotic bounds; vllmbench2025.
    """
    loop = concurrency * prefill_interval + prompts / concurrency * (prefill_latency + decode_time)
    pools = np.maximum(prompts * prefill_interval + decode_time, loop)
    return np.maximum(pools, prompts * arrival_interval + prefill_latency + decode_time)
