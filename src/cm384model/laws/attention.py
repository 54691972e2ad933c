"""Attention: what it computes, what it reads, and how long either takes."""

from __future__ import annotations

from cm384model.numeric import Numeric, law


@law
def attention_decode_flop(
    tokens: Numeric,
    kv_len: Numeric,
    *,
    heads: Numeric,
    head_dim: Numeric,
) -> Numeric:
    r"""Arithmetic of multi-head or grouped-query attention over a cache.

    Every head scores its keys, then averages its values [1]_; grouping heads saves
    traffic, not arithmetic.

    .. math::
        F = 4\, t\, H\, d\, S

    Parameters
    ----------
    tokens : numeric
        Query tokens of all requests, :math:`t`. [-]
    kv_len : numeric
        Cached positions that each query attends to, :math:`S`. [-]
    heads : numeric
        Query heads on the die, :math:`H`. [-]
    head_dim : numeric
        Width of a head, :math:`d`. [FLOP]

    Returns
    -------
    flop : numeric
        Floating-point operations of one layer. [FLOP]

    Notes
    -----
    Valid for ``kv_len >= 1``; soft-max is not counted, nor the rows that pad a
    group of heads to a cube tile. A width counts multiply-adds here, one per number
    and pair of positions, so it carries the unit of the result.

    Examples
    --------
    >>> f"{attention_decode_flop(16, 16384, heads=64, head_dim=128):.4e}"
    '8.5899e+09'

    References
    ----------
    .. [1] dao2022.
    """
    return 4 * tokens * heads * head_dim * kv_len


@law
def attention_decode_bytes(
    requests: Numeric,
    tokens: Numeric,
    kv_len: Numeric,
    *,
    heads: Numeric,
    kv_heads: Numeric,
    head_dim: Numeric,
    kv_bytes: Numeric,
    activation_bytes: Numeric,
) -> Numeric:
    r"""Traffic to device memory of multi-head or grouped-query attention over a cache.

    The keys and values of a request are read once for all heads of a group and all
    its query tokens; queries come in and outputs go out once [1]_.

    .. math::
        B = 2\, d\, (b\, S\, K\, c + t\, H\, a)

    Parameters
    ----------
    requests : numeric
        Requests, :math:`b`. [-]
    tokens : numeric
        Query tokens of all requests, :math:`t`. [-]
    kv_len : numeric
        Cached positions that each query attends to, :math:`S`. [-]
    heads : numeric
        Query heads on the die, :math:`H`. [-]
    kv_heads : numeric
        Key-value heads on the die, :math:`K`. [-]
    head_dim : numeric
        Width of a head, :math:`d`. [-]
    kv_bytes : numeric
        Bytes of one number in the cache, :math:`c`. [B]
    activation_bytes : numeric
        Bytes of one number of a query, key, value or output, :math:`a`. [B]

    Returns
    -------
    bytes_moved : numeric
        Bytes read and written in one layer. [B]

    Notes
    -----
    Valid for ``kv_heads <= heads`` and ``tokens >= requests``.

    Examples
    --------
    >>> widths = dict(heads=64, kv_heads=8, head_dim=128, kv_bytes=2, activation_bytes=2)
    >>> f"{attention_decode_bytes(16, 16, 16384, **widths):.4e}"
    '1.0743e+09'

    References
    ----------
    .. [1] dao2022.
    """
    return 2 * head_dim * (requests * kv_len * kv_heads * kv_bytes + tokens * heads * activation_bytes)


@law
def attention_prefill_flop(
    tokens: Numeric,
    prompt_len: Numeric,
    *,
    heads: Numeric,
    head_dim: Numeric,
) -> Numeric:
    r"""Arithmetic of causal multi-head or grouped-query attention over whole prompts.

    Position :math:`i` of a prompt attends to :math:`i` positions,
    :math:`(L + 1)/2` in the mean, with a score and an average for each [1]_.

    .. math::
        F = 4\, t\, \frac{L + 1}{2}\, H\, d

    Parameters
    ----------
    tokens : numeric
        Query tokens of all requests, :math:`t`. [-]
    prompt_len : numeric
        Tokens of one prompt, :math:`L`. [-]
    heads : numeric
        Query heads on the die, :math:`H`. [-]
    head_dim : numeric
        Width of a head, :math:`d`. [FLOP]

    Returns
    -------
    flop : numeric
        Floating-point operations of one layer. [FLOP]

    Notes
    -----
    Valid for prompts of one length, all attended in full (no window). The sum
    over positions is exact, diagonal included. Prompts of which the first ``c``
    tokens are cached cost the difference of two calls, ``(b * L, L)`` less
    ``(b * c, c)``. A width counts multiply-adds here, one per number and pair of positions, so it
    carries the unit of the result.

    Examples
    --------
    >>> f"{attention_prefill_flop(8192, 8192, heads=64, head_dim=128):.4e}"
    '1.0996e+12'

    References
    ----------
    .. [1] dao2022.
    """
    return 2 * tokens * (prompt_len + 1) * heads * head_dim


@law
def attention_prefill_bytes(
    tokens: Numeric,
    *,
    heads: Numeric,
    kv_heads: Numeric,
    head_dim: Numeric,
    activation_bytes: Numeric,
) -> Numeric:
    r"""Traffic to device memory of grouped-query attention over whole prompts.

    Scores never leave the die [1]_: queries and outputs of every head, keys and
    values of every group cross once.

    .. math::
        B = 2\, t\, (H + K)\, d\, a

    Parameters
    ----------
    tokens : numeric
        Query tokens of all requests, :math:`t`. [-]
    heads : numeric
        Query heads on the die, :math:`H`. [-]
    kv_heads : numeric
        Key-value heads on the die, :math:`K`. [-]
    head_dim : numeric
        Width of a head, :math:`d`. [-]
    activation_bytes : numeric
        Bytes of one number of a query, key, value or output, :math:`a`. [B]

    Returns
    -------
    bytes_moved : numeric
        Bytes read and written in one layer. [B]

    Notes
    -----
    Valid while the keys and values of one head, re-read for every block of query
    rows, stay in the cache of the die (a prompt of 64 K tokens and more does not).

    Examples
    --------
    >>> f"{attention_prefill_bytes(8192, heads=64, kv_heads=8, head_dim=128, activation_bytes=2):.4e}"
    '3.0199e+08'

    References
    ----------
    .. [1] dao2022.
    """
    return 2 * tokens * (heads + kv_heads) * head_dim * activation_bytes


@law
def kv_cache_bytes_per_token_gqa(
    layers: Numeric,
    *,
    kv_heads: Numeric,
    head_dim: Numeric,
    kv_bytes: Numeric,
) -> Numeric:
    r"""Cache that one token of context occupies under grouped-query attention.

    One key and one value of every group of heads [1]_.

    .. math::
        k = 2\, l\, K\, d\, c

    Parameters
    ----------
    layers : numeric
        Layers that keep a cache, :math:`l`. [-]
    kv_heads : numeric
        Key-value heads on the die, :math:`K`. [-]
    head_dim : numeric
        Width of a head, :math:`d`. [-]
    kv_bytes : numeric
        Bytes of one number in the cache, :math:`c`. [B/tokens]

    Returns
    -------
    token_bytes : numeric
        Bytes of one token over all layers. [B/tokens]

    Notes
    -----
    Valid for a cache of one precision, without scales and without the padding of
    the last block; ``kv_heads`` are those on the die.

    Examples
    --------
    >>> f"{kv_cache_bytes_per_token_gqa(64, kv_heads=8, head_dim=128, kv_bytes=2):.0f}"
    '262144'

    References
    ----------
    .. [1] dao2022.
    """
    return 2 * layers * kv_heads * head_dim * kv_bytes


@law
def attention_compute_time(
    flop: Numeric,
    length: Numeric,
    *,
    flop_rate: Numeric,
    efficiency: Numeric,
    half_length: Numeric,
) -> Numeric:
    r"""Time of the arithmetic of attention on the cube cores.

    A flash kernel pays for every row of queries besides the positions it attends
    to: the blocks that the causal mask cuts, and the start and the final rescaling
    of the row [1]_. The price is that of :math:`h` more positions; a prompt of
    :math:`h` tokens runs at half the efficiency of a long one.

    .. math::
        t_c = \frac{F}{\eta P} \left(1 + \frac{h}{L}\right)

    Parameters
    ----------
    flop : numeric
        Floating-point operations, :math:`F`. [FLOP]
    length : numeric
        Tokens of one prompt or cache, :math:`L`. [tokens]
    flop_rate : numeric
        Peak rate of the cores in use, :math:`P`. [FLOP/s]
    efficiency : numeric
        Share of the peak that a long prompt reaches, :math:`\eta`. [-]
    half_length : numeric
        Length at which half of that efficiency is left, :math:`h`. [tokens]

    Returns
    -------
    time : numeric
        Time of the arithmetic alone. [s]

    Notes
    -----
    Valid for ``length >= 1``. For a cache (decode) set ``half_length`` to 0: its
    blocks are whole, and the anchors of the MLA operator, 65.4 % of 376 TFLOP/s [2]_
    and 86.8 % of 353.7 TFLOP/s [3]_, are limits of long context. Fitted to 16 causal
    grouped-query points of one die [4]_ (1 to 8 prompts of 1 K to 8 K tokens):
    efficiency 0.49, half length 1.4 K, launch 70 us; median error 4.6 %, left out 5.0 %
    (worst 49 %: 1 K tokens with 8 heads, where the launch dominates). A constant
    efficiency leaves 10.7 % and 11.8 %.

    Examples
    --------
    >>> f"{attention_compute_time(1.0996e12, 8192, flop_rate=376e12, efficiency=0.49, half_length=1430):.3e}"
    '7.010e-03'

    References
    ----------
    .. [1] dao2022.
    .. [2] zuo2025, Sec. 5.5.2.
    .. [3] amla2025.
    .. [4] aicnpu2026.
    """
    return flop / (flop_rate * efficiency) * (1 + half_length / length)


@law
def attention_memory_time(
    bytes_moved: Numeric,
    *,
    bandwidth: Numeric,
    efficiency: Numeric,
) -> Numeric:
    r"""Time of the traffic of attention to device memory.

    A cache is read in long runs of pages, so one efficiency serves all lengths.

    .. math::
        t_m = \frac{B}{\eta \beta}

    Parameters
    ----------
    bytes_moved : numeric
        Bytes read and written, :math:`B`. [B]
    bandwidth : numeric
        Peak bandwidth of device memory, per die, :math:`\beta`. [B/s]
    efficiency : numeric
        Share of the peak that a long read reaches, :math:`\eta`. [-]

    Returns
    -------
    time : numeric
        Time of the traffic alone. [s]

    Notes
    -----
    Valid for caches well above the on-die cache (192 MB); a smaller one, read
    again and again by a benchmark, comes faster. The MLA operator reaches 0.841 of
    1.6 TB/s [1]_. Twenty-two grouped-query points of one die [2]_ (batch 1 to 128,
    4 K and 16 K) give 0.735 and a launch of 37 us: median error 9.5 %, left out
    10.5 %, worst 46 % (134 MB, read at more than the peak of the memory after the
    launch). Without such points, 0.72 and 40 us, left out 9.7 %. What remains is a
    rising cost of many heads, 10 to 25 % from 8 to 64, that no term explained
    for both groupings.

    Examples
    --------
    >>> f"{attention_memory_time(1.0743e9, bandwidth=1600e9, efficiency=0.72):.3e}"
    '9.326e-04'

    References
    ----------
    .. [1] zuo2025, Sec. 5.5.2.
    .. [2] aicnpu2026.
    """
    return bytes_moved / (bandwidth * efficiency)
