"""Matrix products: dense, grouped by expert, and batched by head."""

from __future__ import annotations

import numpy as np

from cm384model.numeric import Numeric, ceil_div, law, whole_units


@law
def gemm_flop(
    m: Numeric,
    n: Numeric,
    k: Numeric,
    groups: Numeric,
    *,
    multiply_add_flop: Numeric = 2,
) -> Numeric:
    r"""FLOP of equal matrix products.

    Each of the :math:`G` products multiplies :math:`M \times K` activations by
    :math:`K \times N` weights [1]_.

    .. math::
        F = \phi\,G\,M\,N\,K

    Parameters
    ----------
    m : numeric
        Rows of one product, :math:`M`; a mean over groups need not be whole. [-]
    n : numeric
        Columns of one product, :math:`N`. [-]
    k : numeric
        Depth of one product, :math:`K`. [-]
    groups : numeric
        Equal products, :math:`G`; 1 for a dense layer. [-]
    multiply_add_flop : numeric
        FLOP of one multiply-add, :math:`\phi`; 2 by the common count. [FLOP]

    Returns
    -------
    flop : numeric
        FLOP of all products, without padding. [FLOP]

    Notes
    -----
    Valid for all non-negative sizes. Padding to hardware tiles costs time, not
    FLOP: it is in `gemm_compute_time`.

    Examples
    --------
    >>> f"{gemm_flop(96, 7168, 16384, 1):.4e}"
    '2.2549e+10'

    References
    ----------
    .. [1] williams2009.
    """
    return multiply_add_flop * groups * m * n * k


@law
def gemm_bytes(
    m: Numeric,
    n: Numeric,
    k: Numeric,
    groups: Numeric,
    *,
    activation_bytes: Numeric,
    weight_bytes: Numeric,
    output_bytes: Numeric,
) -> Numeric:
    r"""Compulsory traffic of equal matrix products.

    Activations and weights are read once and the result is written once [1]_.

    .. math::
        B = G \left(M K\,b_a + N K\,b_w + M N\,b_o\right)

    Parameters
    ----------
    m : numeric
        Rows of one product, :math:`M`. [-]
    n : numeric
        Columns of one product, :math:`N`. [-]
    k : numeric
        Depth of one product, :math:`K`. [-]
    groups : numeric
        Equal products, :math:`G`; of grouped experts, those that get a row. [-]
    activation_bytes : numeric
        Bytes of one activation element, :math:`b_a`. [B]
    weight_bytes : numeric
        Bytes of one weight element, :math:`b_w`. [B]
    output_bytes : numeric
        Bytes moved for one result element, :math:`b_o`. [B]

    Returns
    -------
    bytes : numeric
        Traffic to device memory. [B]

    Notes
    -----
    Valid when no operand is read twice. INT8 products on the 910C are fitted
    with ``output_bytes = 6``, read as an INT32 sum written by the cube cores (4)
    and a BF16 result by the vector cores (2); the kernel was not inspected.

    Examples
    --------
    >>> f"{gemm_bytes(96, 7168, 16384, 1, activation_bytes=1, weight_bytes=1, output_bytes=6):.4e}"
    '1.2314e+08'

    References
    ----------
    .. [1] williams2009.
    """
    return groups * (m * k * activation_bytes + n * k * weight_bytes + m * n * output_bytes)


@law
def gemm_compute_time(
    m: Numeric,
    n: Numeric,
    k: Numeric,
    groups: Numeric,
    *,
    flop_rate: Numeric,
    cores: Numeric,
    row_quantum: Numeric,
    tile_m: Numeric,
    tile_n: Numeric,
    fill_depth: Numeric,
    efficiency: Numeric,
    multiply_add_flop: Numeric = 2,
    rows_vary: Numeric = 0,
) -> Numeric:
    r"""Time of the arithmetic of equal matrix products on the cube cores.

    Each core computes one tile of the result at a time, so the tiles run in
    whole waves over the cores; with less than one wave the kernel splits the
    depth, and all cores share the tiles there are. A tile of few rows is cut down to the row
    quantum of the cube, and every tile pays the fill of its pipeline [1]_. Where
    the rows vary around :math:`M` from product to product, as those of experts do,
    tiles and waves are counted in the mean: half of the last one is in use.

    .. math::
        t = w\, \frac{\phi\,h\,T_N\,(K + K_0)}{\eta\,R / c},
        \qquad n = G\,u\left(\frac{M}{T_M}\right) \left\lceil \frac{N}{T_N} \right\rceil,
        \quad w = u\left(\frac{n}{c}\right) - \max\left(0, 1 - \frac{n}{c}\right),
        \quad h = \min\left(T_M, q\,u\left(\frac{M}{q}\right)\right),
        \quad u(x) = \begin{cases} \lceil x \rceil & v = 0 \\
            \max\left(1, x + \frac{1}{2}\right) & v = 1 \end{cases}

    Parameters
    ----------
    m : numeric
        Rows of one product, :math:`M`; a mean over groups need not be whole. [-]
    n : numeric
        Columns of one product, :math:`N`. [-]
    k : numeric
        Depth of one product, :math:`K`. [-]
    groups : numeric
        Equal products, :math:`G`. [-]
    flop_rate : numeric
        Peak rate of the given cores together, :math:`R`. [FLOP/s]
    cores : numeric
        Cores that compute, :math:`c`. [-]
    row_quantum : numeric
        Rows of the smallest block the cube computes, :math:`q`. [-]
    tile_m : numeric
        Rows of a full tile, :math:`T_M`. [-]
    tile_n : numeric
        Columns of a tile, :math:`T_N`. [-]
    fill_depth : numeric
        Depth that costs as much as the pipeline fill, :math:`K_0`. [-]
    efficiency : numeric
        Share of the peak that deep full tiles reach, :math:`\eta`. [-]
    multiply_add_flop : numeric
        FLOP of one multiply-add, :math:`\phi`; 2 by the common count. [FLOP]
    rows_vary : numeric
        1 where rows spread, :math:`v`, and :math:`M` is their mean; 0 where all have it. [-]

    Returns
    -------
    time : numeric
        Time of the arithmetic alone. [s]

    Notes
    -----
    Valid for ``q <= tile_m``. Half the cores take half the rate. The mean over varying
    rows takes them to spread evenly over one tile; no row tells their true spread.

    Leave-one-out error through `roofline_time` on the rows of the fit [1]_ [2]_,
    median and mean: INT8 with its quantisation and grouped INT8 5.3 %, 7.1 %
    (54 rows); BF16 7.9 %, 10.5 % (46; worst at 512 rows on weights beyond
    100 MB, up to 33 % too fast). The validation ledger has the errors of today,
    the production rows that no fit saw among them.

    Examples
    --------
    >>> cube = dict(flop_rate=752e12, cores=24, row_quantum=16, tile_m=128, tile_n=152)
    >>> time = gemm_compute_time(7168, 4096, 4096, 4, fill_depth=124, efficiency=0.915, **cube)
    >>> f"{time:.4e}"
    '1.4433e-03'

    References
    ----------
    .. [1] zuo2025, Table 10.
    .. [2] aicnpu2026.
    """
    tiles = groups * whole_units(m / tile_m, mean=rows_vary) * ceil_div(n, tile_n)
    waves = whole_units(tiles / cores, mean=rows_vary) - np.maximum(1 - tiles / cores, 0)
    tile_rows = np.minimum(tile_m, row_quantum * whole_units(m / row_quantum, mean=rows_vary))
    tile_flop = multiply_add_flop * tile_rows * tile_n * (k + fill_depth)
    return waves * tile_flop / (efficiency * flop_rate / cores)


@law
def gemm_memory_time(
    m: Numeric,
    n: Numeric,
    k: Numeric,
    groups: Numeric,
    *,
    activation_bytes: Numeric,
    weight_bytes: Numeric,
    output_bytes: Numeric,
    bandwidth: Numeric,
    efficiency: Numeric,
) -> Numeric:
    r"""Time of the device-memory traffic of equal matrix products.

    The compulsory traffic of `gemm_bytes` at the sustained bandwidth [1]_.

    .. math::
        t = \frac{G \left(M K\,b_a + N K\,b_w + M N\,b_o\right)}{\eta\,\beta}

    Parameters
    ----------
    m : numeric
        Rows of one product, :math:`M`. [-]
    n : numeric
        Columns of one product, :math:`N`. [-]
    k : numeric
        Depth of one product, :math:`K`. [-]
    groups : numeric
        Equal products, :math:`G`; of grouped experts, those that get a row. [-]
    activation_bytes : numeric
        Bytes of one activation element, :math:`b_a`. [B]
    weight_bytes : numeric
        Bytes of one weight element, :math:`b_w`. [B]
    output_bytes : numeric
        Bytes moved for one result element, :math:`b_o`. [B]
    bandwidth : numeric
        Nominal bandwidth of device memory, :math:`\beta`. [B/s]
    efficiency : numeric
        Share of the bandwidth that the kernel sustains, :math:`\eta`. [-]

    Returns
    -------
    time : numeric
        Time of the traffic alone. [s]

    Notes
    -----
    Valid for weights that come from device memory: a benchmark that repeats one
    product seems to find part of a weight below 40 MB in the L2 cache (a fitted
    29 % of it at BF16 [2]_). No second read of the weights per row tile is in
    this law. The best of five forms tried, with two more constants, lowers the
    leave-one-out error at BF16 from 7.1 % to 5.2 % (median) and from 8.8 % to
    7.8 % (mean); at INT8 the form tried fits to no effect.

    Examples
    --------
    >>> element = dict(activation_bytes=1, weight_bytes=1, output_bytes=6)
    >>> time = gemm_memory_time(96, 7168, 16384, 1, bandwidth=1600e9, efficiency=1, **element)
    >>> f"{time:.4e}"
    '7.6964e-05'

    References
    ----------
    .. [1] williams2009.
    .. [2] aicnpu2026.
    """
    traffic = groups * (m * k * activation_bytes + n * k * weight_bytes + m * n * output_bytes)
    return traffic / (efficiency * bandwidth)
