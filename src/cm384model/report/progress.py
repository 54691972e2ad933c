"""A progress bar for long work on many rows."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TimeRemainingColumn
from rich.text import Text

PATIENCE_S = 1.0
"""Work that takes less shows no bar. [s]"""


class RateColumn(ProgressColumn):
    """Rows that are behind, and rows per second."""

    def render(self, task: Task) -> Text:
        """The text of the column."""
        speed = task.finished_speed or task.speed
        rate = f", {speed / 1e6:.2f} M/s" if speed else ""
        return Text(f"{task.completed / 1e6:,.1f} of {(task.total or 0) / 1e6:,.1f} M{rate}")


class RateBar:
    """A bar on stderr with share, rows, rate and remaining time; it vanishes at the end."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._bar = Progress(
            BarColumn(),
            TaskProgressColumn(),
            RateColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("sweep", total=None)

    def tell(self, done: int, total: int) -> None:
        """Move the bar."""
        if not self._bar.live.is_started and time.monotonic() - self._started > PATIENCE_S:
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total)

    def stop(self) -> None:
        """Take the bar away."""
        if self._bar.live.is_started:
            self._bar.stop()
