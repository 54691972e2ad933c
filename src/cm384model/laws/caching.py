"""Caching of context and of models in the disaggregated memory pool."""

from __future__ import annotations

from cm384model.numeric import Numeric, ceil_div, law


@law
def block_transfer_time(
    tokens: Numeric,
    layers: Numeric,
    bytes_per_token_layer: Numeric,
    *,
    block_tokens: Numeric,
    block_latency: Numeric,
    bandwidth: Numeric,
) -> Numeric:
    r"""Time to fetch context of a batch from the memory pool, or to store it there.

    The pool keeps a block per layer, and every block is looked up and moved on its own: a
    cost per block and the bytes [1]_.

    .. math::
        t = l \left(\left\lceil \frac{N}{s} \right\rceil \alpha + \frac{N\,c}{\beta}\right)

    Parameters
    ----------
    tokens : numeric
        Tokens that one die fetches or stores, :math:`N`. [-]
    layers : numeric
        Layers of the model, :math:`l`. [-]
    bytes_per_token_layer : numeric
        Bytes of one token in one layer, :math:`c`. [B]
    block_tokens : numeric
        Tokens of one block, :math:`s`. [-]
    block_latency : numeric
        Look-up and start of one move, :math:`\alpha`. [s]
    bandwidth : numeric
        Bandwidth between the pool and one die, :math:`\beta`. [B/s]

    Returns
    -------
    time : numeric
        Time until the last block has arrived. [s]

    Notes
    -----
    Valid for moves that follow each other on one die and for blocks of 128 to 512 tokens. The
    published figures show cached tokens that cost a third of computed ones, which bandwidth alone
    would make 200 times cheaper: the blocks are what costs. With the cost per block that the
    published TTFT give for fetching, storing at the same cost gives the published throughput at
    50 and 90 % reuse within 2 %: no constant was fitted to those two rows, but they are why
    storing is in the model.

    Examples
    --------
    >>> t = block_transfer_time(4096, 61, 1152, block_tokens=128, block_latency=100e-6, bandwidth=147e9)
    >>> f"{t:.4f}"
    '0.1972'

    References
    ----------
    .. [1] zuo2025, Sec. 4.4.2.
    """
    return layers * (
        ceil_div(tokens, block_tokens) * block_latency + tokens * bytes_per_token_layer / bandwidth
    )


@law
def cold_start_time(loads: Numeric, model_bytes: Numeric, *, bandwidth: Numeric) -> Numeric:
    r"""Time until every instance has its weights when all fetch them from one bucket.

    .. math::
        t = \frac{n\,M}{\beta}

    Parameters
    ----------
    loads : numeric
        Copies of the model that cross the bucket's link, :math:`n`: one per instance, or one
        in all when the memory pool shares it. [-]
    model_bytes : numeric
        Weights of the model, :math:`M`. [B]
    bandwidth : numeric
        Sustained bandwidth of the bucket, :math:`\beta`. [B/s]

    Returns
    -------
    time : numeric
        Time until the last load is complete. [s]

    Notes
    -----
    Valid while the bucket and not the network of a node is the limit [1]_.

    Examples
    --------
    >>> f"{cold_start_time(8, 671e9, bandwidth=2.1e9):.0f}"
    '2556'

    References
    ----------
    .. [1] zuo2025, Sec. 4.4.3 and Table 2.
    """
    return loads * model_bytes / bandwidth


@law
def mean_switch_time(hit_rate: Numeric, warm_time: Numeric, cold_time: Numeric) -> Numeric:
    r"""Mean time to switch to another model of a set.

    .. math::
        t = h\,t_w + (1 - h)\,t_c

    Parameters
    ----------
    hit_rate : numeric
        Chance that the wanted model is in memory, :math:`h`. [-]
    warm_time : numeric
        Start from memory, :math:`t_w`. [s]
    cold_time : numeric
        Start from the bucket, :math:`t_c`. [s]

    Returns
    -------
    time : numeric
        Mean time of a switch. [s]

    Notes
    -----
    Valid for random switches; with 1 of 8 models in memory the hit rate is 12.5 % [1]_.

    Examples
    --------
    >>> f"{mean_switch_time(0.125, 5, 320):.1f}"
    '280.6'

    References
    ----------
    .. [1] zuo2025, Table 2.
    """
    return hit_rate * warm_time + (1 - hit_rate) * cold_time
