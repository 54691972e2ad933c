"""Two streams of work on one die."""

from __future__ import annotations

import numpy as np

from cm384model.numeric import Numeric, law


@law
def overlapped_time(first_time: Numeric, second_time: Numeric, *, overlap: Numeric) -> Numeric:
    r"""Time of two pieces of work of which one hides behind the other.

    A serial schedule (:math:`\omega = 0`) and full hiding (:math:`\omega = 1`)
    are the two ends of one number; which one holds is a property of the
    serving engine, so it is an operand and not a branch [1]_.

    .. math::
        t = a + b - \omega \min(a, b)

    Parameters
    ----------
    first_time : numeric
        Time of the first piece alone, :math:`a`. [s]
    second_time : numeric
        Time of the second piece alone, :math:`b`. [s]
    overlap : numeric
        Share of the shorter piece that is hidden, :math:`\omega`. [-]

    Returns
    -------
    time : numeric
        Time of both. [s]

    Notes
    -----
    Valid for ``0 <= overlap <= 1``. Slow-down of each piece by the presence of
    the other must already be in the operands.

    Examples
    --------
    >>> f"{overlapped_time(600e-6, 500e-6, overlap=0.5):.3e}"
    '8.500e-04'

    References
    ----------
    .. [1] zuo2025, Sec. 4.2.3.
    """
    return first_time + second_time - overlap * np.minimum(first_time, second_time)
