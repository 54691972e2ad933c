"""Run a sweep: make its parts, here or on a cluster, and write them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import polars as pl

from cm384model.specs.diagnostics import SpecError
from cm384model.sweeping.parts import encode, part_frame
from cm384model.sweeping.provenance import fingerprint
from cm384model.sweeping.store import Part, Store
from cm384model.sweeping.study import Study

Maker = Callable[[Study, Iterable[int], str, Mapping[str, str]], Iterator[Part]]
"""Makes parts by their numbers, in any order, each exactly once."""


@dataclass(frozen=True)
class Summary:
    """What a sweep has done."""

    rows: int
    candidates: int
    resumed: int
    elapsed_s: float


def sweep(
    study: Study,
    store: Store,
    said: Mapping[str, Any],
    *,
    resume: bool = False,
    force: bool = False,
    maker: Maker | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Summary:
    """Make and write every part that is missing, then the whole.

    Parameters
    ----------
    said : mapping
        Provenance, for the sidecar.
    progress : callable, optional
        Told the candidates that are behind, and all of them.

    Raises
    ------
    SpecError
        If something is in the way, or cannot be written; what is left is said.
    KeyboardInterrupt
        As it came; what is left is whole.
    """
    started = time.perf_counter()
    make = maker or make_here
    try:
        store.open(fingerprint(study, store.form), said, resume=resume, force=force)
        resumed = len(store.done)
        rows = _run(study, store, said, make, progress, started)
    finally:
        store.close()
    return Summary(rows, study.candidates, resumed, time.perf_counter() - started)


def _run(
    study: Study,
    store: Store,
    said: Mapping[str, Any],
    make: Maker,
    progress: Callable[[int, int], None] | None,
    started: float,
) -> int:
    try:
        for part in make(study, store.missing, store.part_form, store.metadata):
            store.add(part)
            if progress is not None:
                progress(store.candidates, study.candidates)
        return store.finish({**said, "elapsed_s": round(time.perf_counter() - started, 3)})
    except (OSError, pl.exceptions.PolarsError) as error:
        raise store.stopped(error) from error
    except SpecError as error:
        unfinished = SpecError.of(f"the sweep is not finished: {store.state()}", _AGAIN)
        raise SpecError([*error.problems, *unfinished.problems]) from None


_AGAIN = "the same command with --resume continues"


def make_here(
    study: Study, numbers: Iterable[int], form: str, metadata: Mapping[str, str], threads: int | None = None
) -> Iterator[Part]:
    """Make parts on this machine, as many at once as there are cores up to a few."""
    threads = threads or min(4, len(os.sched_getaffinity(0)))
    pool = ThreadPoolExecutor(threads)
    running: set[Future[Part]] = set()
    try:
        for number in numbers:
            running.add(pool.submit(made, study, number, form, metadata))
            if len(running) >= threads:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def made(study: Study, number: int, form: str, metadata: Mapping[str, str]) -> Part:
    """One part of a sweep."""
    frame, candidates = part_frame(study, number)
    return Part(number, len(frame), candidates, encode(frame, form, metadata))
