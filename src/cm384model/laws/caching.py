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
def cache_capacity_tokens(
    nodes: Numeric, dram_capacity: Numeric, lent_share: Numeric, *, bytes_per_token: Numeric
) -> Numeric:
    r"""Tokens whose KV cache the DRAM of some nodes holds.

    .. math::
        C = \frac{n\,\varphi\,M}{c}

    Parameters
    ----------
    nodes : numeric
        Nodes that lend DRAM to the pool, :math:`n`. [-]
    dram_capacity : numeric
        DRAM of one node, :math:`M`. [B]
    lent_share : numeric
        Part of it that the pool may fill, :math:`\varphi`. [-]
    bytes_per_token : numeric
        KV cache of one token over all layers, :math:`c`. [B/tokens]

    Returns
    -------
    tokens : numeric
        Tokens in the pool. [tokens]

    Notes
    -----
    Valid for one copy of every block; the pool of the paper is one name space over the DRAM of
    all nodes [1]_.

    Examples
    --------
    >>> f"{cache_capacity_tokens(8, 1.5e12, 0.5, bytes_per_token=70272) / 1e6:.1f} M"
    '85.4 M'

    References
    ----------
    .. [1] zuo2025, Sec. 4.4.1.
    """
    return nodes * lent_share * dram_capacity / bytes_per_token


@law
def cache_working_set(rate: Numeric, prompt_len: Numeric, reuse: Numeric, retention: Numeric) -> Numeric:
    r"""Tokens that a pool takes in while it keeps every token for some time.

    What is found again is there already; only the rest of a prompt takes new room. It is Little's
    law for tokens that stay :math:`T`.

    .. math::
        W = \lambda\,P\,(1 - h)\,T

    Parameters
    ----------
    rate : numeric
        Requests per second, :math:`\lambda`. [1/s]
    prompt_len : numeric
        Mean tokens of a prompt, :math:`P`. [tokens]
    reuse : numeric
        Share of the prompt tokens found in the pool, :math:`h`. [-]
    retention : numeric
        Time for which a token is kept, :math:`T`. [s]

    Returns
    -------
    tokens : numeric
        Tokens held at once. [tokens]

    Notes
    -----
    Valid for a steady rate; a token that is found again is the same one and is counted once [1]_.

    Examples
    --------
    >>> f"{cache_working_set(100, 4096, 0.5, 600) / 1e6:.1f} M"
    '122.9 M'

    References
    ----------
    .. [1] little1961.
    """
    return rate * prompt_len * (1 - reuse) * retention


@law
def cache_traffic(rate: Numeric, prompt_len: Numeric, share: Numeric, *, bytes_per_token: Numeric) -> Numeric:
    r"""Bytes per second that a share of all prompt tokens moves to or from the pool.

    .. math::
        B = \lambda\,P\,s\,c

    Parameters
    ----------
    rate : numeric
        Requests per second, :math:`\lambda`. [1/s]
    prompt_len : numeric
        Mean tokens of a prompt, :math:`P`. [tokens]
    share : numeric
        Part of the tokens that moves, :math:`s`: the hit rate for loads; 1 for the DRAM, as what
        is not loaded is stored. [-]
    bytes_per_token : numeric
        KV cache of one token over all layers, :math:`c`. [B/tokens]

    Returns
    -------
    traffic : numeric
        Mean traffic of the whole pool. [B/s]

    Notes
    -----
    Valid for blocks spread evenly over the nodes of the pool, as hashing does [1]_.

    Examples
    --------
    >>> f"{cache_traffic(300, 4096, 0.5, bytes_per_token=70272) / 1e9:.1f} GB/s"
    '43.2 GB/s'

    References
    ----------
    .. [1] zuo2025, Sec. 4.4.1.
    """
    return rate * prompt_len * share * bytes_per_token


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
