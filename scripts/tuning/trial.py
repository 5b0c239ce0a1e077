"""What one measurement of a candidate says: points of throughput and latency, and its capacity within the latency target."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .space import Candidate

FAILED = -1e9
"""The capacity of a candidate that could not be measured."""


@dataclass(frozen=True, slots=True)
class Point:
    """At so many clients: good answers per second, and the latency that the target speaks of."""

    clients: int
    requests_per_s: float
    latency_ms: float


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate climbing the ladder of clients once. ``failure`` says why there are no points."""

    candidate: Candidate
    points: tuple[Point, ...]
    failure: str = ""

    def capacity(self, target_ms: float) -> float:
        """Requests per second within the target: between two points where it is crossed, on a logarithmic scale of latency.

        Negative when even the first point misses it, by how many times too slow that is; FAILED without points.
        """
        if not self.points:
            return FAILED
        first = self.points[0]
        if first.latency_ms > target_ms:
            return 1.0 - first.latency_ms / target_ms
        best = first.requests_per_s
        for before, after in zip(self.points, self.points[1:], strict=False):
            if after.latency_ms > target_ms:
                way = math.log(target_ms / before.latency_ms) / math.log(after.latency_ms / before.latency_ms)
                return max(best, before.requests_per_s + way * (after.requests_per_s - before.requests_per_s))
            best = max(best, after.requests_per_s)
        return best


def median_capacity(trials: Iterable[Trial], target_ms: float) -> float:
    """Over the rounds of one candidate."""
    found = [trial.capacity(target_ms) for trial in trials]
    return statistics.median(found) if found else FAILED


def pareto(points: Sequence[tuple[Candidate, Point]]) -> list[tuple[Candidate, Point]]:
    """Those that no other beats in both throughput and latency, from the lowest latency on."""
    front: list[tuple[Candidate, Point]] = []
    for one in sorted(points, key=lambda item: (item[1].latency_ms, -item[1].requests_per_s)):
        if not front or one[1].requests_per_s > front[-1][1].requests_per_s:
            front.append(one)
    return front
