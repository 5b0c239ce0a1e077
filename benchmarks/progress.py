"""What a run prints while it runs: the time gone, an estimate of the time left, and one line per event."""

from __future__ import annotations

import time

WORTH_AN_ESTIMATE = 0.02


class Progress:
    """Counts seconds of planned work as done; the estimate follows from how long they really took."""

    def __init__(self, total_s: float) -> None:
        self.total_s = total_s
        self.done_s = 0.0
        self._started = time.monotonic()

    def say(self, line: str) -> None:
        """Print a line behind the clock."""
        elapsed = time.monotonic() - self._started
        share = min(1.0, self.done_s / self.total_s) if self.total_s else 1.0
        left = clock(elapsed / share * (1.0 - share)) if share > WORTH_AN_ESTIMATE else "--:--"
        print(f"{clock(elapsed)} · {left} left │ {line}", flush=True)


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
