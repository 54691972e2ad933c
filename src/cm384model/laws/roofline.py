"""The roofline of one operator, and the time of one launch of it."""

from __future__ import annotations

import numpy as np

from cm384model.numeric import Numeric, law


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
