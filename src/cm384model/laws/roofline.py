"""The roofline of one operator, and the time of one launch of it."""

from __future__ import annotations

import numpy as np

from cm384model.numeric import Numeric, ceil_div, law


@law
def roofline_time(
    compute_time: Numeric,
    memory_time: Numeric,
    *,
    overlap: Numeric,
    launch_latency: Numeric,
) -> Numeric:
    r"""Time of one operator from its compute time and its memory time.

    The textbook roofline [1]_ hides the shorter of the two completely
    (:math:`\omega = 1`); a real kernel hides a share of it, because its first
    tile has to arrive before it computes and its last one has to leave.

    .. math::
        t = \alpha + \max(t_c, t_m) + (1 - \omega) \min(t_c, t_m)

    Parameters
    ----------
    compute_time : numeric
        Time of the arithmetic alone, :math:`t_c`. [s]
    memory_time : numeric
        Time of the traffic to device memory alone, :math:`t_m`. [s]
    overlap : numeric
        Share of the shorter time that hides behind the longer, :math:`\omega`. [-]
    launch_latency : numeric
        Start-up of one kernel, :math:`\alpha`. [s]

    Returns
    -------
    time : numeric
        Time from launch to completion. [s]

    Notes
    -----
    Valid for ``0 <= overlap <= 1``. Efficiencies belong to the two operands,
    not to this law.

    Examples
    --------
    >>> f"{roofline_time(20e-6, 50e-6, overlap=0.75, launch_latency=4e-6):.3e}"
    '5.900e-05'

    References
    ----------
    .. [1] williams2009.
    """
    return (
        launch_latency
        + np.maximum(compute_time, memory_time)
        + (1 - overlap) * np.minimum(compute_time, memory_time)
    )


@law
def busy_share(tasks: Numeric, cores: Numeric) -> Numeric:
    r"""Share of the cores that have work, when a task runs on one core and none is split.

    The tasks run in whole waves: one more than the cores takes as long as twice
    the cores [1]_.

    .. math::
        s = \frac{n}{c \lceil n / c \rceil}

    Parameters
    ----------
    tasks : numeric
        Tasks of equal length, :math:`n`. [-]
    cores : numeric
        Cores that take one task each, :math:`c`. [-]

    Returns
    -------
    share : numeric
        Mean over the waves. [-]

    Notes
    -----
    Valid for ``tasks > 0`` and ``cores > 0``. Sparse attention on the 910C takes a
    query token for a task: 3 and 24 tokens take 88 and 94 us, 27 take 155 us.

    Examples
    --------
    >>> f"{busy_share(8, 24):.4f}"
    '0.3333'
    >>> f"{busy_share(27, 24):.4f}"
    '0.5625'

    References
    ----------
    .. [1] aicnpu2026, SparseFlashAttention rows.
    """
    return tasks / (cores * ceil_div(tasks, cores))
