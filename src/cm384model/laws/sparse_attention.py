"""Sparse attention: what an indexer looks at and what is attended to."""

from __future__ import annotations

import numpy as np

from cm384model.numeric import Numeric, law


@law
def attended_pairs(prompt_len: Numeric, cap: Numeric) -> Numeric:
    r"""Pairs of a query and a key in one causal prompt whose queries see a limited number of keys.

    Position :math:`i` attends to :math:`\min(i, k)` positions: the last :math:`k` of a sliding
    window, or the best :math:`k` that an indexer picks [1]_.

    .. math::
        P = c\,L - \frac{c\,(c - 1)}{2}, \qquad c = \min(L, k)

    Parameters
    ----------
    prompt_len : numeric
        Tokens of one prompt, :math:`L`. [-]
    cap : numeric
        Most positions that a query attends to, :math:`k`. [-]

    Returns
    -------
    pairs : numeric
        Pairs of one prompt and head. [-]

    Notes
    -----
    Valid for ``prompt_len >= 0`` and ``cap >= 1``; exact for whole numbers. With
    ``cap >= prompt_len`` it is the causal triangle, diagonal included.

    Examples
    --------
    >>> f"{attended_pairs(8192, 2048):.4e}"
    '1.4681e+07'

    References
    ----------
    .. [1] deepseekdsa2025, Sec. 2.
    """
    width = np.minimum(prompt_len, cap)
    return width * prompt_len - width * (width - 1) / 2


@law
def index_flop(pairs: Numeric, *, heads: Numeric, index_dim: Numeric) -> Numeric:
    r"""Arithmetic of the lightning indexer: a score of every head for every query and key.

    .. math::
        F = 2\, P\, H\, d

    Parameters
    ----------
    pairs : numeric
        Pairs of a query and a cached position, :math:`P`. [-]
    heads : numeric
        Index heads, :math:`H`. [-]
    index_dim : numeric
        Width of an index head, :math:`d`. [FLOP]

    Returns
    -------
    flop : numeric
        Floating-point operations of one layer. [FLOP]

    Notes
    -----
    Valid for any number of pairs. The weighted sum over the heads and the selection of the
    best positions are not counted [1]_. A width counts multiply-adds here, one per number and
    pair of positions, so it carries the unit of the result.

    Examples
    --------
    >>> f"{index_flop(96 * 65536, heads=64, index_dim=128):.4e}"
    '1.0308e+11'

    References
    ----------
    .. [1] deepseekdsa2025, Sec. 2, eq. 1.
    """
    return 2 * pairs * heads * index_dim


@law
def index_bytes(
    tokens: Numeric,
    keys: Numeric,
    *,
    heads: Numeric,
    index_dim: Numeric,
    kv_bytes: Numeric,
    activation_bytes: Numeric,
) -> Numeric:
    r"""Traffic to device memory of the lightning indexer.

    One index key per cached position, read once for all heads and all query tokens of its
    request [1]_; the queries come in once.

    .. math::
        B = n\, d\, c + t\, H\, d\, a

    Parameters
    ----------
    tokens : numeric
        Query tokens of all requests, :math:`t`. [-]
    keys : numeric
        Cached positions of all requests, :math:`n`. [-]
    heads : numeric
        Index heads, :math:`H`. [-]
    index_dim : numeric
        Width of an index head, :math:`d`. [-]
    kv_bytes : numeric
        Bytes of one number in the cache, :math:`c`. [B]
    activation_bytes : numeric
        Bytes of one number of a query, :math:`a`. [B]

    Returns
    -------
    bytes_moved : numeric
        Bytes read and written in one layer. [B]

    Notes
    -----
    Valid while scores stay on the die until the selection, as in the fused operator.

    Examples
    --------
    >>> f"{index_bytes(96, 48 * 65536, heads=64, index_dim=128, kv_bytes=2, activation_bytes=2):.4e}"
    '8.0688e+08'

    References
    ----------
    .. [1] deepseekdsa2025, Sec. 2.
    """
    return keys * index_dim * kv_bytes + tokens * heads * index_dim * activation_bytes
