"""Whole-process wall time of the command line, where it goes, and its peak memory.

Times are medians over fresh processes; each is also given as a ratio to a bare ``python -c pass``
on the same machine, which is what a slow disk or a busy core scales.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

WORKLOAD = "deepseek-r1-4k-256"
CM384 = str(Path(sys.executable).with_name("cm384"))
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "cm384 --help": [CM384, "--help"],
    "cm384 list workloads": [CM384, "list", "workloads"],
    f"cm384 plan {WORKLOAD}": [CM384, "plan", WORKLOAD],
}

BREAKDOWN = """
import json, time
start = time.perf_counter()
marks = {}
def mark(name):
    global start
    now = time.perf_counter()
    marks[name] = now - start
    start = time.perf_counter()
import cm384model.api as api
from cm384model.planning import search
mark("import")
case = api.load_case("WORKLOAD")
mark("load")
spent = {"evaluate": 0.0}
def timed(function):
    def call(*args, **kwargs):
        begin = time.perf_counter()
        result = function(*args, **kwargs)
        spent["evaluate"] += time.perf_counter() - begin
        return result
    return call
search.decode_space = timed(search.decode_space)
search.prefill_space = timed(search.prefill_space)
api.plan(case)
mark("plan")
marks["evaluate"] = spent["evaluate"]
marks["search"] = marks.pop("plan") - spent["evaluate"]
print(json.dumps(marks))
""".replace("WORKLOAD", WORKLOAD)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=11)
    runs = parser.parse_args().runs

    print(f"{'command':<32} {'median':>9} {'ratio':>7} {'peak memory':>13}")
    bare = 0.0
    for name, command in COMMANDS.items():
        measured = [once(command) for _ in range(runs + 1)][1:]  # the first run warms the disk cache
        median = statistics.median(wall for wall, _ in measured)
        memory = statistics.median(peak for _, peak in measured)
        bare = bare or median
        print(f"{name:<32} {median:>7.3f} s {median / bare:>7.1f} {memory / 1e6:>10.0f} MB")

    parts = [json.loads(python(BREAKDOWN)) for _ in range(runs)]
    print(f"\nwhere a plan's time goes, the same call in Python, medians of {runs}")
    for name in parts[0]:
        print(f"{name:<32} {statistics.median(part[name] for part in parts):>7.3f} s")


def once(command: list[str]) -> tuple[float, float]:
    """Wall time [s] and peak memory [B] of one process."""
    null = os.open(os.devnull, os.O_WRONLY)
    quiet = [(os.POSIX_SPAWN_DUP2, null, 1), (os.POSIX_SPAWN_DUP2, null, 2)]
    start = time.perf_counter()
    child = os.posix_spawn(command[0], command, os.environ, file_actions=quiet)
    _, status, usage = os.wait4(child, 0)
    wall = time.perf_counter() - start
    os.close(null)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with status {os.waitstatus_to_exitcode(status)}")
    return wall, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
