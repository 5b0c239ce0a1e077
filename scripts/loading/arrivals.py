"""When calls start: steps of a closed loop (so many clients) or an open one (so many arrivals a second, whoever waits)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Step:
    """One load, for ``seconds`` after ``warm_up`` seconds that are not measured.

    Either ``clients`` call one after the other, or calls arrive at ``rate`` per second.
    """

    clients: int = 0
    rate: float = 0.0
    seconds: float = 10.0
    warm_up: float = 2.0

    @property
    def open(self) -> bool:
        """Whether calls arrive by the clock rather than when a client is free."""
        return self.rate > 0

    @property
    def label(self) -> str:
        """How a reader knows it."""
        return f"{self.rate:,.4g}/s" if self.open else f"{self.clients:,}"

    def share(self, number: int, processes: int) -> Step:
        """The part of process ``number`` of so many. Poisson arrivals that are split and joined again are Poisson."""
        whole, rest = divmod(self.clients, processes)
        return replace(self, clients=whole + (number < rest), rate=self.rate / processes)


def poisson(rate: float, seconds: float, seed: int) -> Iterator[float]:
    """Moments in seconds after the start, with exponential gaps of mean 1 / ``rate``."""
    generator = random.Random(seed)  # noqa: S311 - arrivals, not secrets
    at = generator.expovariate(rate)
    while at < seconds:
        yield at
        at += generator.expovariate(rate)
