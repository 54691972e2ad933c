"""Multi-token prediction: what a chain of draft tokens is worth."""

from __future__ import annotations

import numpy as np

from cm384model.numeric import Numeric, law


@law
def expected_tokens(draft_tokens: Numeric, acceptance: Numeric) -> Numeric:
    r"""Tokens that one decode iteration yields per request, on average.

    A draft counts only if every draft before it was accepted, so the chain is
    a truncated geometric series [1]_; the first token is always right.

    .. math::
        E = \sum_{i=0}^{k} a^i = 1 + a + \dots + a^k

    Parameters
    ----------
    draft_tokens : numeric
        Draft tokens verified per iteration, :math:`k`, a whole number. [-]
    acceptance : numeric
        Probability that a draft is accepted when all before it were, :math:`a`. [-]

    Returns
    -------
    tokens : numeric
        Expected tokens per iteration and request. [-]

    Notes
    -----
    Valid for ``0 <= acceptance <= 1`` and ``0 <= draft_tokens <= 4``: the sum is
    written out, so that it holds at ``acceptance = 1`` where the closed form
    divides by zero. Acceptance is the same at every position; a measured
    chain with falling acceptance yields less. At 1 draft and 0.7 it is the
    paper's 1.7 tokens per iteration.

    Examples
    --------
    >>> f"{expected_tokens(1, 0.7):.2f}"
    '1.70'
    >>> f"{expected_tokens(3, 0.5):.3f}"
    '1.875'

    References
    ----------
    .. [1] leviathan2023, eq. 1; zuo2025, Sec. 5.4.2.
    """
    k, a = draft_tokens, acceptance
    return 1 + (k >= 1) * a + (k >= 2) * a * a + (k >= 3) * a * a * a + (k >= 4) * a * a * a * a


@law
def time_per_output_token(step_time: Numeric, tokens_per_step: Numeric) -> Numeric:
    r"""TPOT of a request that receives several tokens per decode iteration.

    .. math::
        \mathrm{TPOT} = \frac{t_{step}}{E}

    Parameters
    ----------
    step_time : numeric
        Duration of one decode iteration, :math:`t_{step}`. [s]
    tokens_per_step : numeric
        Expected tokens per iteration and request, :math:`E`. [-]

    Returns
    -------
    tpot : numeric
        Mean time per output token after the first. [s]

    Notes
    -----
    Valid for ``tokens_per_step >= 1``. This amortised figure is the one that every
    published TPOT with MTP means [1]_; a reader sees the tokens in bursts of one step.

    Examples
    --------
    >>> f"{time_per_output_token(0.068, 1.7):.3f}"
    '0.040'

    References
    ----------
    .. [1] zuo2025, Sec. 5.2: throughput per NPU = batch / TPOT.
    """
    return np.divide(step_time, tokens_per_step)
