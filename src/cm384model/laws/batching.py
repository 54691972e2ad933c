"""Continuous batching in decode: the context lengths that a running batch holds."""

from __future__ import annotations

import numpy as np

from cm384model.numeric import Numeric, law


@law
def mean_context(mean_output: Numeric, mean_square_output: Numeric, mean_product: Numeric) -> Numeric:
    r"""Mean context length of a request in a running decode batch.

    A slot is refilled as soon as its request ends, so long outputs are met more often than
    they arrive: the mean over time is that of a renewal-reward process [1]_.

    .. math::
        \theta = \frac{E\left[D P + D (D - 1) / 2\right]}{E[D]}

    Parameters
    ----------
    mean_output : numeric
        Mean output length of a request, :math:`E[D]`, in tokens. [-]
    mean_square_output : numeric
        Mean square of the output length, :math:`E[D^2]`. [-]
    mean_product : numeric
        Mean of prompt length times output length, :math:`E[P D]`. [-]

    Returns
    -------
    context : numeric
        Mean tokens of context per request and iteration, :math:`\theta`. [-]

    Notes
    -----
    Valid for slots that are never empty and for any joint law of prompt and output lengths.
    A request in its first iteration has its prompt as context. With drafts that are accepted
    at a constant rate the moments are the same to within one iteration's tokens.

    Examples
    --------
    >>> f"{mean_context(256, 256**2, 4096 * 256):.1f}"
    '4223.5'

    References
    ----------
    .. [1] afd2026; ross1996.
    """
    return (mean_product + (mean_square_output - mean_output) / 2) / mean_output


@law
def mean_context_fixed(prompt_len: Numeric, output_len: Numeric) -> Numeric:
    r"""Mean context length in a running decode batch when all requests are alike.

    .. math::
        \theta = P + \frac{D - 1}{2}

    Parameters
    ----------
    prompt_len : numeric
        Tokens of every prompt, :math:`P`. [-]
    output_len : numeric
        Tokens of every output, :math:`D`. [-]

    Returns
    -------
    context : numeric
        Mean tokens of context per request and iteration, :math:`\theta`. [-]

    Notes
    -----
    Valid for slots that are never empty; `mean_context` without any spread [1]_.

    Examples
    --------
    >>> f"{mean_context_fixed(4096, 256):.1f}"
    '4223.5'

    References
    ----------
    .. [1] afd2026.
    """
    return prompt_len + (output_len - 1) / 2


@law
def mean_square_context(
    mean_output: Numeric,
    mean_square_output: Numeric,
    mean_cube_output: Numeric,
    mean_product: Numeric,
    mean_prompt_square_output: Numeric,
    mean_prompt_output_square: Numeric,
) -> Numeric:
    r"""Mean square of the context length of a request in a running decode batch [1]_.

    .. math::
        M_2 = \frac{E\left[D P^2 + P D (D - 1) + D (D - 1)(2 D - 1) / 6\right]}{E[D]}

    Parameters
    ----------
    mean_output : numeric
        Mean output length of a request, :math:`E[D]`, in tokens. [-]
    mean_square_output : numeric
        :math:`E[D^2]`. [-]
    mean_cube_output : numeric
        :math:`E[D^3]`. [-]
    mean_product : numeric
        :math:`E[P D]`, with the prompt length :math:`P`. [-]
    mean_prompt_square_output : numeric
        :math:`E[P^2 D]`. [-]
    mean_prompt_output_square : numeric
        :math:`E[P D^2]`. [-]

    Returns
    -------
    square : numeric
        Mean square of the context, :math:`M_2`, in tokens squared. [-]

    Notes
    -----
    Valid as `mean_context`.

    Examples
    --------
    >>> f"{mean_square_context(2, 4, 8, 20, 200, 40):.1f}"
    '110.5'

    References
    ----------
    .. [1] afd2026.
    """
    growth = (2 * mean_cube_output - 3 * mean_square_output + mean_output) / (2 * 3)
    crossed = mean_prompt_output_square - mean_product
    return (mean_prompt_square_output + crossed + growth) / mean_output


@law
def context_variance(context: Numeric, square: Numeric) -> Numeric:
    r"""Variance of the context length of a request in a running decode batch [1]_.

    .. math::
        \nu = M_2 - \theta^2

    Parameters
    ----------
    context : numeric
        Mean context, :math:`\theta`. [-]
    square : numeric
        Mean square of the context, :math:`M_2`. [-]

    Returns
    -------
    variance : numeric
        Variance, :math:`\nu`, in tokens squared. [-]

    Notes
    -----
    Valid as `mean_context`. Even equal requests have one: their ages differ.

    Examples
    --------
    >>> f"{context_variance(10.5, 110.5):.2f}"
    '0.25'

    References
    ----------
    .. [1] afd2026.
    """
    return np.maximum(square - context * context, 0)


@law
def batch_context_percentile(
    context: Numeric, variance: Numeric, batch: Numeric, *, normal_quantile: Numeric
) -> Numeric:
    r"""Percentile of the mean context of the requests of one decode batch.

    Requests of a batch are independent, so their mean is close to normal [1]_.

    .. math::
        \theta_p = \theta + z_p \sqrt{\nu / b}

    Parameters
    ----------
    context : numeric
        Mean context of a request, :math:`\theta`. [-]
    variance : numeric
        Its variance, :math:`\nu`. [-]
    batch : numeric
        Requests in the batch, :math:`b`. [-]
    normal_quantile : numeric
        Quantile of the standard normal distribution, :math:`z_p`; 1.645 for 95 %. [-]

    Returns
    -------
    context : numeric
        Percentile over time of the mean context of the batch. [-]

    Notes
    -----
    Valid for batches of about 16 requests and more. For one request it is a rough guide only:
    the law of one context is as skewed as that of the prompts.

    Examples
    --------
    >>> f"{batch_context_percentile(1500.0, 465e3, 96, normal_quantile=1.645):.0f}"
    '1614'

    References
    ----------
    .. [1] afd2026.
    """
    return context + normal_quantile * np.sqrt(variance / batch)


@law
def slowest_die_context(context: Numeric, variance: Numeric, batch: Numeric, dies: Numeric) -> Numeric:
    r"""Mean context on the die that holds most, which all dies of an instance wait for.

    The expected maximum of as many independent normal means as there are dies [1]_.

    .. math::
        \theta_{max} = \theta + \sqrt{\nu / b} \int_{-\infty}^{\infty} x\,d\Phi(x)^n

    Parameters
    ----------
    context : numeric
        Mean context of a request, :math:`\theta`. [-]
    variance : numeric
        Its variance, :math:`\nu`. [-]
    batch : numeric
        Requests of one die, :math:`b`. [-]
    dies : numeric
        Dies that wait for each other, :math:`n`. [-]

    Returns
    -------
    context : numeric
        Mean over time of the largest mean context of a die. [-]

    Notes
    -----
    Valid for batches of about 16 requests and more per die, placed without regard to their
    lengths; an engine that balances contexts lies between this and `mean_context`. The integral
    is a sum over 4096 steps from -8 to 8 standard deviations, exact to 1e-5.

    Examples
    --------
    >>> f"{slowest_die_context(1500.0, 465e3, 96, 128):.0f}"
    '1681'

    References
    ----------
    .. [1] afd2026.
    """
    points = np.linspace(-4 * 2, 4 * 2, 4**4 * 4**2 + 1)
    density = np.exp(-(points**2) / 2)
    below = np.cumsum(density[1:] + density[:-1])
    chance = (below / below[-1]) ** np.asarray(dies, float)[..., None]
    middle = 0.5 * (points[2:] + points[1:-1])
    deviation = (middle * np.diff(chance, axis=-1)).sum(-1)
    return context + np.sqrt(variance / batch) * deviation
