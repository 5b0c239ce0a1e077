"""The settings that are searched: one combination, and all of them.

Names and defaults are the container's own (batch_handler.settings).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import product
from typing import TypeVar

from batch_handler.settings import TABLE

T = TypeVar("T")
BATCH_SIZES = (4, 8, 16, 32, 64, 128)
DELAYS_MS = (1, 2, 5, 10, 20, 50)
TOKEN_BUDGETS = (256, 512, 1024, 2048, 4096, 8192)
NAMES = {"batch_size": "batch_size", "delay_ms": "max_batch_delay", "token_budget": "token_budget", "threads": "threads"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """One combination: requests per batch, milliseconds of delay, tokens per forward pass, workers and threads of each."""

    batch_size: int
    delay_ms: int
    token_budget: int
    workers: int
    threads: int

    def environment(self) -> dict[str, str]:
        """The container's variables for it; workers are set both as the fewest and the most."""
        found = {TABLE[setting].variables[0]: str(getattr(self, field)) for field, setting in NAMES.items()}
        workers = {TABLE[setting].variables[0]: str(self.workers) for setting in ("min_workers", "max_workers")}
        return found | workers

    def properties(self) -> list[str]:
        """The lines of config.properties for it; what has no line there is in the environment alone."""
        values = {NAMES[field]: getattr(self, field) for field in NAMES} | {
            "min_workers": self.workers,
            "max_workers": self.workers,
        }
        return [f"{TABLE[setting].property}={value}" for setting, value in values.items() if TABLE[setting].property]

    def __str__(self) -> str:
        return (
            f"batch {self.batch_size}, delay {self.delay_ms} ms, {self.token_budget} tokens, "
            f"{self.workers} × {self.threads} thread{'s' if self.threads != 1 else ''}"
        )


@dataclass(frozen=True, slots=True)
class Space:
    """Every value of every setting, each in rising order. ``workers`` holds pairs: workers, and threads of each."""

    batch_sizes: tuple[int, ...]
    delays_ms: tuple[int, ...]
    token_budgets: tuple[int, ...]
    workers: tuple[tuple[int, int], ...]

    def all(self) -> list[Candidate]:
        """The exhaustive grid."""
        choices = product(self.batch_sizes, self.delays_ms, self.token_budgets, self.workers)
        return [Candidate(size, delay, tokens, *workers) for size, delay, tokens, workers in choices]

    def sample(self, count: int, seed: int) -> list[Candidate]:
        """Distinct candidates that cover every setting's values evenly (a Latin hypercube over the grid)."""
        generator = random.Random(seed)  # noqa: S311 - a sample, not a secret
        count = min(count, len(self.batch_sizes) * len(self.delays_ms) * len(self.token_budgets) * len(self.workers))
        found: dict[Candidate, None] = {}
        while len(found) < count:
            columns = [_spread(values, count, generator) for values in self._axes()]
            found |= dict.fromkeys(
                Candidate(size, delay, tokens, *pair) for size, delay, tokens, pair in zip(*columns, strict=True)
            )
        return list(found)[:count]

    def neighbours(self, one: Candidate) -> list[Candidate]:
        """Those one step away in one setting."""
        found = []
        for field, values in (
            ("batch_size", self.batch_sizes),
            ("delay_ms", self.delays_ms),
            ("token_budget", self.token_budgets),
        ):
            found += [replace(one, **{field: value}) for value in _beside(values, getattr(one, field))]
        pairs = _beside(self.workers, (one.workers, one.threads))
        return found + [replace(one, workers=workers, threads=threads) for workers, threads in pairs]

    def _axes(self) -> tuple[Sequence[object], ...]:
        return self.batch_sizes, self.delays_ms, self.token_budgets, self.workers


def default(cpus: int) -> Candidate:
    """What the container does by itself for our own handler: one worker with a thread per CPU."""
    size, delay, tokens = (int(TABLE[name].default) for name in ("batch_size", "max_batch_delay", "token_budget"))
    return Candidate(size, delay, tokens, 1, cpus)


def worker_pairs(cpus: int) -> tuple[tuple[int, int], ...]:
    """All ways to share the CPUs evenly: (1, 4), (2, 2), (4, 1) for four."""
    return tuple((workers, cpus // workers) for workers in range(1, cpus + 1) if cpus % workers == 0)


def as_json(one: Candidate) -> Mapping[str, int]:
    """By name."""
    return dict(zip(("batch_size", "max_batch_delay_ms", "token_budget", "workers", "threads"), astuple(one), strict=True))


def _spread(values: Sequence[T], count: int, generator: random.Random) -> list[T]:
    """Each value as often as the others, give or take one, in random order."""
    start = generator.randrange(len(values))
    column = [values[(start + number) % len(values)] for number in range(count)]
    generator.shuffle(column)
    return column


def _beside(values: Sequence[T], value: T) -> list[T]:
    """The next smaller and the next larger; none for a value that is not in the space."""
    if value not in values:
        return []
    at = values.index(value)
    return [values[place] for place in (at - 1, at + 1) if 0 <= place < len(values)]
