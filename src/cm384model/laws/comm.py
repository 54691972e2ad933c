"""Collectives and point-to-point transfers over the fabric."""

from __future__ import annotations

import numpy as np

from cm384model.numeric import Numeric, law


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
