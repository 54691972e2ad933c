"""A queue whose arrival rate drifts: what one interval hands to the next, as a fluid."""

from __future__ import annotations

import numpy as np

from cm384model.numeric import Numeric, law


@law
def fluid_backlog(backlog: Numeric, arrival_rate: Numeric, capacity: Numeric, interval: Numeric) -> Numeric:
    r"""Requests left over at the end of an interval of one arrival rate.

    What arrives beyond the capacity stays, what is free works it off [1]_.

    .. math::
        B' = (B + (\lambda - \mu)\,\Delta)_+

    Parameters
    ----------
    backlog : numeric
        Requests left over by the interval before, :math:`B`. [-]
    arrival_rate : numeric
        Requests that arrive, :math:`\lambda`. [1/s]
    capacity : numeric
        Requests that full pools serve, :math:`\mu`. [1/s]
    interval : numeric
        Length of the interval, :math:`\Delta`. [s]

    Returns
    -------
    backlog : numeric
        Requests left over, :math:`B'`. [-]

    Notes
    -----
    Valid where rates change slowly against the time of a batch. What waits at random while the
    capacity suffices is not in it: the steady state has that.

    Examples
    --------
    >>> float(fluid_backlog(40.0, 6.0, 5.0, 20.0))
    60.0

    References
    ----------
    .. [1] newell1982.
    """
    return np.maximum(backlog + (arrival_rate - capacity) * interval, 0.0)


@law
def fluid_wait(backlog: Numeric, arrival_rate: Numeric, capacity: Numeric, interval: Numeric) -> Numeric:
    r"""Mean time that requests of an interval wait for the backlog in front of them.

    The backlog is linear in time until it is gone [1]_.

    .. math::
        W = \frac{B + B'}{2 \mu} \min\left(1, \frac{B}{(\mu - \lambda)_+\,\Delta}\right)

    Parameters
    ----------
    backlog : numeric
        Requests left over by the interval before, :math:`B`. [-]
    arrival_rate : numeric
        Requests that arrive, :math:`\lambda`. [1/s]
    capacity : numeric
        Requests that full pools serve, :math:`\mu`. [1/s]
    interval : numeric
        Length of the interval, :math:`\Delta`. [s]

    Returns
    -------
    wait : numeric
        Mean wait of the requests that arrive in it. [s]

    Notes
    -----
    Valid as `fluid_backlog`, which gives :math:`B'`.

    Examples
    --------
    >>> float(fluid_wait(40.0, 6.0, 5.0, 20.0)), float(fluid_wait(40.0, 1.0, 5.0, 20.0))
    (10.0, 2.0)

    References
    ----------
    .. [1] newell1982.
    """
    after = fluid_backlog(backlog, arrival_rate, capacity, interval)
    worked_off = np.maximum(capacity - arrival_rate, 0) * interval
    share = np.divide(backlog, np.maximum(worked_off, backlog + np.finfo(float).tiny))
    return (backlog + after) / (2 * capacity) * np.where(worked_off > 0, share, 1)
