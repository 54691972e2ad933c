"""Latent attention: absorbed in decode, naive in prefill."""

from __future__ import annotations

from cm384model.numeric import Numeric, law


@law
def mla_decode_flop(
    tokens: Numeric,
    kv_len: Numeric,
    *,
    heads: Numeric,
    latent_dim: Numeric,
    rope_dim: Numeric,
) -> Numeric:
    r"""Arithmetic of absorbed multi-head latent attention over a cache.

    With the key and value projections absorbed into the query and the output [1]_,
    every head scores the latent and its rotary part, then averages the latent.

    .. math::
        F = 2\, t\, H\, (2 d_l + d_r)\, S

    Parameters
    ----------
    tokens : numeric
        Query tokens of all requests, :math:`t`. [-]
    kv_len : numeric
        Cached positions that each query attends to, :math:`S`. [-]
    heads : numeric
        Query heads on the die, :math:`H`. [-]
    latent_dim : numeric
        Width of the compressed latent, :math:`d_l`. [FLOP]
    rope_dim : numeric
        Width of the rotary part of the key, :math:`d_r`. [FLOP]

    Returns
    -------
    flop : numeric
        Floating-point operations of one layer. [FLOP]

    Notes
    -----
    Valid for ``kv_len >= 1``. Soft-max and the absorbed projections are not
    counted. Draft tokens of one request see nearly the same ``kv_len``; give the
    mean. A width counts multiply-adds here, one per number and pair of positions, so it
    carries the unit of the result.

    Examples
    --------
    >>> f"{mla_decode_flop(96, 4096, heads=128, latent_dim=512, rope_dim=64):.4e}"
    '1.0952e+11'

    References
    ----------
    .. [1] deepseek2024, Sec. 2.1.
    """
    return 2 * tokens * heads * (2 * latent_dim + rope_dim) * kv_len


@law
def mla_decode_bytes(
    requests: Numeric,
    tokens: Numeric,
    kv_len: Numeric,
    *,
    heads: Numeric,
    latent_dim: Numeric,
    rope_dim: Numeric,
    kv_bytes: Numeric,
    activation_bytes: Numeric,
) -> Numeric:
    r"""Traffic to device memory of absorbed multi-head latent attention over a cache.

    The latent cache of a request is read once, for all heads and all its query
    tokens [1]_; queries come in and latent outputs go out once.

    .. math::
        B = b\, S\, (d_l + d_r)\, c + t\, H\, (2 d_l + d_r)\, a

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
    latent_dim : numeric
        Width of the compressed latent, :math:`d_l`. [-]
    rope_dim : numeric
        Width of the rotary part of the key, :math:`d_r`. [-]
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
    Valid for ``tokens >= requests`` while the query rows of one request fit one
    pass over its cache (``tokens / requests * heads <= 512`` or so); a cache shared
    between requests would be read less.

    Examples
    --------
    >>> widths = dict(heads=128, latent_dim=512, rope_dim=64, kv_bytes=2, activation_bytes=2)
    >>> f"{mla_decode_bytes(48, 96, 4096, **widths):.4e}"
    '2.5323e+08'

    References
    ----------
    .. [1] deepseek2024, Sec. 2.1.
    """
    return (
        requests * kv_len * (latent_dim + rope_dim) * kv_bytes
        + tokens * heads * (2 * latent_dim + rope_dim) * activation_bytes
    )


@law
def mla_prefill_flop(
    tokens: Numeric,
    prompt_len: Numeric,
    *,
    heads: Numeric,
    qk_dim: Numeric,
    v_dim: Numeric,
) -> Numeric:
    r"""Arithmetic of causal naive multi-head latent attention over whole prompts.

    Without absorption [1]_ latent attention is ordinary multi-head attention whose
    keys and values have different widths. Position :math:`i` of a prompt attends
    to :math:`i` positions, :math:`(L + 1)/2` in the mean.

    .. math::
        F = 2\, t\, \frac{L + 1}{2}\, H\, (d_{qk} + d_v)

    Parameters
    ----------
    tokens : numeric
        Query tokens of all requests, :math:`t`. [-]
    prompt_len : numeric
        Tokens of one prompt, :math:`L`. [-]
    heads : numeric
        Query heads on the die, :math:`H`. [-]
    qk_dim : numeric
        Width of a query and of a key head, :math:`d_{qk}`. [FLOP]
    v_dim : numeric
        Width of a value head, :math:`d_v`. [FLOP]

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
    >>> f"{mla_prefill_flop(8192, 4096, heads=128, qk_dim=192, v_dim=128):.4e}"
    '1.3747e+12'

    References
    ----------
    .. [1] deepseek2024, Sec. 2.1.
    """
    return tokens * (prompt_len + 1) * heads * (qk_dim + v_dim)


@law
def mla_prefill_bytes(
    tokens: Numeric,
    *,
    heads: Numeric,
    qk_dim: Numeric,
    v_dim: Numeric,
    activation_bytes: Numeric,
) -> Numeric:
    r"""Traffic to device memory of naive multi-head latent attention over whole prompts.

    Scores never leave the die [1]_: queries and keys, values and outputs cross
    once each.

    .. math::
        B = 2\, t\, H\, (d_{qk} + d_v)\, a

    Parameters
    ----------
    tokens : numeric
        Query tokens of all requests, :math:`t`. [-]
    heads : numeric
        Query heads on the die, :math:`H`. [-]
    qk_dim : numeric
        Width of a query and of a key head, :math:`d_{qk}`. [-]
    v_dim : numeric
        Width of a value head, :math:`d_v`. [-]
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
    >>> f"{mla_prefill_bytes(8192, heads=128, qk_dim=192, v_dim=128, activation_bytes=2):.4e}"
    '1.3422e+09'

    References
    ----------
    .. [1] dao2022.
    """
    return 2 * tokens * heads * (qk_dim + v_dim) * activation_bytes


@law
def kv_cache_bytes_per_token_mla(
    layers: Numeric,
    *,
    latent_dim: Numeric,
    rope_dim: Numeric,
    kv_bytes: Numeric,
) -> Numeric:
    r"""Cache that one token of context occupies under multi-head latent attention.

    All heads share one latent and one rotary key [1]_.

    .. math::
        k = l\, (d_l + d_r)\, c

    Parameters
    ----------
    layers : numeric
        Layers that keep a cache, :math:`l`. [-]
    latent_dim : numeric
        Width of the compressed latent, :math:`d_l`. [-]
    rope_dim : numeric
        Width of the rotary part of the key, :math:`d_r`. [-]
    kv_bytes : numeric
        Bytes of one number in the cache, :math:`c`. [B/tokens]

    Returns
    -------
    token_bytes : numeric
        Bytes of one token over all layers. [B/tokens]

    Notes
    -----
    Valid for a cache of one precision, without scales and without the padding of
    the last block. Attention tensor parallelism does not divide it.

    Examples
    --------
    >>> f"{kv_cache_bytes_per_token_mla(61, latent_dim=512, rope_dim=64, kv_bytes=2):.0f}"
    '70272'

    References
    ----------
    .. [1] deepseek2024, Sec. 2.1.
    """
    return layers * (latent_dim + rope_dim) * kv_bytes
