"""The table in the terminal: a row per step, the last one alive while its step runs."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from .arrivals import Step
from .generators import Seen
from .results import StepResult

COLUMNS = ("load", "calls/s", "p50 ms", "p95 ms", "p99 ms", "errors", "batch", "padding", "CPU")


class LiveTable:
    """Shows progress where somebody looks; elsewhere prints each row once its step is over. Use it as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rows: list[tuple[str, ...]] = []
        self._current: tuple[str, ...] | None = None
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._current = None
        if self._live:
            self._live.stop()
        if self._rows:
            self._console.print(self._table())

    def progress(self, step: Step, seen: Seen) -> None:
        """The row of a step under way."""
        if self._live:
            pace = f"{seen.finished / seen.measured_s:,.1f}" if seen.measured_s else "warming up"
            times = tuple(f"{seen.latencies.milliseconds(share):,.1f}" for share in (50.0, 95.0, 99.0))
            self._current = (_load(step), pace, *times, f"{seen.failed:,}", "", "", "")
            self._live.update(self._table(), refresh=True)

    def finished(self, result: StepResult) -> None:
        """The row of a step that is over."""
        self._rows.append(row(result))
        self._current = None
        if self._live:
            self._live.update(self._table(), refresh=True)
        else:
            self._console.print(f"measured {self._rows[-1][0]}: {self._rows[-1][1]} calls/s, p99 {self._rows[-1][4]} ms")

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
        for column in COLUMNS:
            table.add_column(column, justify="left" if column == "load" else "right", no_wrap=True)
        for cells in self._rows:
            table.add_row(*cells)
        if self._current:
            table.add_row(*self._current, style="dim")
        return table


def row(one: StepResult) -> tuple[str, ...]:
    """A step's figures as text."""
    times = tuple(f"{one.latency_ms[name]:,.1f}" for name in ("p50", "p95", "p99"))
    server = (f"{one.server.requests_per_batch:,.1f}", f"{one.server.padding:.0%}") if one.server else ("–", "–")
    return (
        *(_load(one.step), f"{one.requests_per_s:,.1f}"),
        *times,
        *(f"{one.failed:,}", *server, f"{one.machine_cpu:.0%}"),
    )


def _load(step: Step) -> str:
    return f"{step.label}" if step.open else f"{step.label} client{'s' if step.clients != 1 else ''}"
