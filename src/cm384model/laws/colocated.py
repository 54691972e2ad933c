"""Prefill and decode on the same dies: how the two share the time of an instance."""

from __future__ import annotations

import numpy as np

from cm384model.numeric import Numeric, law


@law
def colocated_decode_time(
    prompts: Numeric, steps: Numeric, *, prefill_time: Numeric, step_time: Numeric, overlap: Numeric
) -> Numeric:
    r"""Time that a request spends in decode on an instance that prefills as well.

    While a request decodes its :math:`n` steps, each other place of the batch is refilled once, so
    the instance computes the prompts of all others meanwhile [1]_. What an iteration that mixes
    both hides of the shorter piece is :math:`\omega`; 0 where prefill stops decode.

    .. math::
        T = n\,t + p\,w - \omega \min(n\,t,\; p\,w)

    Parameters
    ----------
    prompts : numeric
        Prompts that the instance computes meanwhile, :math:`p`: its requests, less those that
        are prefilled together with this one. [-]
    steps : numeric
        Decode iterations of a request, :math:`n`. [-]
    prefill_time : numeric
        Time of the whole instance for one prompt, :math:`w`. [s]
    step_time : numeric
        Duration of a decode iteration without prefill beside it, :math:`t`. [s]
    overlap : numeric
        Share of the shorter piece that mixed iterations hide, :math:`\omega`. [-]

    Returns
    -------
    time : numeric
        Time from the first token of a request to its last. [s]

    Notes
    -----
    Valid in a closed loop: places never stay empty, prompts are prefilled as they come, and all
    requests are alike or :math:`n` and :math:`w` are means. The iteration is then inflated
    from :math:`t` to :math:`t / (1 - \phi)`, with :math:`\phi = p\,w / T` the share of the time
    that prefill takes.

    Examples
    --------
    >>> f"{colocated_decode_time(63, 255, prefill_time=0.1, step_time=0.04, overlap=0.0):.1f}"
    '16.5'

    References
    ----------
    .. [1] sarathi2024, Sec. 3 (prefills stall the decodes of the batch).
    """
    decoding, filling = steps * step_time, prompts * prefill_time
    return decoding + filling - overlap * np.minimum(decoding, filling)


@law
def request_rate(requests: Numeric, time: Numeric) -> Numeric:
    r"""Requests that leave a system per second, by Little's law [1]_.

    .. math::
        X = \frac{b}{T}

    Parameters
    ----------
    requests : numeric
        Requests in the system at once, on average, :math:`b`. [-]
    time : numeric
        Time that each spends there, on average, :math:`T`. [s]

    Returns
    -------
    rate : numeric
        Requests per second. [1/s]

    Notes
    -----
    Valid for any part of a system in its steady state, whatever the order of service.

    Examples
    --------
    >>> f"{request_rate(64, 16.6):.3f}"
    '3.855'

    References
    ----------
    .. [1] little1961.
    """
    return np.divide(requests, time)


@law
def waves_time(prompts: Numeric, concurrency: Numeric, *, full_time: Numeric, last_time: Numeric) -> Numeric:
    r"""Time to serve a fixed number of equal requests, so many at once, to the very end.

    Requests of one length that start together end together, so a closed loop runs in waves. The
    start is part of a wave, and the tail is a last wave that is not full: what a benchmark of
    a fixed number of prompts reports includes both [1]_.

    .. math::
        t = \left\lfloor \frac{N}{C} \right\rfloor T_C
            + \left[N \bmod C > 0\right] T_{N \bmod C}

    Parameters
    ----------
    prompts : numeric
        Requests of the run, :math:`N`. [-]
    concurrency : numeric
        Most requests at once, :math:`C`. [-]
    full_time : numeric
        Time of a full wave, its prefills included, :math:`T_C`. [s]
    last_time : numeric
        Time of the wave of the requests that are left, :math:`T_{N \bmod C}`. [s]

    Returns
    -------
    time : numeric
        Time of the whole run. [s]

    Notes
    -----
    Valid for requests of equal lengths that are all there at the start. Where outputs differ in
    length slots drift apart: the run then takes :math:`T_C N / C` and a tail in which the batch
    drains, which is at most one :math:`T_C`.

    Examples
    --------
    >>> f"{waves_time(160, 64, full_time=16.6, last_time=12.0):.1f}"
    '45.2'

    References
    ----------
    .. [1] vllmbench2025.
    """
    return prompts // concurrency * full_time + (np.mod(prompts, concurrency) > 0) * last_time


@law
def wave_ttft(requests: Numeric, prefill_time: Numeric) -> Numeric:
    r"""Mean time to first token of requests that all arrive at once.

    They are prefilled one after the other before any of them decodes [1]_.

    .. math::
        \mathrm{TTFT} = \frac{b + 1}{2}\,w

    Parameters
    ----------
    requests : numeric
        Requests of the wave, :math:`b`. [-]
    prefill_time : numeric
        Time of the whole instance for one prompt, :math:`w`. [s]

    Returns
    -------
    ttft : numeric
        Mean time from the start of the wave to the first token of a request. [s]

    Notes
    -----
    Valid where prefill goes before decode and an instance computes one prompt at a time. What a
    request waits longer for its first token, it waits less in decode: time to the last token is
    that of the wave for all.

    Examples
    --------
    >>> f"{wave_ttft(64, 0.1):.2f}"
    '3.25'

    References
    ----------
    .. [1] sarathi2024, Sec. 3.
    """
    return (requests + 1) / 2 * prefill_time
