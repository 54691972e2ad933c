"""Streaming work of the vector cores, and what a share of the cores can stream."""

from __future__ import annotations

import numpy as np

from cm384model.numeric import Numeric, law


@law
def stream_time(
    rows: Numeric,
    row_bytes: Numeric,
    kernels: Numeric,
    *,
    bandwidth: Numeric,
    efficiency: Numeric,
    launch_latency: Numeric,
    core_latency: Numeric,
    cores: Numeric,
) -> Numeric:
    r"""Time of streaming kernels: norm, rotary embedding, quantisation, SwiGLU, gate.

    A vector kernel gives whole rows to cores. It costs a launch, a little more for
    every core that wakes up, and its traffic [1]_.

    .. math::
        t = k \left(\alpha + \delta \min(n, c)\right) + \frac{n\, m}{\eta \beta}

    Parameters
    ----------
    rows : numeric
        Token rows, :math:`n`. [-]
    row_bytes : numeric
        Bytes that all the kernels together read and write per row, :math:`m`. [B]
    kernels : numeric
        Kernels launched one after the other, :math:`k`. [-]
    bandwidth : numeric
        Peak bandwidth of device memory, per die, :math:`\beta`. [B/s]
    efficiency : numeric
        Share of the peak that a long stream reaches, :math:`\eta`. [-]
    launch_latency : numeric
        Start-up of one kernel, :math:`\alpha`. [s]
    core_latency : numeric
        Additional start-up per core in use, :math:`\delta`. [s]
    cores : numeric
        Vector cores in use, :math:`c`. [-]

    Returns
    -------
    time : numeric
        Time from the first launch to the last completion. [s]

    Notes
    -----
    Valid for kernels whose arithmetic hides behind their traffic, with rows of
    1 KB and more. Fitted to 19 kernels of one die [1]_ (1 to 4096 rows): launch
    3.3 us, 0.23 us per core of 48, efficiency 0.88; median error 17 %, left out
    25 %, worst 52 %; without the cost per core 30 % and 33 %. The kernels
    differ by that much among themselves (RMSNorm 21.7 us, with an addition before
    it 12.5 us, same rows). Scattered writes of short rows and sampling are not
    streams: they take 2 to 10 times as long.

    Examples
    --------
    >>> t = stream_time(
    ...     256,
    ...     49152,
    ...     1,
    ...     bandwidth=1600e9,
    ...     efficiency=0.88,
    ...     launch_latency=3.3e-6,
    ...     core_latency=0.23e-6,
    ...     cores=48,
    ... )
    >>> f"{t:.3e}"
    '2.328e-05'

    References
    ----------
    .. [1] aicnpu2026.
    """
    started = launch_latency + core_latency * np.minimum(rows, cores)
    return kernels * started + rows * row_bytes / (bandwidth * efficiency)


@law
def shared_bandwidth(bandwidth: Numeric, share: Numeric, *, exponent: Numeric) -> Numeric:
    r"""Bandwidth of device memory that a share of the cores can draw.

    Every core keeps a limited number of reads in flight, so half the cores draw
    less than the whole bandwidth, but more than half of it [1]_.

    .. math::
        \beta(s) = \beta\, s^{\gamma}

    Parameters
    ----------
    bandwidth : numeric
        Bandwidth that all cores together reach, per die, :math:`\beta`. [B/s]
    share : numeric
        Share of the cores in use, :math:`s`. [-]
    exponent : numeric
        0 when any share draws the whole bandwidth, 1 when the cores are the limit,
        :math:`\gamma`. [-]

    Returns
    -------
    bandwidth : numeric
        Bandwidth that the share reaches while the rest leaves the memory alone. [B/s]

    Notes
    -----
    Valid for ``0 < share <= 1``; measured at one half only. Six operators [1]_ slow
    by 1.23 to 1.57 on half the cores: behind a launch of 3 us an exponent of 0.43
    (0.36 to 0.81) puts four of them within 4 %, and the two that compute
    more (MLAProlog, batched matmul) within 20 %, too fast. Two streams that
    run at once share the bandwidth besides; that is not in this law.

    Examples
    --------
    >>> f"{shared_bandwidth(1600e9, 0.5, exponent=0.43):.4e}"
    '1.1876e+12'

    References
    ----------
    .. [1] cannrecipes2026, LongCat-Flash on 12 of 24 and on 24 cube cores.
    """
    return bandwidth * np.power(share, exponent)
