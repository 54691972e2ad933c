"""Candidates per second of the planner's decode space on one core, and against a plain loop.

The plain loop calls the same `decode_step` once per candidate with floats. It would take minutes
for the whole space, so it runs over a random sample and is extrapolated.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from cm384model.planning.space import Candidates, decode_candidates
from cm384model.prediction.case import Case, load_case
from cm384model.prediction.decode import DecodeDeployment, decode_step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--workload", default="deepseek-r1-4k-256")
    parser.add_argument("--npus", type=int, default=384)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--sample", type=int, default=1000, help="candidates that the plain loop evaluates")
    options = parser.parse_args()
    one_core()

    case = load_case(options.workload)
    limit = float(case.workload.slo.tpot.si)
    candidates = decode_candidates(case, options.npus, limit)  # warms the caches
    grid = statistics.median(timed(case, options.npus, limit) for _ in range(options.runs))
    loop, worst = plain_loop(case, candidates, options.sample)

    size = candidates.size
    print(f"decode candidates      {size:>14,}")
    print(f"vectorised             {grid:>14.3f} s      median of {options.runs} runs on one core")
    print(f"                       {size / grid:>14,.0f} candidates/s")
    print(f"plain loop             {loop * size:>14.1f} s      extrapolated from {options.sample:,} calls")
    print(f"                       {1 / loop:>14,.0f} candidates/s")
    print(f"ratio                  {loop * size / grid:>14,.0f}")
    print(f"largest difference     {worst:>14.1e}        of TPOT, relative, over the sample")


def one_core() -> None:
    """Stay on one core where the system lets us choose."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def timed(case: Case, npus: int, limit: float) -> float:
    start = time.perf_counter()
    decode_candidates(case, npus, limit)
    return time.perf_counter() - start


def plain_loop(case: Case, candidates: Candidates, count: int) -> tuple[float, float]:
    """Seconds per scalar call, and the largest relative difference of TPOT from the grid."""
    system = case.system
    acceptance = float(case.workload.serving.acceptance.si)
    imbalance = case.imbalance(case.workload.serving.balance)
    redundant = float(case.engine.layout.redundant_experts.si)
    flat = np.random.default_rng(0).choice(candidates.size, count, replace=False)
    rows = [tuple(int(i) for i in np.unravel_index(f, candidates.shape)) for f in flat]
    points = [candidates.at(row) for row in rows]
    tpots = []
    start = time.perf_counter()
    for at in points:
        share = at["attention_aic_share"]
        step = decode_step(
            system,
            DecodeDeployment(
                ep=at["ep"],
                batch_per_die=at["batch_per_die"],
                kv_len=case.decode_kv_len,
                microbatches=2.0 if share < 1 else 1.0,
                attention_aic_share=share,
                draft_tokens=at["draft_tokens"],
                acceptance=acceptance,
                imbalance=imbalance,
                redundant_experts=redundant,
            ),
        )
        tpots.append(float(step.tpot))
    seconds = (time.perf_counter() - start) / count
    expected = np.array([candidates.values["tpot"][row] for row in rows])
    return seconds, float(np.max(np.abs(np.array(tpots) / expected - 1)))


if __name__ == "__main__":
    main()
