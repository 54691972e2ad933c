"""Request traces that others published: arrival times, lengths, and the prefix blocks they share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cm384model.specs.diagnostics import Problem, SpecError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Whole = NDArray[np.int64]

AZURE_HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
MOONCAKE_BLOCK_TOKENS = 512
"""Prompt tokens behind one of the trace's ``hash_ids``."""
_MOONCAKE_KEYS = ("timestamp", "input_length", "output_length", "hash_ids")


class LengthMoments(NamedTuple):
    """Means over the requests of products of prompt length P and output length D. [-]"""

    prompt: float
    output: float
    output_square: float
    output_cube: float
    product: float
    prompt_square_output: float
    prompt_output_square: float


@dataclass(frozen=True)
class RequestTrace:
    """Requests in the order of their arrival.

    Attributes
    ----------
    arrival_time : array
        Time of each request since the first. [s]
    prompt_len : array
        Tokens of each prompt. [tokens]
    output_len : array
        Tokens of each output. [tokens]
    blocks : array
        Prefix blocks of all prompts, one prompt after the other; equal numbers are equal content
        with equal content before it. Empty if the trace does not tell.
    block_starts : array
        Where each prompt's blocks start in ``blocks``.
    """

    arrival_time: Array
    prompt_len: Whole
    output_len: Whole
    blocks: Whole
    block_starts: Whole

    @property
    def requests(self) -> int:
        """Number of requests."""
        return len(self.arrival_time)

    @property
    def arrival_rate(self) -> float:
        """Requests per second, from the first to the last. [1/s]"""
        return (self.requests - 1) / float(self.arrival_time[-1] - self.arrival_time[0])

    @property
    def arrival_scv(self) -> float:
        """Squared coefficient of variation of the times between arrivals. [-]"""
        gaps = self.arrival_time[1:] - self.arrival_time[:-1]
        return float(gaps.var() / gaps.mean() ** 2)

    def rates(self, interval: float) -> Array:
        """Requests per second in each whole interval of the trace. [1/s]

        Raises
        ------
        SpecError
            If the trace does not last one interval.
        """
        return _rates(self, interval)

    def moments(self) -> LengthMoments:
        """Moments of the lengths that the laws of `cm384model.laws.batching` take."""
        p, d = self.prompt_len.astype(float), self.output_len.astype(float)
        terms = (p, d, d**2, d**3, p * d, p**2 * d, p * d**2)
        return LengthMoments(*(float(term.mean()) for term in terms))

    def block_hit_rate(self, capacity_blocks: Any) -> Any:
        """Share of all prefix blocks found in a cache of that many blocks, least recently used out first.

        A block counts only if every block before it in its prompt was found too. One pass gives
        the whole curve: a block is found where its reuse distance, the number of different blocks
        asked for since it was last asked for, is less than the capacity (Mattson 1970).
        """
        distances = self._distances()
        distances.sort()
        return distances.searchsorted(capacity_blocks, side="left") / len(self.blocks)

    def token_hits(self) -> tuple[Array, Array]:
        """Capacities of the cache at which more is found, and the share of prompt tokens found there.

        Returns
        -------
        capacity, share : array
            Both rising: from each capacity on [tokens], up to the next, that share [-] is found.
            The last block of a prompt has only the tokens that are left.
        """
        return _token_hits(self, self._distances())

    def _distances(self) -> Array:
        if not len(self.blocks):
            raise SpecError.of("the trace has no prefix blocks", "hit rates need 'hash_ids'")
        return _prefix_distances(self)


def read_trace(path: str | Path) -> RequestTrace:
    """The trace in a file: Azure's CSV or Mooncake's JSON lines, told apart by the first line."""
    file = Path(path)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SpecError.of(f"cannot read '{path}': {reason}") from error
    if lines and lines[0].strip() == AZURE_HEADER:
        return _trace(_rows(lines, 2, str(path), _azure_row), str(path))
    if lines and lines[0].lstrip().startswith("{"):
        return _trace(_rows(lines, 1, str(path), _mooncake_row), str(path))
    raise _bad(
        str(path),
        1,
        lines[0] if lines else "",
        "not a request trace",
        f"starts with '{AZURE_HEADER}' or '{{'",
    )


def _rates(trace: RequestTrace, interval: float) -> Array:
    import numpy as np

    lasts = float(trace.arrival_time[-1] - trace.arrival_time[0])
    if lasts < interval:
        raise SpecError.of(
            f"the trace lasts {lasts:.3g} s", f"its rate is taken every {interval:g} s: a longer trace"
        )
    edges = trace.arrival_time[0] + interval * np.arange(int(lasts // interval) + 1)
    return np.histogram(trace.arrival_time, edges)[0] / interval


def reuse_distances(blocks: Whole) -> Array:
    """Different blocks asked for since the same block was last asked for; infinite at the first time.

    Of the requests since then, those whose own last use is later are repeats: they are counted
    for all positions at once by merge sort.
    """
    import numpy as np

    order = np.argsort(blocks, kind="stable")
    again = blocks[order[1:]] == blocks[order[:-1]]
    last = np.full(len(blocks), -1, dtype=np.int64)
    last[order[1:][again]] = order[:-1][again]
    position = np.arange(len(blocks))
    return np.where(last < 0, np.inf, position - last - 1 - _larger_before(last))


def _token_hits(trace: RequestTrace, distances: Array) -> tuple[Array, Array]:
    import numpy as np

    sizes = np.diff(trace.block_starts, append=len(trace.blocks))
    first = np.repeat(trace.block_starts, sizes)
    before = (np.arange(len(trace.blocks)) - first) * MOONCAKE_BLOCK_TOKENS
    held = np.clip(np.repeat(trace.prompt_len, sizes) - before, 0, MOONCAKE_BLOCK_TOKENS)
    found = np.isfinite(distances)
    levels, level = np.unique(distances[found], return_inverse=True)
    tokens = np.cumsum(np.bincount(level, weights=held[found], minlength=len(levels)))
    return (levels + 1) * MOONCAKE_BLOCK_TOKENS, tokens / float(trace.prompt_len.sum())


def _prefix_distances(trace: RequestTrace) -> Array:
    """Reuse distance of each block or of one before it in its prompt, whichever is larger."""
    import numpy as np

    distances = reuse_distances(trace.blocks)
    for prompt in np.split(distances, trace.block_starts[1:]):
        np.maximum.accumulate(prompt, out=prompt)
    return distances


def _larger_before(values: Whole) -> Whole:
    """How many of the values before each position are larger than its own."""
    import numpy as np

    size = 1 << max(1, (len(values) - 1).bit_length())
    padded = np.full(size, np.iinfo(np.int64).max)
    padded[: len(values)] = values
    count = np.zeros(size, dtype=np.int64)
    width, index = 1, np.arange(size)
    while width < size:
        runs = padded.reshape(-1, 2 * width)
        order = np.argsort(runs, axis=1, kind="stable")
        left = order < width
        larger = width - np.cumsum(left, axis=1)
        sources = index.reshape(-1, 2 * width)
        rows = np.take_along_axis(sources, order, axis=1)
        count[rows[~left]] += larger[~left]
        width *= 2
    return count[: len(values)]


class _Row(NamedTuple):
    time: float
    prompt: int
    output: int
    blocks: list[int]


def _rows(lines: list[str], first: int, file: str, parse: Callable[[str], _Row]) -> Iterator[_Row]:
    """Each line as a request; `SpecError` at the first that is none."""
    for number, line in enumerate(lines[first - 1 :], start=first):
        if not line.strip():
            continue
        try:
            row = parse(line)
        except ValueError as error:
            raise _bad(file, number, line, str(error)) from None
        if row.prompt < 1 or row.output < 0:
            raise _bad(file, number, line, "a prompt has at least 1 token, an output none or more")
        yield row


def _azure_row(line: str) -> _Row:
    fields = line.strip().split(",")
    if len(fields) != 3:
        raise ValueError(f"needs 3 values, has {len(fields)}")
    try:
        # Seven digits of a second; datetime reads six.
        time = datetime.fromisoformat(fields[0][:26] + "+00:00").timestamp()
    except ValueError:
        raise ValueError(f"'{fields[0]}' is no time") from None
    return _Row(time, _whole(fields[1]), _whole(fields[2]), [])


def _mooncake_row(line: str) -> _Row:
    try:
        data = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error.msg}") from None
    if not isinstance(data, dict):
        raise ValueError("needs a JSON object")
    missing = [key for key in _MOONCAKE_KEYS if key not in data]
    if missing:
        raise ValueError(f"missing key{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}")
    time, prompt, output, blocks = (data[key] for key in _MOONCAKE_KEYS)
    if isinstance(time, bool) or not isinstance(time, int | float) or not abs(time) < float("inf"):
        raise ValueError(f"'timestamp' is no number: {time!r}")
    if not isinstance(blocks, list):
        raise ValueError("'hash_ids' is no list")
    return _Row(time / 1000, _whole(prompt), _whole(output), [_whole(block) for block in blocks])


def _whole(value: object) -> int:
    """A whole number that a 64-bit integer holds; `ValueError` in words if it is none."""
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int) or not -(2**63) <= number < 2**63:
        raise ValueError(f"'{value}' is no whole number")
    return number


def _trace(rows: Iterator[_Row], file: str) -> RequestTrace:
    import numpy as np

    ordered = sorted(rows, key=lambda row: row.time)
    if len(ordered) < 2 or ordered[0].time == ordered[-1].time:
        raise SpecError.of(f"'{file}' needs two requests at different times, has {len(ordered)} in all")
    times = np.array([row.time for row in ordered])
    sizes = [len(row.blocks) for row in ordered]
    return RequestTrace(
        arrival_time=times - times[0],
        prompt_len=np.array([row.prompt for row in ordered], dtype=np.int64),
        output_len=np.array([row.output for row in ordered], dtype=np.int64),
        blocks=np.array([block for row in ordered for block in row.blocks], dtype=np.int64),
        block_starts=np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64),
    )


def _bad(file: str, line: int, text: str, message: str, hint: str | None = None) -> SpecError:
    shown = text if len(text) <= 80 else text[:77] + "..."
    return SpecError([Problem(message, file, line, 1, max(1, len(shown)), shown, hint)])
