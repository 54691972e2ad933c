"""How fast the planner walks its decode space on one core, and how that grows.

The plain loop calls the same `decode_step` once per candidate with floats. It would take minutes
for the whole space, so it runs over a random sample and is extrapolated.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import resource
import statistics
import time
from dataclasses import replace

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from cm384model.numeric import LAWS
from cm384model.planning import space
from cm384model.planning.layouts import ATTENTION_TP
from cm384model.planning.request import Request, Slo
from cm384model.planning.space import decode_space
from cm384model.planning.walk import Explored
from cm384model.prediction.case import Case, load_case
from cm384model.prediction.decode import DecodeDeployment, decode_step

PEERS = """
other tools on the same work, as recorded when this project began (2-core machine)
aiconfigurator 0.12.0   3,861 distinct workers in 59 s                       65 candidates/s
shallowsim              855-row sweep in 7.5 s                              114 candidates/s
calculon                6 ms per configuration                              167 candidates/s
light-llm-simulator     its default search takes 26 min; number of candidates not printed
""".strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--workload", default="deepseek-r1-4k-256")
    parser.add_argument("--npus", type=int, default=384)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--sample", type=int, default=1000, help="candidates that the plain loop evaluates")
    parser.add_argument("--scaling", action="store_true", help="also walk 1, 10 and 100 million candidates")
    options = parser.parse_args()
    one_core()

    case = load_case(options.workload)
    limit = float(case.workload.slo.tpot.si)
    request = Request(options.npus, Slo(limit, float("inf")))
    walk(case, request)  # warms the caches
    runs = [walk(case, request) for _ in range(options.runs)]
    seconds, found = statistics.median(run[0] for run in runs), runs[0][1]
    loop = plain_loop(case, options.npus, options.sample)

    print(f"decode candidates      {found.size:>14,}   of which evaluated {found.evaluated:,}, rest pruned")
    print(f"walk                   {seconds:>14.3f} s      median of {options.runs} runs on one core")
    print(f"                       {found.evaluated / seconds:>14,.0f} evaluated candidates/s")
    print(f"                       {found.size / seconds:>14,.0f} considered candidates/s")
    print(f"outside the laws       {outside_the_laws(case, request):>14.0%}        of the time")
    print(f"plain loop             {1 / loop:>14,.0f} candidates/s, from {options.sample:,} calls")
    print(f"ratio                  {found.evaluated * loop / seconds:>14,.0f}   on the evaluated candidates")
    print(PEERS)
    if options.scaling:
        scaling(case, options.npus)


def one_core() -> None:
    """Stay on one core where the system lets us choose."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def walk(case: Case, request: Request) -> tuple[float, Explored]:
    start = time.perf_counter()
    found = decode_space(case, request, request.npus)
    return time.perf_counter() - start, found


def outside_the_laws(case: Case, request: Request) -> float:
    """Share of the walk's time that is not spent inside a law."""
    profile = cProfile.Profile()
    profile.runcall(walk, case, request)
    stats = pstats.Stats(profile)
    law_code = {
        (law.__wrapped__.__code__.co_filename, law.__wrapped__.__code__.co_name) for law in LAWS.values()
    }
    inside = sum(
        cumulative
        for (file, _, name), (_, _, _, cumulative, _) in stats.stats.items()  # type: ignore[attr-defined]
        if (file, name) in law_code
    )
    return 1 - inside / stats.total_tt  # type: ignore[attr-defined]


def plain_loop(case: Case, npus: int, count: int) -> float:
    """Seconds per scalar call."""
    rng = np.random.default_rng(0)
    sizes = space.instance_sizes(case, npus)
    shares = np.concatenate([[1.0], space.core_shares(case)])
    redundant = float(case.engine.layout.redundant_experts.si)
    points = [
        DecodeDeployment(
            ep=float(rng.choice(sizes)),
            batch_per_die=float(rng.integers(1, 129)),
            kv_len=float(case.decode_kv_len),
            microbatches=2.0 if share < 1 else 1.0,
            attention_aic_share=share,
            draft_tokens=float(rng.integers(0, 4)),
            acceptance=float(case.workload.serving.acceptance.si),
            imbalance=float(case.imbalance(case.workload.serving.balance)),
            redundant_experts=redundant,
            attention_tp=float(rng.choice(ATTENTION_TP)),
        )
        for share in map(float, rng.choice(shares, count))
    ]
    start = time.perf_counter()
    for point in points:
        decode_step(case.system, point)
    return (time.perf_counter() - start) / count


def scaling(case: Case, npus: int) -> None:
    """Walks of 1 to 100 million candidates that no limit prunes, with time and peak memory."""
    print("\nevaluated candidates      time   per million   peak memory of the process")
    roomy = replace(case, hardware=case.replaced("hardware.die.hbm_capacity", 1e15).hardware)
    for batches in (36, 362, 3617):
        space.MAX_BATCH_PER_DIE = batches
        seconds, found = walk(roomy, Request(npus, Slo(float("inf"), float("inf"))))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        per_million = seconds / found.evaluated * 1e6
        print(f"{found.evaluated:>20,} {seconds:>8.1f} s {per_million:>11.3f} s {peak:>10.0f} MB")


if __name__ == "__main__":
    main()
