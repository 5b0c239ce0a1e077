"""What a person sees while a job runs: a bar at a terminal, a line every half minute elsewhere; and the summary at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

LINE_EVERY_S = 30.0


@dataclass(slots=True)
class Tally:
    """Counts of one run. ``records`` and ``failed`` are those of this run, ``kept`` what earlier runs had done."""

    total_bytes: int
    done_bytes: int = 0
    records: int = 0
    failed: int = 0
    kept: int = 0
    received: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return max(time.monotonic() - self.began, 1e-9)

    def line(self) -> str:
        """The state in words."""
        rate = self.records / self.seconds
        share = self.done_bytes / self.total_bytes if self.total_bytes else 1.0
        return f"{share:.0%}, {self.records:,} records, {rate:,.0f} records/s, {self.failed:,} failed"


@dataclass(slots=True)
class Display:
    """Shows a tally. `refresh` may be called as often as one likes."""

    tally: Tally
    _bar: Progress | None
    _task: TaskID | None
    _shown: float = field(default_factory=time.monotonic)

    def refresh(self) -> None:
        """Show the tally as it is now."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self.tally.done_bytes, state=self.tally.line())
        elif time.monotonic() - self._shown > LINE_EVERY_S:
            self._shown = time.monotonic()
            left = (self.tally.total_bytes - self.tally.done_bytes) * self.tally.seconds / max(self.tally.done_bytes, 1)
            print(f"{self.tally.line()}, about {left:,.0f} s left", file=sys.stderr, flush=True)


@contextmanager
def shown(tally: Tally) -> Iterator[Display]:
    """A display for as long as a job runs."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Display(tally, None, None)
        return
    columns = (BarColumn(), TextColumn("{task.fields[state]}"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        yield Display(tally, bar, bar.add_task("", total=max(tally.total_bytes, 1), state=""))
