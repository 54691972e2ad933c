"""Where the memory of a die goes."""

from __future__ import annotations

from cm384model.numeric import Numeric, law


@law
def kv_cache_bytes(
    requests: Numeric,
    kv_len: Numeric,
    layers: Numeric,
    *,
    bytes_per_token_layer: Numeric,
) -> Numeric:
    r"""Memory of the KV cache of the requests in flight on one die.

    .. math::
        M = b\,S\,l\,c

    Parameters
    ----------
    requests : numeric
        Requests per die, :math:`b`. [-]
    kv_len : numeric
        Tokens of context held per request, :math:`S`. [tokens]
    layers : numeric
        Layers that keep a cache, MTP layers included, :math:`l`. [-]
    bytes_per_token_layer : numeric
        Bytes of one token in one layer, :math:`c`. [B/tokens]

    Returns
    -------
    bytes : numeric
        KV cache of one die. [B]

    Notes
    -----
    Valid for a paged cache with pages that are small beside ``kv_len``. MLA keeps one
    latent and one rotary key per token, whatever the number of heads [1]_.

    Examples
    --------
    >>> f"{kv_cache_bytes(48, 4352, 61, bytes_per_token_layer=1152) / 1e9:.1f} GB"
    '14.7 GB'

    References
    ----------
    .. [1] deepseek2024, Sec. 2.1.
    """
    return requests * kv_len * layers * bytes_per_token_layer


@law
def exchange_buffer_bytes(
    ranks: Numeric,
    local_tokens: Numeric,
    *,
    copies: Numeric,
    dispatch_message_bytes: Numeric,
    combine_message_bytes: Numeric,
) -> Numeric:
    r"""Receive buffers of the fused dispatch and combine operators on one die.

    Every peer may send all of its tokens, so the buffers are pre-allocated for
    all ranks [1]_.

    .. math::
        M = r\,t\,c\,(m_d + m_c)

    Parameters
    ----------
    ranks : numeric
        Dies that exchange tokens, :math:`r`. [-]
    local_tokens : numeric
        Most tokens a die sends per layer, :math:`t`. [tokens]
    copies : numeric
        Copies of a token that one die can receive from one peer,
        ``min(top_k, experts on the die)``, :math:`c`. [-]
    dispatch_message_bytes : numeric
        Slot of one token in dispatch, :math:`m_d`. [B/tokens]
    combine_message_bytes : numeric
        Slot of one token in combine, :math:`m_c`. [B/tokens]

    Returns
    -------
    bytes : numeric
        Buffers of one die. [B]

    Notes
    -----
    Valid for statically allocated buffers as CANN EP uses. With 320 ranks and 96 tokens it is
    the paper's 645 MB (binary megabytes of 7.5 + 14 KiB slots).

    Examples
    --------
    >>> bytes = exchange_buffer_bytes(
    ...     320, 96, copies=1, dispatch_message_bytes=7680, combine_message_bytes=14336
    ... )
    >>> f"{bytes / 2**20:.0f} MiB"
    '645 MiB'

    References
    ----------
    .. [1] zuo2025, Sec. 4.2.1, eqs. 1 and 2.
    """
    return ranks * local_tokens * copies * (dispatch_message_bytes + combine_message_bytes)


@law
def free_bytes(
    capacity: Numeric, weights: Numeric, kv_cache: Numeric, buffers: Numeric, reserve: Numeric
) -> Numeric:
    r"""Memory that is left on a die; negative when the deployment does not fit.

    .. math::
        F = C - W - K - B - R

    Parameters
    ----------
    capacity : numeric
        Device memory of a die, :math:`C`. [B]
    weights : numeric
        Weights, :math:`W`. [B]
    kv_cache : numeric
        KV cache, :math:`K`. [B]
    buffers : numeric
        Communication and activation buffers, :math:`B`. [B]
    reserve : numeric
        What the serving engine and the runtime hold back, :math:`R`. [B]

    Returns
    -------
    bytes : numeric
        Free memory. [B]

    Notes
    -----
    Valid for any sizes; a deployment is feasible when the result is not negative [1]_.

    Examples
    --------
    >>> f"{free_bytes(64e9, 30e9, 20e9, 1e9, 6.4e9) / 1e9:.1f} GB"
    '6.6 GB'

    References
    ----------
    .. [1] zuo2025, Sec. 4.2.1 and Sec. 5.2.
    """
    return capacity - weights - kv_cache - buffers - reserve
