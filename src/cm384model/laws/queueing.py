"""Waiting for a prefill instance: single requests by the classical formulas, prompts in batches."""

from __future__ import annotations

import numpy as np

from cm384model.numeric import Numeric, erlang_b, law


@law
def utilisation(arrival_rate: Numeric, service_time: Numeric, servers: Numeric) -> Numeric:
    r"""Share of the time that a server of the pool works [1]_.

    .. math::
        \rho = \frac{\lambda\,S}{c}

    Parameters
    ----------
    arrival_rate : numeric
        Arrivals at the pool, :math:`\lambda`. [1/s]
    service_time : numeric
        Mean time one server spends on one arrival, :math:`S`. [s]
    servers : numeric
        Servers, :math:`c`. [-]

    Returns
    -------
    utilisation : numeric
        Busy share, :math:`\rho`. [-]

    Notes
    -----
    Valid for any traffic; at 1 and above there is no steady state. For servers that take up to
    :math:`k` prompts at once the service time of a prompt is that of a full batch over :math:`k`.

    Examples
    --------
    >>> f"{utilisation(8.0, 0.5, 5):.2f}"
    '0.80'

    References
    ----------
    .. [1] tijms2003.
    """
    return arrival_rate * service_time / servers


@law
def wait_chance(offered_load: Numeric, servers: Numeric) -> Numeric:
    r"""Chance that a Poisson arrival finds every server busy: Erlang's C formula.

    Computed from Erlang's B by the recurrence over servers, which has only positive terms and so
    loses no digit at hundreds of servers [1]_.

    .. math::
        B_0 = 1, \quad B_j = \frac{A\,B_{j-1}}{j + A\,B_{j-1}}, \quad
        C = \frac{B_c}{1 - \rho\,(1 - B_c)}, \quad \rho = \frac{A}{c}

    Parameters
    ----------
    offered_load : numeric
        Arrival rate times mean service time, :math:`A`. [-]
    servers : numeric
        Servers, :math:`c`, a whole number. [-]

    Returns
    -------
    chance : numeric
        Chance to wait, :math:`C`; 1 if the load is beyond the servers. [-]

    Notes
    -----
    Valid for Poisson arrivals and exponential service; within a few per cent for any service.

    Examples
    --------
    >>> f"{wait_chance(4.0, 5):.4f}"
    '0.5541'

    References
    ----------
    .. [1] erlang1917; jagerman1974.
    """
    return _erlang_c(offered_load, servers)


@law
def wait_mmc(arrival_rate: Numeric, service_time: Numeric, servers: Numeric) -> Numeric:
    r"""Mean wait with Poisson arrivals and exponential service: M/M/c.

    .. math::
        W = \frac{C(c, \lambda S)\,S}{c\,(1 - \rho)}, \quad \rho = \frac{\lambda S}{c}

    Parameters
    ----------
    arrival_rate : numeric
        Arrivals at the pool, :math:`\lambda`. [1/s]
    service_time : numeric
        Mean service time, :math:`S`. [s]
    servers : numeric
        Servers, :math:`c`, a whole number. [-]

    Returns
    -------
    wait : numeric
        Mean time from arrival to start of service; infinite where :math:`\rho \ge 1`. [s]

    Notes
    -----
    Valid, and exact, for Poisson arrivals and exponential service [1]_.

    Examples
    --------
    >>> f"{wait_mmc(8.0, 0.5, 5):.4f}"
    '0.2771'

    References
    ----------
    .. [1] erlang1917; tijms2003.
    """
    return _wait_mmc(arrival_rate, service_time, servers)


@law
def wait_mdc(arrival_rate: Numeric, service_time: Numeric, servers: Numeric) -> Numeric:
    r"""Mean wait with Poisson arrivals and constant service: M/D/c after Cosmetatos.

    Half the wait of M/M/c is exact for one server and for heavy traffic; at light traffic the
    servers finish one after the other, and the factor grows [1]_.

    .. math::
        W = \frac{1}{2} \left(1 + \frac{(1 - \rho)(c - 1)(\sqrt{4 + 5 c} - 2)}{16\,\rho\,c}\right)
        W_{M/M/c}

    Parameters
    ----------
    arrival_rate : numeric
        Arrivals at the pool, :math:`\lambda`. [1/s]
    service_time : numeric
        Constant service time, :math:`S`. [s]
    servers : numeric
        Servers, :math:`c`, a whole number. [-]

    Returns
    -------
    wait : numeric
        Mean time from arrival to start of service; infinite where :math:`\rho \ge 1`. [s]

    Notes
    -----
    Valid at any utilisation for the mean time to the end of service, which is within 2 % of
    simulation; the wait alone is too long at light load, where it is negligible. Exact for one
    server.

    Examples
    --------
    >>> f"{wait_mdc(8.0, 0.5, 5):.4f}"
    '0.1444'

    References
    ----------
    .. [1] cosmetatos1975.
    """
    c, rho = servers, arrival_rate * service_time / servers
    excess = (1 - rho) * (c - 1) * (np.sqrt(4 + (4 + 1) * c) - 2) / (4 * 4 * rho * c)
    return 0.5 * (1 + np.maximum(excess, 0)) * _wait_mmc(arrival_rate, service_time, servers)


@law
def wait_allen_cunneen(
    arrival_rate: Numeric,
    service_time: Numeric,
    servers: Numeric,
    *,
    arrival_scv: Numeric,
    service_scv: Numeric,
) -> Numeric:
    r"""Mean wait with any arrivals and any service: GI/G/c after Allen and Cunneen.

    The wait of M/M/c times the mean of the two variabilities [1]_.

    .. math::
        W = \frac{c_a^2 + c_s^2}{2}\,W_{M/M/c}

    Parameters
    ----------
    arrival_rate : numeric
        Arrivals at the pool, :math:`\lambda`. [1/s]
    service_time : numeric
        Mean service time, :math:`S`. [s]
    servers : numeric
        Servers, :math:`c`, a whole number. [-]
    arrival_scv : numeric
        Squared coefficient of variation of the times between arrivals, :math:`c_a^2`; Poisson
        is 1. [-]
    service_scv : numeric
        Squared coefficient of variation of the service time, :math:`c_s^2`; constant is 0. [-]

    Returns
    -------
    wait : numeric
        Mean time from arrival to start of service; infinite where :math:`\rho \ge 1`. [s]

    Notes
    -----
    Valid for renewal arrivals: times between arrivals independent of each other. It is exact
    for M/M/c and M/G/1. A rate that drifts over minutes is not in the coefficient of variation:
    there the wait is larger than this law says.

    Examples
    --------
    >>> f"{wait_allen_cunneen(8.0, 0.5, 5, arrival_scv=1.2, service_scv=0.0):.4f}"
    '0.1662'

    References
    ----------
    .. [1] allen1990; whitt1993.
    """
    return 0.5 * (arrival_scv + service_scv) * _wait_mmc(arrival_rate, service_time, servers)


@law
def wait_kingman(
    arrival_rate: Numeric, service_time: Numeric, *, arrival_scv: Numeric, service_scv: Numeric
) -> Numeric:
    r"""Mean wait for one server with any arrivals and any service: GI/G/1 after Kingman.

    .. math::
        W = \frac{\rho}{1 - \rho}\,\frac{c_a^2 + c_s^2}{2}\,S, \quad \rho = \lambda S

    Parameters
    ----------
    arrival_rate : numeric
        Arrivals, :math:`\lambda`. [1/s]
    service_time : numeric
        Mean service time, :math:`S`. [s]
    arrival_scv : numeric
        Squared coefficient of variation of the times between arrivals, :math:`c_a^2`. [-]
    service_scv : numeric
        Squared coefficient of variation of the service time, :math:`c_s^2`. [-]

    Returns
    -------
    wait : numeric
        Mean time from arrival to start of service; infinite where :math:`\rho \ge 1`. [s]

    Notes
    -----
    Valid for renewal arrivals in heavy traffic [1]_; exact at any load for Poisson arrivals.

    Examples
    --------
    >>> f"{wait_kingman(1.6, 0.5, arrival_scv=1.0, service_scv=0.0):.4f}"
    '1.0000'

    References
    ----------
    .. [1] kingman1961.
    """
    rho = arrival_rate * service_time
    mean = rho / _slack(rho) * 0.5 * (arrival_scv + service_scv) * service_time
    return np.where(rho < 1, mean, np.inf)


@law
def wait_percentile(mean_wait: Numeric, chance: Numeric, *, share: Numeric) -> Numeric:
    r"""Percentile of the wait when those who wait do so for an exponential time.

    .. math::
        P(W > t) = C\,e^{-C t / \bar{W}} \quad\Rightarrow\quad
        t = \frac{\bar{W}}{C} \ln \max\left(1, \frac{C}{1 - p}\right)

    Parameters
    ----------
    mean_wait : numeric
        Mean wait of all arrivals, :math:`\bar{W}`. [s]
    chance : numeric
        Chance to wait at all, :math:`C`. [-]
    share : numeric
        Share of the arrivals that wait no longer, :math:`p`. [-]

    Returns
    -------
    wait : numeric
        The percentile; 0 if more than that share does not wait. [s]

    Notes
    -----
    Valid for ``0 <= share < 1``; exact for M/M/c, and close wherever the tail of the wait is
    exponential from the start [1]_: single servings with utilisation above one half. For prompts
    in batches use `greedy_batch_ttft_percentile`.

    Examples
    --------
    >>> f"{wait_percentile(0.277, 0.5541, share=0.95):.4f}"
    '1.2024'

    References
    ----------
    .. [1] tijms2003.
    """
    return mean_wait / chance * np.log(np.maximum(chance / (1 - share), 1))


@law
def full_batch_wait(
    arrival_rate: Numeric,
    instances: Numeric,
    batch_limit: Numeric,
    full_batch_time: Numeric,
    *,
    arrival_scv: Numeric,
) -> Numeric:
    r"""Mean wait of a prompt when an instance starts full batches only.

    A prompt waits until its batch has formed, half of the others on average, and the batch
    then waits for an instance. Batches arrive with the regularity of a sum of :math:`k` gaps,
    and all take the same time [1]_.

    .. math::
        W = \frac{k - 1}{2 \lambda} + \frac{c_a^2}{2 k}\,W_{M/M/c}\left(\frac{\lambda}{k}, T_k\right)

    Parameters
    ----------
    arrival_rate : numeric
        Prompts that arrive at the queue, :math:`\lambda`. [1/s]
    instances : numeric
        Instances that serve the queue, :math:`c`, a whole number. [-]
    batch_limit : numeric
        Prompts of a full batch, :math:`k`. [-]
    full_batch_time : numeric
        Time of a full batch, :math:`T_k`. [s]
    arrival_scv : numeric
        Squared coefficient of variation of the times between arrivals, :math:`c_a^2`. [-]

    Returns
    -------
    wait : numeric
        Mean time from arrival to start of the batch; infinite at utilisation 1 and above. [s]

    Notes
    -----
    Valid for renewal arrivals. Engines do not serve like this: it is the bound that shows what
    serving at once (`greedy_batch_wait`) saves at light load.

    Examples
    --------
    >>> f"{full_batch_wait(8.0, 2, 4, 0.8, arrival_scv=2.0):.4f}"
    '0.5431'

    References
    ----------
    .. [1] chaudhry1983; allen1990.
    """
    k = batch_limit
    queued = 0.5 * arrival_scv / k * _wait_mmc(arrival_rate / k, full_batch_time, instances)
    return (k - 1) / (2 * arrival_rate) + queued


def _erlang_c(offered_load: Numeric, servers: Numeric) -> Numeric:
    """Erlang's C; 1 where the load is beyond the servers."""
    blocking = erlang_b(offered_load, servers)
    rho = np.minimum(offered_load / servers, 1)
    return np.divide(blocking, 1 - rho * (1 - blocking))


def _slack(rho: Numeric) -> Numeric:
    """Idle share where there is one, and 1 where there is none."""
    return np.where(rho < 1, 1 - rho, 1)


def _wait_mmc(arrival_rate: Numeric, service_time: Numeric, servers: Numeric) -> Numeric:
    """Mean wait of M/M/c; infinite where there is no steady state."""
    rho = arrival_rate * service_time / servers
    chance = _erlang_c(arrival_rate * service_time, servers)
    return np.where(rho < 1, chance * service_time / (servers * _slack(rho)), np.inf)
