"""Decode instances of different sizes: when they waste fewer nodes than equal ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cm384model.planning.pairs import sustained_rate
from cm384model.planning.problem import Pools, Problem


@dataclass(frozen=True)
class Mixed:
    """A mix of decode options beside equal prefill instances, and the rate it serves."""

    decode: np.ndarray
    decode_instances: np.ndarray
    prefill_instances: int
    npus: int
    rate: float


def best_mix(problem: Problem, winner: Pools) -> Mixed | None:
    """The mix of decode sizes that serves the most beside prefill instances of the winner's kind.

    A mixed-integer linear program: whole instances :math:`n_i` of every decode size, one choice
    :math:`z_m` of the number of prefill instances, and the rate :math:`R`,

    .. math::
        \\max R, \\quad R \\le \\sum_i n_i r_i, \\quad R \\le \\sum_m z_m \\rho_m, \\quad
        \\sum_m z_m = 1, \\quad \\sum_i n_i N_i + \\sum_m z_m m N_p \\le N,

    and :math:`\\sum_i n_i r_i D\\,t_i` within the limit on concurrency, where :math:`\\rho_m` is the
    rate that :math:`m` prefill instances sustain within the TTFT. Only decode options that leave
    prefill no less time than the winner take part, so that its TTFT
    budget holds for all of them. Solved exactly by HiGHS.

    Returns
    -------
    Mixed or None
        None when the solver finds no mix.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    first, option = int(winner.decode[0]), int(winner.prefill[0])
    sizes = _best_of_every_size(problem, first)
    rates, each = problem.decode.rate[sizes], problem.decode.npus[sizes]
    prefill_npus = problem.prefill.npus[option]
    counts = np.arange(1, int(problem.npus // prefill_npus) + 1)
    each_prefill = sustained_rate(problem, np.array([option]), problem.budget(np.array([first])))
    sustained = np.minimum(counts * float(each_prefill[0]), problem.prefill.most[option])
    columns = len(sizes) + len(counts) + 1
    decode_row, prefill_row, choice_row, npus_row, flight_row = np.zeros((5, columns))
    decode_row[: len(sizes)], decode_row[-1] = rates, -1
    prefill_row[len(sizes) : -1], prefill_row[-1] = sustained, -1
    choice_row[len(sizes) : -1] = 1
    npus_row[: len(sizes)], npus_row[len(sizes) : -1] = each, counts * prefill_npus
    flight_row[: len(sizes)] = rates * problem.output_len * problem.decode.tpot[sizes]
    whole = np.ones(columns)
    whole[-1] = 0
    objective = np.zeros(columns)
    objective[-1] = -1
    solved = milp(
        objective,
        integrality=whole,
        bounds=Bounds(np.zeros(columns), np.full(columns, np.inf)),
        constraints=LinearConstraint(
            np.array([decode_row, prefill_row, choice_row, npus_row, flight_row]),
            [0, 0, 1, 0, 0],
            [np.inf, np.inf, 1, problem.npus, problem.request.max_concurrency],
        ),
    )
    if solved.x is None:
        return None
    instances = np.round(solved.x[: len(sizes)]).astype(int)
    prefill_instances = int(counts[int(np.argmax(solved.x[len(sizes) : -1]))])
    rate = min(float(instances @ rates), float(sustained[prefill_instances - 1]))
    used = np.flatnonzero(instances)
    npus = int(instances @ each + prefill_instances * prefill_npus)
    return Mixed(sizes[used], instances[used], prefill_instances, npus, rate)


def _best_of_every_size(problem: Problem, first: int) -> np.ndarray:
    """The fastest option of every decode size, of those that leave prefill the winner's time."""
    d = problem.decode
    budget = problem.budget(np.arange(len(d)))
    rows = np.flatnonzero(budget >= budget[first] - 1e-12)
    order = rows[np.lexsort((-d.rate[rows], d.npus[rows]))]
    _, firsts = np.unique(d.npus[order], return_index=True)
    kept: np.ndarray = order[firsts]
    return kept
