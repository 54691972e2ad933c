"""Instances that take whatever waits, up to a full batch: the exact balance of such a queue."""

from __future__ import annotations

import numpy as np

from cm384model.numeric import Numeric, erlang_b, law


@law
def greedy_batch_wait(
    arrival_rate: Numeric,
    instances: Numeric,
    batch_limit: Numeric,
    first_prompt_time: Numeric,
    full_batch_time: Numeric,
    *,
    arrival_scv: Numeric,
) -> Numeric:
    r"""Mean wait of a prompt for an instance that takes all that waits, up to a limit.

    A prompt that finds an instance idle starts at once. Otherwise it waits for the next
    instance to become free, and longer if more wait than a batch holds [1]_:

    .. math::
        W = C \left(\frac{E[G^2]}{2 E[G]} + \frac{\ell\,T_k}{\lambda\,c\,E[G]}\right), \quad
        2 k (1 - \rho)\,\ell = c_a^2 \lambda E[G] + \lambda^2 E[G^2] - E[\min(Q, k)^2]

    with :math:`G` the time between two instances becoming free while none idles, :math:`Q` the
    prompts that wait then and :math:`\ell` the mean of those left behind; for one instance
    :math:`G` is the time of a batch and both equations are exact with Poisson arrivals. What
    closes them is the law of :math:`Q`: of Katz's family [2]_, with mean and variance such that
    the prompts that are taken are the ones that arrive. The three equations are solved by
    Newton's method, vectorised, from the solution for no batch limit.

    Parameters
    ----------
    arrival_rate : numeric
        Prompts that arrive at the queue, :math:`\lambda`. [1/s]
    instances : numeric
        Instances that serve the queue, :math:`c`, a whole number. [-]
    batch_limit : numeric
        Most prompts of a batch, :math:`k`, a whole number. [-]
    first_prompt_time : numeric
        Time of a batch of one prompt, :math:`T_1`. [s]
    full_batch_time : numeric
        Time of a batch of :math:`k` prompts, :math:`T_k`; linear between. [s]
    arrival_scv : numeric
        Squared coefficient of variation of the times between arrivals, :math:`c_a^2`. [-]

    Returns
    -------
    wait : numeric
        Mean time from arrival to start of the batch; infinite at utilisation 1 and above. [s]

    Notes
    -----
    Valid for ``arrival_rate > 0``, ``1 <= batch_limit``, ``T_1 <= T_k``, equal prompts,
    ``1 <= arrival_scv <= 5`` and utilisation up to 0.95. Accuracy: see `greedy_batch_ttft`.
    A solution takes about 0.2 ms: it is for pools, not for grids of a million.

    A pool whose router assigns a prompt on arrival is ``instances = 1`` at the rate of one
    instance, with :math:`1 + (c_a^2 - 1) / n` of the pool's :math:`c_a^2` if it draws the
    instance at random.

    Examples
    --------
    >>> f"{greedy_batch_wait(27.2, 2, 16, 0.25, 1.0, arrival_scv=2.0):.4f}"
    '0.2328'

    References
    ----------
    .. [1] bailey1954; chaudhry1983.
    .. [2] katz1965.
    """
    queue = _greedy_queue(
        arrival_rate, instances, batch_limit, first_prompt_time, full_batch_time, arrival_scv
    )
    return np.where(queue["stable"], queue["wait"], np.inf)


@law
def greedy_batch_ttft(
    arrival_rate: Numeric,
    instances: Numeric,
    batch_limit: Numeric,
    first_prompt_time: Numeric,
    full_batch_time: Numeric,
    *,
    arrival_scv: Numeric,
) -> Numeric:
    r"""Mean time from a prompt's arrival to the end of its batch, with greedy batches.

    The wait of `greedy_batch_wait` and the time of the batch, which a prompt sees larger than
    the mean batch because large batches hold more prompts [1]_.

    .. math::
        T = W + T_1 + \frac{T_k - T_1}{k - 1} \left(\frac{E[N^2]}{E[N]} - 1\right)

    Parameters
    ----------
    arrival_rate : numeric
        Prompts that arrive at the queue, :math:`\lambda`. [1/s]
    instances : numeric
        Instances that serve the queue, :math:`c`, a whole number. [-]
    batch_limit : numeric
        Most prompts of a batch, :math:`k`, a whole number. [-]
    first_prompt_time : numeric
        Time of a batch of one prompt, :math:`T_1`. [s]
    full_batch_time : numeric
        Time of a batch of :math:`k` prompts, :math:`T_k`; linear between. [s]
    arrival_scv : numeric
        Squared coefficient of variation of the times between arrivals, :math:`c_a^2`. [-]

    Returns
    -------
    ttft : numeric
        Mean time from arrival to end of the batch; infinite at utilisation 1 and above. [s]

    Notes
    -----
    Valid as `greedy_batch_wait`. With Poisson arrivals up to utilisation 0.85, for one instance
    (and so for any pool that assigns prompts on arrival): within 3 % of simulation.

    Several instances at one queue do not stay evenly spaced: an instance that comes late finds
    more, takes longer, and the next one finds little, as buses bunch [2]_. The gaps here are
    those of independent instances. For up to 20 instances that is within 5 % for
    ``batch_limit = 1``; within 16 % where the fixed part of a batch's time is at most 0.4 of a
    full one (within 7 % if it is also at least 0.1 and there are 5 instances at most); and too
    low, by up to 30 %, for many instances whose batches take nearly the same time at any size.
    Every instance with a queue of its own is an upper bound, to 3 %.

    Examples
    --------
    >>> f"{greedy_batch_ttft(27.2, 2, 16, 0.25, 1.0, arrival_scv=2.0):.4f}"
    '1.0493'

    References
    ----------
    .. [1] chaudhry1983.
    .. [2] newell1964.
    """
    queue = _greedy_queue(
        arrival_rate, instances, batch_limit, first_prompt_time, full_batch_time, arrival_scv
    )
    time = queue["wait"] + queue["fixed"] + queue["per_prompt"] * queue["size_square"] / queue["size"]
    return np.where(queue["stable"], time, np.inf)


@law
def greedy_batch_ttft_percentile(
    arrival_rate: Numeric,
    instances: Numeric,
    batch_limit: Numeric,
    first_prompt_time: Numeric,
    full_batch_time: Numeric,
    *,
    arrival_scv: Numeric,
    share: Numeric,
) -> Numeric:
    r"""Percentile of the time from a prompt's arrival to the end of its batch, with greedy batches.

    A mixture over the size of the prompt's batch: who is in a batch of :math:`n` arrived evenly
    over the time :math:`H_n` since the instance before became free; in full batches some were
    left behind, with an exponential tail whose rate :math:`\eta` is that of bulk service [1]_.

    .. math::
        P(T > t) = \frac{1}{E[N]} \left( \omega\,[t < T_1] + \sum_{n<k} n\,p_n U_n
        + k\,p_k \left( (1 - \delta) U_k + \delta\,e^{-\eta V} \right) \right)

    .. math::
        U_n = \left(1 - \frac{t - T_n}{H_n}\right)_+^c, \quad V = (t - T_k - H_k / c)_+

    .. math::
        \ln(1 + \eta / \lambda) = \rho\,\eta / \lambda

    with :math:`\omega` the prompts per batch that find an instance idle and :math:`\delta` such
    that the mean wait is that of `greedy_batch_wait`.

    Parameters
    ----------
    arrival_rate : numeric
        Prompts that arrive at the queue, :math:`\lambda`. [1/s]
    instances : numeric
        Instances that serve the queue, :math:`c`, a whole number. [-]
    batch_limit : numeric
        Most prompts of a batch, :math:`k`, a whole number. [-]
    first_prompt_time : numeric
        Time of a batch of one prompt, :math:`T_1`. [s]
    full_batch_time : numeric
        Time of a batch of :math:`k` prompts, :math:`T_k`; linear between. [s]
    arrival_scv : numeric
        Squared coefficient of variation of the times between arrivals, :math:`c_a^2`. [-]
    share : numeric
        Share of the prompts that take no longer, :math:`p`. [-]

    Returns
    -------
    ttft : numeric
        The percentile, by bisection; infinite at utilisation 1 and above. [s]

    Notes
    -----
    Valid as `greedy_batch_wait`, for ``0 < share < 1``. With Poisson arrivals up to utilisation
    0.85 the 95th percentile for one instance is within 8 % of simulation while
    :math:`T_1 \ge 0.1\,T_k`, and within 12 % without any fixed time. For several instances at
    one queue see `greedy_batch_ttft`: too low by up to 40 % where they bunch.

    Examples
    --------
    >>> f"{greedy_batch_ttft_percentile(27.2, 2, 16, 0.25, 1.0, arrival_scv=2.0, share=0.95):.3f}"
    '1.522'

    References
    ----------
    .. [1] chaudhry1983; tijms2003.
    """
    queue = _greedy_queue(
        arrival_rate, instances, batch_limit, first_prompt_time, full_batch_time, arrival_scv
    )
    return np.where(queue["stable"], _greedy_percentile(queue, share), np.inf)


def _katz(mean: Numeric, dispersion: Numeric, limit: Numeric) -> Numeric:
    """Chances of 0, 1, ... below the limit, on a last axis, and the chance of the limit or more.

    Katz's family has the ratio of successive chances linear in the count over the count: Poisson
    at a dispersion (variance over mean) of 1, binomial below, negative binomial above.
    """
    mean, dispersion, limit = mean[..., None], dispersion[..., None], limit[..., None]
    count = np.arange(int(np.max(limit)))
    excess = np.where(dispersion == 1, np.finfo(float).eps, dispersion - 1)
    steps = (mean + excess * count) / (dispersion * (count + 1))
    logs = np.cumsum(np.log(np.maximum(steps, np.finfo(float).tiny)), -1)
    none = -mean * np.log1p(excess) / excess
    chances = np.exp(none + np.concatenate([np.zeros_like(steps[..., :1]), logs[..., :-1]], -1))
    chances = np.where(count < limit, chances, 0)
    return chances, np.maximum(1 - chances.sum(-1), 0)


def _balance(
    logs: Numeric, case: dict[str, Numeric], evenness: Numeric
) -> tuple[Numeric, dict[str, Numeric]]:
    """Residuals of the three equations of a greedy queue, and what they are made of.

    Unknown are the logarithms of the mean and dispersion of the prompts that wait when an
    instance becomes free, and of the mean time of a batch. ``evenness`` is the squared
    coefficient of variation of the gaps between instances.
    """
    rate, c, k, fixed, slope = (case[name] for name in ("rate", "instances", "limit", "fixed", "per_prompt"))
    mean, dispersion, time = np.moveaxis(np.exp(logs), -1, 0)
    chances, full = _katz(mean, dispersion, k)
    count = np.arange(chances.shape[-1])
    taken = (count * chances).sum(-1) + k * full
    taken_square = (count**2 * chances).sum(-1) + k**2 * full
    blocking = erlang_b(rate * time, c)
    at_once = rate * time / c * chances[..., 0] * (1 - blocking) / blocking
    batches = 1 - chances[..., 0] + at_once
    size, size_square = (taken + at_once) / batches, (taken_square + at_once) / batches
    gap = time / c
    gap_square = (time**2 * (1 + evenness) + slope**2 * (size_square - size**2) / c**2) / c**2
    left = mean - taken
    arrived_square = case["scv"] * rate * gap + rate**2 * gap_square
    residuals = np.stack(
        [
            taken - rate * gap,
            (arrived_square - taken_square) / k - 2 * left * (1 - case["load"]),
            (fixed + slope * size - time) * rate,
        ],
        -1,
    )
    busy = blocking / (blocking + chances[..., 0] * (1 - blocking))
    parts = {"busy": busy, "left": left, "gap": gap, "gap_square": gap_square, "time": time}
    parts |= {"size": size, "size_square": size_square, "chances": chances, "full": full}
    return residuals, parts | {"prompts": taken + at_once, "at_once": at_once}


def _solve_balance(case: dict[str, Numeric], evenness: Numeric) -> dict[str, Numeric]:
    """The greedy queue in balance: Newton's method in logarithms, steps of a factor 1.6 at most.

    It starts from the batches that no limit cuts and from the queue of heavy traffic behind them.
    """
    rate, c, k, fixed, slope = (case[name] for name in ("rate", "instances", "limit", "fixed", "per_prompt"))
    free = rate * fixed / np.maximum(c - rate * slope, rate * fixed / k)
    time = fixed + slope * np.clip(free, 1, k)
    behind = case["scv"] * case["load"] / (2 * (1 - case["load"])) * np.clip(free, 1, k) / k
    logs = np.log(np.stack([rate * time / c + behind, case["scv"] + behind, time], -1))
    step = np.cbrt(np.finfo(float).eps)
    for _ in range(4 * 4):
        residuals, _ = _balance(logs, case, evenness)
        x, y, z = ((_balance(logs + step * axis, case, evenness)[0] - residuals) / step for axis in np.eye(3))
        minors = np.stack([np.cross(y, z), np.cross(z, x), np.cross(x, y)], -2)
        volume = (x * minors[..., 0, :]).sum(-1)[..., None]
        move = -(minors * residuals[..., None, :]).sum(-1) / np.where(volume == 0, 1, volume)
        logs = logs + move * 0.5 / np.maximum(np.abs(move).max(-1, keepdims=True), 0.5)
    _, parts = _balance(logs, case, evenness)
    return parts


def _greedy_queue(
    arrival_rate: Numeric,
    instances: Numeric,
    batch_limit: Numeric,
    first_prompt_time: Numeric,
    full_batch_time: Numeric,
    arrival_scv: Numeric,
) -> dict[str, Numeric]:
    """A greedy queue in balance, with its mean wait; where it is not stable, at half its load.

    Who is left behind waits for whole rounds of all instances, and a round takes the same time
    however uneven the gaps in it are: that part is from the balance with even gaps.
    """
    rate, c, k, first, last, scv = (
        np.asarray(operand, float)
        for operand in np.broadcast_arrays(
            arrival_rate, instances, batch_limit, first_prompt_time, full_batch_time, arrival_scv
        )
    )
    load = rate * last / (c * k)
    stable = load < 1
    rate, load = np.where(stable, rate, 0.5 * rate / load), np.where(stable, load, 0.5)
    slope = (last - first) / np.maximum(k - 1, 1)
    case = {"rate": rate, "instances": c, "limit": k, "fixed": first - slope, "per_prompt": slope}
    case |= {"load": load, "scv": scv, "stable": stable}
    queue = case | _solve_balance(case, (c - 1) / (c + 1))
    left = _solve_balance(case, np.zeros_like(c))["left"] if np.max(c) > 1 else queue["left"]
    residual = 0.5 * queue["gap_square"] / queue["gap"]
    wait = queue["busy"] * (residual + left * last / (c * rate * queue["gap"]))
    return queue | {"wait": wait}


def _greedy_percentile(queue: dict[str, Numeric], share: Numeric) -> Numeric:
    """Bisection of the mixture of `greedy_batch_ttft_percentile`."""
    rate, c, k, fixed, slope = (queue[name] for name in ("rate", "instances", "limit", "fixed", "per_prompt"))
    load, size, prompts = queue["load"], queue["size"], queue["prompts"]
    count = np.minimum(np.arange(queue["chances"].shape[-1]), k[..., None])
    drift = rate * (slope / c) ** 2
    since = queue["time"][..., None] + drift[..., None] * (count - size[..., None])
    since = np.maximum(since, (fixed + slope)[..., None])
    since_full = np.maximum(queue["time"] + drift * (k - size), fixed + slope)
    part = count * queue["chances"] / prompts[..., None]
    full, at_once = k * queue["full"] / prompts, queue["at_once"] / prompts
    decay = 1 / load**2 - 1
    for _ in range(4 * 2):
        decay = decay - (np.log1p(decay) - load * decay) / (1 / (1 + decay) - load)
    tail = 1 / (rate * decay)
    even = since_full / (c + 1)
    full_wait = (queue["wait"] - (part * since).sum(-1) / (c + 1)) / np.maximum(full, np.finfo(float).eps)
    behind = np.clip((full_wait - even) / (since_full / c + tail - even), 0, 1)
    last = fixed + slope * k
    low, high = 0 * last, last + since_full - tail * np.log(0.5 * (1 - share))
    exponent = c[..., None]
    for _ in range(4 * 4 * 3):
        time = 0.5 * (low + high)
        over = time[..., None] - (fixed[..., None] + slope[..., None] * count)
        longer = (part * np.clip(1 - over / since, 0, 1) ** exponent).sum(-1) + at_once * (
            time < fixed + slope
        )
        spread = (1 - behind) * np.clip(1 - (time - last) / since_full, 0, 1) ** c
        spread = spread + behind * np.exp(-np.maximum(time - last - since_full / c, 0) / tail)
        too_early = longer + full * spread > 1 - share
        low, high = np.where(too_early, time, low), np.where(too_early, high, time)
    return 0.5 * (low + high)
