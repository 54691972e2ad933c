"""What the run-time dependencies weigh: installed size and import time, transitive ones included."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from importlib import metadata

from packaging.requirements import Requirement

RUNS = 9


def main() -> None:
    direct = sorted(needs("cm384model"))
    everything = closure(direct)
    own = {name: size(name) for name in everything}
    bare = import_time("pass")
    print(f"{'dependency':<20} {'version':>9} {'own':>9} {'with all it needs':>18} {'import':>9}")
    for name in direct:
        total = sum(own[part] for part in closure([name]))
        took = import_time(f"import {name}") - bare
        version = metadata.version(name)
        print(f"{name:<20} {version:>9} {own[name]:>6.1f} MB {total:>15.1f} MB {took:>7.3f} s")
    others = sorted(everything - set(direct))
    print(f"needed by those: {', '.join(others)}")
    print(
        f"installed in all: {sum(own.values()):.0f} MB in {len(everything)} packages, cm384model not counted"
    )


def needs(name: str) -> set[str]:
    """Packages that a package needs here without extras."""
    requirements = [Requirement(text) for text in metadata.requires(name) or []]
    wanted = [r for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})]
    return {re.sub(r"[-_.]+", "-", r.name).lower() for r in wanted}


def closure(names: list[str]) -> set[str]:
    """The packages and everything that they need."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += needs(name)
    return found


def size(name: str) -> float:
    """Installed size without compiled bytecode. [MB]"""
    files = metadata.files(name) or []
    paths = [file.locate() for file in files if "__pycache__" not in file.parts]
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def import_time(statement: str) -> float:
    """Median wall time of a fresh interpreter that runs a statement. [s]"""

    def once() -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True)
        return time.perf_counter() - start

    once()
    return statistics.median(once() for _ in range(RUNS))


if __name__ == "__main__":
    main()
