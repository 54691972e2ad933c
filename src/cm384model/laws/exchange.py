"""Exchange of tokens with the dies that hold their experts."""

from __future__ import annotations

import numpy as np

from cm384model.numeric import Numeric, law


@law
def distinct_destinations(ep: Numeric, destinations: Numeric) -> Numeric:
    r"""Expected number of different dies that the experts of one token sit on.

    Each of :math:`k` picks falls on any of :math:`E` dies with the same chance,
    so the number of dies hit saturates at :math:`k` as the group grows [1]_.

    .. math::
        D = E \left(1 - \left(1 - \frac{1}{E}\right)^k\right)

    Parameters
    ----------
    ep : numeric
        Dies of the expert-parallel group, :math:`E`. [-]
    destinations : numeric
        Experts that one token is sent to, :math:`k`. [-]

    Returns
    -------
    distinct : numeric
        Different dies hit, the own die included. [-]

    Notes
    -----
    Valid for ``ep >= 1`` and balanced, independent routing; group-limited
    routing hits fewer dies, sampling without replacement slightly more.

    Examples
    --------
    >>> f"{distinct_destinations(8, 8):.4f}"
    '5.2511'

    References
    ----------
    .. [1] deepseek2025, Sec. 2.1.2 (top-8 routing).
    """
    return ep * (1 - np.power(1 - 1 / ep, destinations))


@law
def exchange_bytes(tokens: Numeric, destinations: Numeric, message_bytes: Numeric, ep: Numeric) -> Numeric:
    r"""Bytes that leave one die in a dispatch or a combine, one message per expert.

    .. math::
        B = N\,k\,m \left(1 - \frac{1}{E}\right)

    Parameters
    ----------
    tokens : numeric
        Tokens of one die, :math:`N`. [tokens]
    destinations : numeric
        Experts that one token is sent to, :math:`k`. [-]
    message_bytes : numeric
        One message with its scales, :math:`m`. [B/tokens]
    ep : numeric
        Dies of the expert-parallel group, :math:`E`. [-]

    Returns
    -------
    sent : numeric
        Bytes that cross the fabric; zero in a group of one. [B]

    Notes
    -----
    Valid for ``ep >= 1`` and balanced routing. Counts one message per expert,
    as the published bandwidths do [1]_; `exchange_time` lets two experts on
    one die share a transfer.

    Examples
    --------
    >>> f"{exchange_bytes(128, 8, 7680, 32):.4e}"
    '7.6186e+06'

    References
    ----------
    .. [1] zuo2025, Table 7.
    """
    return tokens * destinations * message_bytes * (1 - 1 / ep)


@law
def mixed_bandwidth(
    ep: Numeric, *, near_ranks: Numeric, near_bandwidth: Numeric, far_bandwidth: Numeric
) -> Numeric:
    r"""Bandwidth of balanced traffic that uses a near and a far fabric in turn.

    .. math::
        \frac{1}{\beta} = \frac{s}{\beta_n} + \frac{1 - s}{\beta_f},
        \qquad s = \min\left(1, \frac{E_n}{E}\right)

    Parameters
    ----------
    ep : numeric
        Ranks of the group, :math:`E`. [-]
    near_ranks : numeric
        Ranks that share the near fabric, :math:`E_n`. [-]
    near_bandwidth : numeric
        Bandwidth of the near fabric, one way, :math:`\beta_n`. [B/s]
    far_bandwidth : numeric
        Bandwidth of the far fabric, one way, :math:`\beta_f`. [B/s]

    Returns
    -------
    bandwidth : numeric
        Bytes over time, both fabrics together. [B/s]

    Notes
    -----
    Valid for balanced traffic without overlap of the two fabrics. For GPU
    nodes (NVLink inside, RDMA outside [1]_); the UB fabric of a supernode is
    nearly flat and does not need it.

    Examples
    --------
    >>> f"{mixed_bandwidth(16, near_ranks=8, near_bandwidth=160e9, far_bandwidth=50e9):.4e}"
    '7.6190e+10'

    References
    ----------
    .. [1] deepep2025.
    """
    near = np.minimum(near_ranks / ep, 1)
    return 1 / (near / near_bandwidth + (1 - near) / far_bandwidth)


@law
def exchange_time(
    tokens: Numeric,
    ep: Numeric,
    destinations: Numeric,
    message_bytes: Numeric,
    *,
    floor: Numeric,
    per_message: Numeric,
    per_peer: Numeric,
    bandwidth: Numeric,
) -> Numeric:
    r"""Time of a dispatch or a combine of MoE tokens.

    Every pick of an expert costs handling (quantise, offset, flag, weighted
    sum), every peer costs a flag to set and to poll, and the payload crosses
    once per different die hit; the measured times are the sum of the three
    [1]_. In a group of one nothing crosses, the local permutation remains.

    .. math::
        t = \alpha + (E - 1)\,\alpha_p
            + N \left(k\,\gamma + [E > 1]\,D(E, k)\,\frac{m}{\beta}\right),
        \qquad D = E \left(1 - \left(1 - \frac{1}{E}\right)^k\right)

    Parameters
    ----------
    tokens : numeric
        Tokens of one die, :math:`N`. [tokens]
    ep : numeric
        Dies of the expert-parallel group, :math:`E`. [-]
    destinations : numeric
        Experts that one token is sent to, :math:`k`. [-]
    message_bytes : numeric
        One message with its scales, :math:`m`. [B/tokens]
    floor : numeric
        Launch, barriers and flag latency of an empty exchange, :math:`\alpha`. [s]
    per_message : numeric
        Handling of one message, :math:`\gamma`. [s/tokens]
    per_peer : numeric
        Flag and bookkeeping of one peer, :math:`\alpha_p`. [s]
    bandwidth : numeric
        Sustained bandwidth of one die, one way, :math:`\beta`. [B/s]

    Returns
    -------
    time : numeric
        Time of the exchange on the mean die. [s]

    Notes
    -----
    Valid for ``ep >= 1`` and balanced routing; imbalance multiplies
    ``tokens``. Checked for 8 <= ep <= 256 at 128 tokens [1]_ [2]_, for 8 <= ep <= 128
    at 4,096 [2]_ and for ep = 32 at 1 to 6 [3]_; the constants belong to one library and mode,
    low-latency constants do not hold at thousands of tokens. The own die counts
    as a destination because its copy takes the same send pipeline. ``[E > 1]``
    is a ramp between 1 and 2.

    Examples
    --------
    >>> t = exchange_time(128, 32, 8, 7680, floor=42.6e-6, per_message=37e-9, per_peer=70e-9, bandwidth=135e9)
    >>> f"{t:.4e}"
    '1.3492e-04'

    References
    ----------
    .. [1] zuo2025, Sec. 4.2.1 and Table 7.
    .. [2] sglkernelnpu2026.
    .. [3] aicnpu2026.
    """
    distinct = ep * (1 - np.power(1 - 1 / ep, destinations))
    wire = np.minimum(ep - 1, 1) * distinct * message_bytes / bandwidth
    return floor + (ep - 1) * per_peer + tokens * (destinations * per_message + wire)
