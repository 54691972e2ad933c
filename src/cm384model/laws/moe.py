"""Experts on dies: where they live, and how many token rows reach the busiest of them."""

from __future__ import annotations

import numpy as np

from cm384model.numeric import Numeric, ceil_div, law


@law
def shared_expert_dies(
    ep: Numeric,
    routed_experts: Numeric,
    *,
    top_k: Numeric,
    shared_experts: Numeric,
    dies_per_node: Numeric,
) -> Numeric:
    r"""Dies that hold nothing but a copy of the shared expert.

    With more dies than routed experts an instance gives each expert a die of
    its own. Every token visits :math:`k` routed experts and :math:`s` shared
    ones, so a fair share of dies for the shared copies is
    :math:`e\,s/(k+s)`; it is rounded down to whole nodes.

    .. math::
        d = [e > R]\; n \left\lfloor \frac{e\,s}{(k+s)\,n} \right\rfloor

    Parameters
    ----------
    ep : numeric
        Expert-parallel degree in dies, :math:`e`. [-]
    routed_experts : numeric
        Routed experts of a layer, :math:`R`. [-]
    top_k : numeric
        Routed experts a token visits, :math:`k`. [-]
    shared_experts : numeric
        Shared experts a token visits, :math:`s`. [-]
    dies_per_node : numeric
        Dies of one node, :math:`n`. [-]

    Returns
    -------
    dies : numeric
        Dies with a dedicated shared-expert copy; 0 when the shared expert is on every die. [-]

    Notes
    -----
    Valid for any ``ep >= 1``. Gives the published placements: 32 copies at EP320 [1]_ and at
    EP288. Up to ``ep = routed_experts`` the shared expert is replicated on every die.

    Examples
    --------
    >>> int(shared_expert_dies(320, 256, top_k=8, shared_experts=1, dies_per_node=16))
    32

    References
    ----------
    .. [1] zuo2025, Sec. 4.1: EP320 = 256 routed + 32 redundant + 32 shared copies.
    """
    share = ep * shared_experts / (top_k + shared_experts)
    return (ep > routed_experts) * (share // dies_per_node) * dies_per_node


@law
def expert_slots_per_die(
    ep: Numeric,
    routed_experts: Numeric,
    redundant_experts: Numeric,
    *,
    shared_dies: Numeric,
) -> Numeric:
    r"""Routed experts, redundant copies included, that one die of the routed pool holds.

    .. math::
        g = \max\left(1, \left\lceil \frac{R + r}{e - d} \right\rceil\right)

    where redundancy gives way to placement: with fewer than :math:`R + r` but at
    least :math:`R` dies in the pool, each die still holds one.

    Parameters
    ----------
    ep : numeric
        Expert-parallel degree in dies, :math:`e`. [-]
    routed_experts : numeric
        Routed experts of a layer, :math:`R`. [-]
    redundant_experts : numeric
        Extra copies of popular experts wanted, :math:`r`. [-]
    shared_dies : numeric
        Dies that hold only the shared expert, :math:`d`. [-]

    Returns
    -------
    slots : numeric
        Expert slots per die. [-]

    Notes
    -----
    Valid for ``ep - shared_dies >= 1``. Gives 9 routed slots at EP32, 2 at EP144 and 1 at
    EP320, the published placements [1]_.

    Examples
    --------
    >>> [int(expert_slots_per_die(ep, 256, 32, shared_dies=d)) for ep, d in [(32, 0), (144, 0), (320, 32)]]
    [9, 2, 1]

    References
    ----------
    .. [1] zuo2025, Sec. 4.1 and Sec. 3.5.1 (DeepSeek's own deployment).
    """
    pool = ep - shared_dies
    return np.where(pool >= routed_experts, 1, ceil_div(routed_experts + redundant_experts, pool))


@law
def expert_rows(
    tokens_per_die: Numeric,
    ep: Numeric,
    *,
    top_k: Numeric,
    pool_dies: Numeric,
    imbalance: Numeric,
) -> Numeric:
    r"""Token rows that arrive at the busiest die of the routed pool.

    .. math::
        m = \lambda\, \frac{e\,t\,k}{p}

    Parameters
    ----------
    tokens_per_die : numeric
        Tokens that each die sends into the layer, :math:`t`. [tokens]
    ep : numeric
        Expert-parallel degree in dies, :math:`e`. [-]
    top_k : numeric
        Experts that each token visits in this pool, :math:`k`. [-]
    pool_dies : numeric
        Dies that share the pool's experts, :math:`p`. [-]
    imbalance : numeric
        Load of the busiest die over the mean load, :math:`\lambda`. [-]

    Returns
    -------
    rows : numeric
        Token rows at the busiest die. [tokens]

    Notes
    -----
    Valid for ``1 <= imbalance <= pool_dies``. A layer ends when its busiest die ends,
    which is why the maximum and not the mean counts [1]_.

    Examples
    --------
    >>> f"{expert_rows(96, 320, top_k=8, pool_dies=288, imbalance=1.0):.1f}"
    '853.3'

    References
    ----------
    .. [1] deepseek2025, Sec. 3.4 (redundant experts for load balance).
    """
    return imbalance * ep * tokens_per_die * top_k / pool_dies


@law
def experts_touched(slots: Numeric, draws: Numeric, *, choices: Numeric) -> Numeric:
    r"""Expert slots of a die that at least one token row reaches.

    Only these have their weights read, which is what makes a tiny batch cheap.

    .. math::
        g' = g \left(1 - \left(1 - \frac{1}{c}\right)^{n}\right)

    Parameters
    ----------
    slots : numeric
        Expert slots on the die, :math:`g`. [-]
    draws : numeric
        Token-expert pairs of the whole instance, :math:`n`. [-]
    choices : numeric
        Expert slots of the whole instance, :math:`c`. [-]

    Returns
    -------
    slots : numeric
        Expected number of slots in use. [-]

    Notes
    -----
    Valid for draws that are independent and uniform; a real router's picks are
    distinct within a token, which changes the count by less than 2 % for 8 of 256 [1]_.

    Examples
    --------
    >>> f"{experts_touched(9, 512, choices=288):.2f}"
    '7.48'

    References
    ----------
    .. [1] deepseek2025, Sec. 2.1.2 (top-8 of 256 routing).
    """
    return slots * (1 - np.power(1 - 1 / choices, draws))


@law
def redundancy_imbalance(
    redundant_experts: Numeric,
    *,
    unbalanced: Numeric,
    balanced: Numeric,
    reference_experts: Numeric,
) -> Numeric:
    r"""Load of the busiest die when popular experts have redundant copies.

    Each further copy takes a share of the excess load that is left, so the excess
    falls geometrically through its two known points: none, and the reference number.

    .. math::
        \lambda(r) = 1 + (\lambda_0 - 1)
            \left(\frac{\lambda_1 - 1}{\lambda_0 - 1}\right)^{r / r_1}

    Parameters
    ----------
    redundant_experts : numeric
        Redundant copies, :math:`r`. [-]
    unbalanced : numeric
        Imbalance without copies, :math:`\lambda_0`. [-]
    balanced : numeric
        Imbalance with the reference number of copies, :math:`\lambda_1`. [-]
    reference_experts : numeric
        That number, :math:`r_1`. [-]

    Returns
    -------
    imbalance : numeric
        Load of the busiest die over the mean load. [-]

    Notes
    -----
    Valid for ``1 < balanced <= unbalanced``. Two points and a form: measured curves of
    imbalance against copies are not published for this machine, only that periodic
    balancing leaves 1.3 to 2.6 where none leaves 2 to 4 [1]_.

    Examples
    --------
    >>> f"{redundancy_imbalance(16, unbalanced=2.0, balanced=1.36, reference_experts=32):.2f}"
    '1.60'

    References
    ----------
    .. [1] ultraep2026, prefill serving table.
    """
    left = (balanced - 1) / (unbalanced - 1)
    return 1 + (unbalanced - 1) * np.power(left, redundant_experts / reference_experts)
