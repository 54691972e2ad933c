"""Exchange of MoE tokens, collectives and point-to-point transfers over the fabric."""

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
        Measured write bandwidth of one die, one way, :math:`\beta`. [B/s]

    Returns
    -------
    time : numeric
        Time of the exchange on the mean die. [s]

    Notes
    -----
    Valid for ``ep >= 1`` and balanced routing; imbalance multiplies
    ``tokens``. Checked for 8 <= ep <= 256 at 128 tokens [1]_ [2]_ and for
    ep = 32 at 1 to 6 tokens [3]_; the constants belong to one library and mode,
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


def _stepped_time(
    message_bytes: Numeric,
    peer_bytes: Numeric,
    ranks: Numeric,
    latency: Numeric,
    per_doubling: Numeric,
    link_bandwidth: Numeric,
    bandwidth: Numeric,
    staging_bandwidth: Numeric,
    switch_bytes: Numeric,
    switch_latency: Numeric,
) -> Numeric:
    """Latency, wire, and either the staging copy of the direct protocol or the set-up of the other."""
    direct = message_bytes <= switch_bytes
    start = direct * message_bytes / staging_bandwidth + (1 - direct) * switch_latency
    wire = peer_bytes * np.maximum(1 / link_bandwidth, (ranks - 1) / bandwidth)
    return np.minimum(ranks - 1, 1) * (latency + np.log2(ranks) * per_doubling + start + wire)


@law
def all_gather_bytes(message_bytes: Numeric, ranks: Numeric) -> Numeric:
    r"""Bytes that one rank sends in an all-gather.

    .. math::
        B = (n - 1)\,m

    Parameters
    ----------
    message_bytes : numeric
        Bytes that one rank contributes, :math:`m`. [B]
    ranks : numeric
        Ranks of the group, :math:`n`. [-]

    Returns
    -------
    sent : numeric
        Bytes that leave the rank; zero in a group of one. [B]

    Notes
    -----
    Valid for ``ranks >= 1``; the least that any algorithm can send [1]_.

    Examples
    --------
    >>> f"{all_gather_bytes(4e6, 8):.3e}"
    '2.800e+07'

    References
    ----------
    .. [1] thakur2005.
    """
    return (ranks - 1) * message_bytes


@law
def all_gather_time(
    message_bytes: Numeric,
    ranks: Numeric,
    *,
    latency: Numeric,
    per_doubling: Numeric,
    link_bandwidth: Numeric,
    bandwidth: Numeric,
    staging_bandwidth: Numeric,
    switch_bytes: Numeric,
    switch_latency: Numeric,
) -> Numeric:
    r"""Time of an all-gather.

    Every rank sends its shard to every other over a full mesh.
    Up to :math:`m_s` the vector cores
    write straight to the peers and pay a staging copy; above it the library
    changes protocol and pays a fixed set-up [1]_ [2]_.

    .. math::
        t = \alpha + \alpha_2 \log_2 n + S
            + m \max\left(\frac{1}{\beta_l}, \frac{n - 1}{\beta}\right),
        \qquad S = \begin{cases} m / \beta_s & m \le m_s \\ \alpha_s & m > m_s \end{cases}

    Parameters
    ----------
    message_bytes : numeric
        Bytes that one rank contributes, :math:`m`. [B]
    ranks : numeric
        Ranks of the group, :math:`n`. [-]
    latency : numeric
        Start-up of the collective, :math:`\alpha`. [s]
    per_doubling : numeric
        Added start-up when the group doubles, :math:`\alpha_2`. [s]
    link_bandwidth : numeric
        Bandwidth to one peer, one way, :math:`\beta_l`. [B/s]
    bandwidth : numeric
        Bandwidth to all peers together, one way, per rank, :math:`\beta`. [B/s]
    staging_bandwidth : numeric
        Copy to and from the buffer of the direct protocol, :math:`\beta_s`. [B/s]
    switch_bytes : numeric
        Largest message of the direct protocol, :math:`m_s`. [B]
    switch_latency : numeric
        Set-up of the protocol above it, :math:`\alpha_s`. [s]

    Returns
    -------
    time : numeric
        Time from the first rank's start to the last rank's end; zero in a group of one. [s]

    Notes
    -----
    Valid for 2 <= ranks <= 32 and 1 KB to 512 MB, ranks that start together.
    Within a node and across nodes the latency and the switch differ. One
    rank per die. Production adds the skew of the ranks, which is not in this law.

    Examples
    --------
    >>> constants = dict(latency=2e-6, per_doubling=1e-6, link_bandwidth=120e9, bandwidth=200e9)
    >>> switch = dict(staging_bandwidth=50e9, switch_bytes=512e3, switch_latency=80e-6)
    >>> f"{all_gather_time(4e6, 8, **constants, **switch):.4e}"
    '2.2500e-04'

    References
    ----------
    .. [1] hccl2025.
    .. [2] aicnpu2026.
    """
    return _stepped_time(
        message_bytes,
        message_bytes,
        ranks,
        latency,
        per_doubling,
        link_bandwidth,
        bandwidth,
        staging_bandwidth,
        switch_bytes,
        switch_latency,
    )


@law
def reduce_scatter_bytes(message_bytes: Numeric, ranks: Numeric) -> Numeric:
    r"""Bytes that one rank sends in a reduce-scatter.

    .. math::
        B = (n - 1)\,m

    Parameters
    ----------
    message_bytes : numeric
        Bytes that one rank is left with, :math:`m`. [B]
    ranks : numeric
        Ranks of the group, :math:`n`. [-]

    Returns
    -------
    sent : numeric
        Bytes that leave the rank; zero in a group of one. [B]

    Notes
    -----
    Valid for ``ranks >= 1``; the least that any algorithm can send [1]_.

    Examples
    --------
    >>> f"{reduce_scatter_bytes(4e6, 8):.3e}"
    '2.800e+07'

    References
    ----------
    .. [1] thakur2005.
    """
    return (ranks - 1) * message_bytes


@law
def reduce_scatter_time(
    message_bytes: Numeric,
    ranks: Numeric,
    *,
    latency: Numeric,
    per_doubling: Numeric,
    link_bandwidth: Numeric,
    bandwidth: Numeric,
    staging_bandwidth: Numeric,
    switch_bytes: Numeric,
    switch_latency: Numeric,
) -> Numeric:
    r"""Time of a reduce-scatter.

    Every rank sends a shard to each of the others, which sum as they receive.
    Up to :math:`m_s` the vector cores
    write straight to the peers and pay a staging copy; above it the library
    changes protocol and pays a fixed set-up [1]_ [2]_.

    .. math::
        t = \alpha + \alpha_2 \log_2 n + S
            + m \max\left(\frac{1}{\beta_l}, \frac{n - 1}{\beta}\right),
        \qquad S = \begin{cases} m / \beta_s & m \le m_s \\ \alpha_s & m > m_s \end{cases}

    Parameters
    ----------
    message_bytes : numeric
        Bytes that one rank is left with, :math:`m`. [B]
    ranks : numeric
        Ranks of the group, :math:`n`. [-]
    latency : numeric
        Start-up of the collective, :math:`\alpha`. [s]
    per_doubling : numeric
        Added start-up when the group doubles, :math:`\alpha_2`. [s]
    link_bandwidth : numeric
        Bandwidth to one peer, one way, :math:`\beta_l`. [B/s]
    bandwidth : numeric
        Bandwidth to all peers together, one way, per rank, :math:`\beta`. [B/s]
    staging_bandwidth : numeric
        Copy to and from the buffer of the direct protocol, :math:`\beta_s`. [B/s]
    switch_bytes : numeric
        Largest message of the direct protocol, :math:`m_s`. [B]
    switch_latency : numeric
        Set-up of the protocol above it, :math:`\alpha_s`. [s]

    Returns
    -------
    time : numeric
        Time from the first rank's start to the last rank's end; zero in a group of one. [s]

    Notes
    -----
    Valid for 2 <= ranks <= 32 and 1 KB to 512 MB, ranks that start together.
    Within a node and across nodes the latency and the switch differ. One
    rank per die. Production adds the skew of the ranks, which is not in this law.

    Examples
    --------
    >>> constants = dict(latency=2e-6, per_doubling=1e-6, link_bandwidth=120e9, bandwidth=200e9)
    >>> switch = dict(staging_bandwidth=50e9, switch_bytes=512e3, switch_latency=80e-6)
    >>> f"{reduce_scatter_time(4e6, 8, **constants, **switch):.4e}"
    '2.2500e-04'

    References
    ----------
    .. [1] hccl2025.
    .. [2] aicnpu2026.
    """
    return _stepped_time(
        message_bytes,
        message_bytes,
        ranks,
        latency,
        per_doubling,
        link_bandwidth,
        bandwidth,
        staging_bandwidth,
        switch_bytes,
        switch_latency,
    )


@law
def all_reduce_bytes(message_bytes: Numeric, ranks: Numeric) -> Numeric:
    r"""Bytes that one rank sends in an all-reduce.

    .. math::
        B = 2 m \left(1 - \frac{1}{n}\right)

    Parameters
    ----------
    message_bytes : numeric
        Bytes of the vector that is summed, :math:`m`. [B]
    ranks : numeric
        Ranks of the group, :math:`n`. [-]

    Returns
    -------
    sent : numeric
        Bytes that leave the rank; zero in a group of one. [B]

    Notes
    -----
    Valid for ``ranks >= 1``; the least that any algorithm can send [1]_.

    Examples
    --------
    >>> f"{all_reduce_bytes(4e6, 8):.3e}"
    '7.000e+06'

    References
    ----------
    .. [1] thakur2005.
    """
    return 2 * message_bytes * (1 - 1 / ranks)


@law
def all_reduce_time(
    message_bytes: Numeric,
    ranks: Numeric,
    *,
    latency: Numeric,
    per_doubling: Numeric,
    link_bandwidth: Numeric,
    bandwidth: Numeric,
    staging_bandwidth: Numeric,
    switch_bytes: Numeric,
    switch_latency: Numeric,
) -> Numeric:
    r"""Time of an all-reduce.

    A reduce-scatter and an all-gather of a shard of one n-th.
    Up to :math:`m_s` the vector cores
    write straight to the peers and pay a staging copy; above it the library
    changes protocol and pays a fixed set-up [1]_ [2]_.

    .. math::
        t = \alpha + \alpha_2 \log_2 n + S
            + \frac{2m}{n} \max\left(\frac{1}{\beta_l}, \frac{n - 1}{\beta}\right),
        \qquad S = \begin{cases} m / \beta_s & m \le m_s \\ \alpha_s & m > m_s \end{cases}

    Parameters
    ----------
    message_bytes : numeric
        Bytes of the vector that is summed, :math:`m`. [B]
    ranks : numeric
        Ranks of the group, :math:`n`. [-]
    latency : numeric
        Start-up of the collective, :math:`\alpha`. [s]
    per_doubling : numeric
        Added start-up when the group doubles, :math:`\alpha_2`. [s]
    link_bandwidth : numeric
        Bandwidth to one peer, one way, :math:`\beta_l`. [B/s]
    bandwidth : numeric
        Bandwidth to all peers together, one way, per rank, :math:`\beta`. [B/s]
    staging_bandwidth : numeric
        Copy to and from the buffer of the direct protocol, :math:`\beta_s`. [B/s]
    switch_bytes : numeric
        Largest message of the direct protocol, :math:`m_s`. [B]
    switch_latency : numeric
        Set-up of the protocol above it, :math:`\alpha_s`. [s]

    Returns
    -------
    time : numeric
        Time from the first rank's start to the last rank's end; zero in a group of one. [s]

    Notes
    -----
    Valid for 2 <= ranks <= 32 and 1 KB to 512 MB, ranks that start together.
    Within a node and across nodes the latency and the switch differ. One
    rank per die. Production adds the skew of the ranks, which is not in this law.

    Examples
    --------
    >>> constants = dict(latency=2e-6, per_doubling=1e-6, link_bandwidth=120e9, bandwidth=200e9)
    >>> switch = dict(staging_bandwidth=50e9, switch_bytes=512e3, switch_latency=80e-6)
    >>> f"{all_reduce_time(4e6, 8, **constants, **switch):.4e}"
    '1.2000e-04'

    References
    ----------
    .. [1] hccl2025.
    .. [2] aicnpu2026.
    """
    return _stepped_time(
        message_bytes,
        2 * message_bytes / ranks,
        ranks,
        latency,
        per_doubling,
        link_bandwidth,
        bandwidth,
        staging_bandwidth,
        switch_bytes,
        switch_latency,
    )


@law
def all_to_all_bytes(message_bytes: Numeric, ranks: Numeric) -> Numeric:
    r"""Bytes that one rank sends in an all-to-all.

    .. math::
        B = m \left(1 - \frac{1}{n}\right)

    Parameters
    ----------
    message_bytes : numeric
        Bytes of all blocks of one rank, its own block included, :math:`m`. [B]
    ranks : numeric
        Ranks of the group, :math:`n`. [-]

    Returns
    -------
    sent : numeric
        Bytes that leave the rank; zero in a group of one. [B]

    Notes
    -----
    Valid for ``ranks >= 1``; the least that any algorithm can send [1]_.

    Examples
    --------
    >>> f"{all_to_all_bytes(4e6, 8):.3e}"
    '3.500e+06'

    References
    ----------
    .. [1] thakur2005.
    """
    return message_bytes * (1 - 1 / ranks)


@law
def all_to_all_time(
    message_bytes: Numeric,
    ranks: Numeric,
    *,
    latency: Numeric,
    per_doubling: Numeric,
    link_bandwidth: Numeric,
    bandwidth: Numeric,
) -> Numeric:
    r"""Time of an all-to-all.

    Latency and bandwidth [1]_: a full mesh that one peer's path limits in a
    small group and the rank's own ports limit in a large one. No change of
    protocol shows in the measurements [2]_.

    .. math::
        t = \alpha + \alpha_2 \log_2 n
            + \frac{m}{n} \max\left(\frac{1}{\beta_l}, \frac{n - 1}{\beta}\right)

    Parameters
    ----------
    message_bytes : numeric
        Bytes of all blocks of one rank, its own block included, :math:`m`. [B]
    ranks : numeric
        Ranks of the group, :math:`n`. [-]
    latency : numeric
        Start-up of the collective, :math:`\alpha`. [s]
    per_doubling : numeric
        Added start-up when the group doubles, :math:`\alpha_2`. [s]
    link_bandwidth : numeric
        Bandwidth to one peer, one way, :math:`\beta_l`. [B/s]
    bandwidth : numeric
        Bandwidth to all peers together, one way, per rank, :math:`\beta`. [B/s]

    Returns
    -------
    time : numeric
        Time from the first rank's start to the last rank's end; zero in a group of one. [s]

    Notes
    -----
    Valid for 2 <= ranks <= 32 and 1 KB to 512 MB, ranks that start together.
    One rank per die.

    Examples
    --------
    >>> constants = dict(latency=4e-6, per_doubling=3e-6, link_bandwidth=75e9, bandwidth=140e9)
    >>> f"{all_to_all_time(4e6, 8, **constants):.4e}"
    '3.8000e-05'

    References
    ----------
    .. [1] hockney1994.
    .. [2] aicnpu2026.
    """
    wire = message_bytes / ranks * np.maximum(1 / link_bandwidth, (ranks - 1) / bandwidth)
    return np.minimum(ranks - 1, 1) * (latency + np.log2(ranks) * per_doubling + wire)


@law
def point_to_point_time(message_bytes: Numeric, *, latency: Numeric, bandwidth: Numeric) -> Numeric:
    r"""Time of one transfer between two ends, such as a KV cache to its decode die.

    Start-up and volume, nothing else [1]_.

    .. math::
        t = \alpha + \frac{m}{\beta}

    Parameters
    ----------
    message_bytes : numeric
        Bytes of the transfer, :math:`m`. [B]
    latency : numeric
        Start-up of the path, :math:`\alpha`. [s]
    bandwidth : numeric
        Sustained bandwidth of the path, one way, :math:`\beta`. [B/s]

    Returns
    -------
    time : numeric
        Time until the last byte arrives. [s]

    Notes
    -----
    Valid for one transfer alone on its path (UB, RDMA or VPC [2]_); transfers
    that share a path share its bandwidth.

    Examples
    --------
    >>> f"{point_to_point_time(1e9, latency=2.1e-6, bandwidth=135e9):.4e}"
    '7.4095e-03'

    References
    ----------
    .. [1] hockney1994.
    .. [2] zuo2025, Sec. 3.2.
    """
    return latency + message_bytes / bandwidth
