"""What is measured: which systems, at how many clients and lines, for how long, how often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.systems import PRODUCT, QUICK, SYSTEMS


@dataclass(frozen=True, slots=True)
class Point:
    """One load: W1 (``lines`` is 1, one JSON text per request) or W2 (many lines per request) from some clients."""

    lines: int
    clients: int

    @property
    def workload(self) -> str:
        """W1 or W2."""
        return "W1" if self.lines == 1 else "W2"

    @property
    def title(self) -> str:
        """As tables and progress show it."""
        return f"W1 c={self.clients}" if self.lines == 1 else f"W2 {self.lines:,} × c={self.clients}"


@dataclass(frozen=True, slots=True)
class Plan:
    """``seconds`` per point; a W2 point that would take a system longer than ``longest_s`` is left out and shown as such."""

    systems: Sequence[str]
    points: Sequence[Point]
    limits: Sequence[str]
    rounds: int
    seconds: float
    longest_s: float


def points(singles: Sequence[int], sizes: Sequence[int], many: Sequence[int]) -> list[Point]:
    """W1 points, then W2 points, each from few to many clients."""
    return [Point(1, clients) for clients in singles] + [Point(size, clients) for size in sizes for clients in many]


FULL = Plan(
    systems=tuple(SYSTEMS),
    points=points((1, 8, 32, 128, 512), (16, 256, 5_000), (1, 2, 4, 16)),
    limits=("padded", "sorted", "budget", "one", "one-threaded"),
    rounds=3,
    seconds=8.0,
    longest_s=75.0,
)
QUICK_PLAN = Plan(
    systems=QUICK,
    points=points((1, 8, 32, 128), (256,), (1, 4)),
    limits=("one",),
    rounds=2,
    seconds=3.0,
    longest_s=30.0,
)
OTHER_MODELS = (PRODUCT, "gunicorn+flask, 2 × 1 thread", "TorchServe, loop, 2 × 1 thread")
"""The product and the two peers that lead on a model whose forward pass is long."""
