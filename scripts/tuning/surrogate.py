"""What the trials so far say about candidates that were not tried: Gaussian process regression over the grid and time.

(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, algorithm 2.1.) Time is a coordinate of its own, so that a
machine that slows down during the search is not taken for bad settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .space import Candidate, Space

LENGTHS = (0.15, 0.3, 0.6, 1.2, 3.0)
"""Over which share of a setting's range, or of the time so far, values resemble each other."""
NOISES = (0.01, 0.03, 0.1)
SWEEPS = 2
FLOOR = 0.02
"""Capacities below this share of the best are all the same failure."""
Array = Any  # numpy's arrays; their shapes are in the docstrings


@dataclass(frozen=True, slots=True)
class Observation:
    """A candidate's capacity, measured at a moment (seconds after the start)."""

    candidate: Candidate
    capacity: float
    moment_s: float


class Surrogate:
    """Fitted to observations; needs at least two."""

    def __init__(self, space: Space, seen: Sequence[Observation]) -> None:
        self._space = space
        self._horizon = max(max(one.moment_s for one in seen), 1e-9)
        self._best = max(max(one.capacity for one in seen), 1e-9)
        self._inputs = self._features([one.candidate for one in seen], [one.moment_s for one in seen])
        values = np.log([max(one.capacity, FLOOR * self._best) for one in seen])
        self._middle, self._spread = float(values.mean()), float(values.std()) or 1.0
        self._values = (values - self._middle) / self._spread
        self._lengths, self._noise = self._fitted()

    def predict(self, candidates: Sequence[Candidate]) -> tuple[Array, Array]:
        """Mean and deviation of the logarithm of each candidate's capacity, now; both of shape (candidates,)."""
        wanted = self._features(candidates, [self._horizon] * len(candidates))
        lower = np.linalg.cholesky(self._covariance(self._lengths, self._noise))
        weights = np.linalg.solve(lower.T, np.linalg.solve(lower, self._values))
        cross = _kernel(self._inputs, wanted, self._lengths)
        reduced = np.linalg.solve(lower, cross)
        deviation = np.sqrt(np.maximum(1e-12, 1.0 - (reduced**2).sum(axis=0)))
        return cross.T @ weights * self._spread + self._middle, deviation * self._spread

    def _features(self, candidates: Sequence[Candidate], moments: Sequence[float]) -> Array:
        """Shape (candidates, 5): each setting's place in its range, and the moment, all from 0 to 1."""
        rows = [
            [
                _place(one.batch_size, self._space.batch_sizes),
                _place(one.delay_ms, self._space.delays_ms),
                _place(one.token_budget, self._space.token_budgets),
                _place(one.workers, [workers for workers, _ in self._space.workers]),
                moment / self._horizon,
            ]
            for one, moment in zip(candidates, moments, strict=True)
        ]
        return np.array(rows)

    def _fitted(self) -> tuple[Array, float]:
        """The length of each coordinate and the noise under which the observations are likeliest, one after the other."""
        lengths, noise = np.full(self._inputs.shape[1], 0.6), NOISES[1]
        for _ in range(SWEEPS):
            for axis in range(len(lengths)):
                choices = [np.where(np.arange(len(lengths)) == axis, length, lengths) for length in LENGTHS]
                lengths = max(choices, key=lambda choice: self._likelihood(choice, noise))
            noise = max(NOISES, key=lambda choice: self._likelihood(lengths, choice))
        return lengths, noise

    def _likelihood(self, lengths: Array, noise: float) -> float:
        lower = np.linalg.cholesky(self._covariance(lengths, noise))
        reduced = np.linalg.solve(lower, self._values)
        return float(-0.5 * reduced @ reduced - np.log(np.diag(lower)).sum())

    def _covariance(self, lengths: Array, noise: float) -> Array:
        return _kernel(self._inputs, self._inputs, lengths) + (noise + 1e-8) * np.eye(len(self._inputs))


def _kernel(one: Array, other: Array, lengths: Array) -> Array:
    """Matérn 5/2, shape (one, other)."""
    apart = np.sqrt(5.0 * (((one[:, None, :] - other[None, :, :]) / lengths) ** 2).sum(axis=2))
    return (1.0 + apart + apart**2 / 3.0) * np.exp(-apart)


def _place(value: int, values: Sequence[int]) -> float:
    """Between 0 and 1 by rank; a value between two of the space lies between their ranks."""
    return float(np.interp(value, values, np.linspace(0.0, 1.0, len(values)))) if len(values) > 1 else 0.0
