"""One bar for all that exporting does, gone when it is done; silent where nobody looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Advance = Callable[[], object]
Stage = Callable[[str, int | None], Advance]
"""Begins a stage of so many steps (None: it is not known) and gives what to call after each."""


@contextmanager
def stages() -> Iterator[Stage]:
    """Begin stages with what this gives."""
    columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:

        def begin(name: str, steps: int | None) -> Advance:
            bar = progress.add_task(name, total=steps)
            return lambda: progress.advance(bar)

        yield begin
