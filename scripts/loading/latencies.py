"""Latencies in bounded memory: an HDR histogram from a microsecond to an hour, true to three digits."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]  # ships no types

LOWEST_US, HIGHEST_US, DIGITS = 1, 3_600_000_000, 3
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99.9": 99.9}
BARS_PER_DECADE = 12


class Latencies:
    """Counts of latencies, about 200 kB however many there are."""

    def __init__(self) -> None:
        self._counts: Any = HdrHistogram(LOWEST_US, HIGHEST_US, DIGITS)

    def record(self, seconds: float) -> None:
        """Count one; what lies outside the range counts at its end."""
        self._counts.record_value(min(HIGHEST_US, max(LOWEST_US, round(seconds * 1e6))))

    def add(self, encoded: Iterable[bytes]) -> None:
        """Count what other processes counted."""
        for piece in encoded:
            self._counts.decode_and_add(piece)

    def encode(self) -> bytes:
        """All counts, to be added elsewhere."""
        encoded: bytes = self._counts.encode()
        return encoded

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self._counts.get_total_count())

    def milliseconds(self, percentile: float) -> float:
        """The latency that so many per cent do not exceed; 0 when nothing was counted."""
        return float(self._counts.get_value_at_percentile(percentile)) / 1e3 if self.count else 0.0

    def summary(self) -> dict[str, float]:
        """Mean, percentiles and the largest, in milliseconds."""
        if not self.count:
            return dict.fromkeys(("mean", *PERCENTILES, "max"), 0.0)
        named = {name: round(self.milliseconds(percentile), 3) for name, percentile in PERCENTILES.items()}
        mean, largest = self._counts.get_mean_value() / 1e3, self._counts.get_max_value() / 1e3
        return {"mean": round(mean, 3), **named, "max": round(largest, 3)}

    def bars(self) -> list[dict[str, float]]:
        """The distribution as bars of equal width on a logarithmic axis: lower and upper end in milliseconds, and count."""
        bars: dict[int, int] = {}
        for item in self._counts.get_recorded_iterator():
            place = _place(item.value_iterated_to)
            bars[place] = bars.get(place, 0) + item.count_at_value_iterated_to
        if not bars:
            return []
        return [
            {"from_ms": _edge(place), "to_ms": _edge(place + 1), "count": bars.get(place, 0)}
            for place in range(min(bars), max(bars) + 1)
        ]


def _place(microseconds: float) -> int:
    return math.floor(math.log10(max(1.0, microseconds)) * BARS_PER_DECADE)


def _edge(place: int) -> float:
    return round(float(10 ** (place / BARS_PER_DECADE)) / 1e3, 6)
