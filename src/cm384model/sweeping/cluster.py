"""The same parts on a Dask cluster: workers compute and encode, this process writes.

Workers need no shared disk and no data files: the study travels to them, the bytes of each part
travel back. A part that is lost with its worker is made again by another one.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from cm384model.specs.diagnostics import SpecError
from cm384model.sweeping.provenance import code_digest
from cm384model.sweeping.run import made
from cm384model.sweeping.store import Part
from cm384model.sweeping.study import Study

Client = Any

PER_THREAD = 2
"""Parts in flight for every thread of the cluster: one computed, one on its way."""
RETRIES = 10
"""How often a part may lose its worker before the sweep gives up."""
FETCH_S = 10.0
"""How long to wait for the bytes of a part before looking whether workers are there. [s]"""
PATIENCE_S = 30.0
"""How long to wait for a worker when there is none. [s]"""


@dataclass(frozen=True)
class Cluster:
    """A cluster by the address of its scheduler, or ``local`` for one worker process per core."""

    address: str

    def __call__(
        self, study: Study, numbers: Iterable[int], form: str, metadata: Mapping[str, str]
    ) -> Iterator[Part]:
        """Make parts on the cluster, in the order in which they are ready.

        Raises
        ------
        SpecError
            If Dask is not installed, no worker is there, or all are gone.
        """
        with ExitStack() as opened:
            client = connected(self, opened)
            yield from _made_there(self, client, study, numbers, form, metadata)


def connected(cluster: Cluster, opened: ExitStack) -> Client:
    """A client of a cluster whose workers run the same model."""
    try:
        import dask
        import distributed
    except ImportError:
        raise SpecError.of(
            "--workers needs Dask, which is not installed", "pip install 'cm384model[dask]'"
        ) from None
    logging.getLogger("distributed").setLevel(logging.ERROR)  # a lost worker is no warning here
    dask.config.set({"distributed.scheduler.allowed-failures": RETRIES})
    address, patience = cluster.address, PATIENCE_S
    try:
        if address == "local":
            local = distributed.LocalCluster(threads_per_worker=1, dashboard_address=None, silence_logs=50)
            opened.callback(local.close)
            client = distributed.Client(local, timeout=patience)
        else:
            client = distributed.Client(address, timeout=patience)
        opened.callback(client.close)
        client.wait_for_workers(1, timeout=patience)
    except (OSError, TimeoutError, ValueError):
        raise SpecError.of(
            f"no Dask scheduler with workers at '{address}'",
            f"start them with: dask scheduler; dask worker {address}",
        ) from None
    _check_same(client)
    return client


def _check_same(client: Client) -> None:
    """All workers run the same model, or their rows would not be ours."""
    ours = code_digest()
    try:
        digests = client.run(code_digest)
    except ImportError as error:
        raise SpecError.of(f"a worker has no cm384model: {error}", "install it on all workers") from None
    for worker, theirs in digests.items():
        if theirs != ours:
            raise SpecError.of(
                f"worker {worker} has another cm384model", "install the same one on all workers"
            )


def _made_there(
    cluster: Cluster,
    client: Client,
    study: Study,
    numbers: Iterable[int],
    form: str,
    metadata: Mapping[str, str],
) -> Iterator[Part]:
    import distributed

    waiting, running = iter(numbers), set[Any]()
    alone_since: float | None = None
    while True:
        room = PER_THREAD * max(1, sum(client.nthreads().values())) - len(running)
        running |= {
            client.submit(_sent, study, number, form, dict(metadata), pure=False)
            for number in itertools.islice(waiting, max(0, room))
        }
        if not running:
            return
        try:
            done, running = distributed.wait(running, timeout=1.0, return_when="FIRST_COMPLETED")
        except TimeoutError:
            alone_since = _alone_since(cluster, client, alone_since)
            continue
        for future in done:
            part = _received(future)
            if part is None:  # its worker went away with it; the cluster makes it again
                running.add(future)
                alone_since = _alone_since(cluster, client, alone_since)
            else:
                alone_since = None
                yield part


def _alone_since(cluster: Cluster, client: Client, before: float | None) -> float | None:
    """Since when there is no worker, if so."""
    if client.status == "running" and client.nthreads():
        return None
    since = before or time.monotonic()
    if client.status != "running" or time.monotonic() - since > PATIENCE_S:
        raise SpecError.of(f"all workers of '{cluster.address}' are gone", "start workers again")
    return since


def _received(future: Any) -> Part | None:
    """A part that is made, or none if it cannot be fetched in time."""
    try:
        return Part(*future.result(timeout=FETCH_S))
    except TimeoutError:
        return None
    except Exception as error:
        raise SpecError.of(f"a part failed on the cluster: {type(error).__name__}: {error}") from error


def _sent(study: Study, number: int, form: str, metadata: dict[str, str]) -> tuple[int, int, int, bytes]:
    """A part as it travels."""
    part = made(study, number, form, metadata)
    return part.number, part.rows, part.candidates, bytes(part.content)
