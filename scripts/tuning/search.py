"""The search: successive halving over a sample, then proposals of a model of all trials, and a final among few.

Noise is met three ways: candidates are measured in interleaved rounds, so that a machine that slows down slows all of them;
medians of rounds are compared; and the final counts its own rounds only, so that luck in an earlier one wins nothing. (Successive
halving: Jamieson and Talwalkar, Non-stochastic Best Arm Identification and Hyperparameter Optimization, 2016.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from .space import Candidate, Space
from .surrogate import Observation, Surrogate
from .trial import Trial, median_capacity

Measure = Callable[[Candidate], Trial]
Clock = Callable[[], float]
Note = Callable[[str], None]

KEEP = 3
"""One in so many survives a rung."""
FINALISTS = 3
FINAL_ROUNDS = 5
PROPOSALS = 3
BOLDNESS = 1.5
"""Deviations that a proposal is credited with: what is not known may be better."""
MOST_SAMPLED, FEWEST_SAMPLED = 48, 4
HALVING_SHARE = 0.5
"""Of the time before the final; the proposals have the rest."""
MOST_FINAL = 0.4
"""Of the budget, for the final at most."""
MARGIN = 0.01
"""The default stays unless something is better by more than this."""


@dataclass(slots=True)
class Found:
    """The winner, how it and the default did in the final (capacity: requests per second within the target), and all trials."""

    winner: Candidate
    default: Candidate
    capacities: dict[Candidate, float]
    trials: list[Trial] = field(default_factory=list)


class Search:
    """One search within a budget of seconds by the clock; the measurement under way at its end is finished."""

    def __init__(
        self, space: Space, default: Candidate, measure: Measure, target_ms: float, budget_s: float, clock: Clock, note: Note
    ) -> None:
        self._space, self._default, self._measure, self._target = space, default, measure, target_ms
        self._clock, self._note = clock, note
        self._start = clock()
        self._budget = budget_s
        self._trials: dict[Candidate, list[Trial]] = defaultdict(list)
        self._seen: list[Observation] = []

    def run(self, seed: int = 1) -> Found:
        """Halve, follow proposals, decide."""
        self._round([self._default])
        before = self._budget - min(self._cost * (FINALISTS + 1) * FINAL_ROUNDS, MOST_FINAL * self._budget)
        self._halve(seed, HALVING_SHARE * before)
        self._propose(before)
        return self._decide()

    def _halve(self, seed: int, until_s: float) -> None:
        """Rungs of a sample that holds the default: a round each, and a third goes on to the next."""
        first_s = until_s * (1 - 1 / KEEP)
        # The first trial climbs the whole ladder of clients: the others take about half as long, and the clock has the last word.
        affordable = int(2 * (first_s - self._passed()) / self._cost)
        count = max(FEWEST_SAMPLED, min(MOST_SAMPLED, affordable))
        alive = list(dict.fromkeys([self._default, *self._space.sample(count, seed)]))
        self._note(f"halving a sample of {len(alive)} candidates")
        self._round(alive[1:], first_s)
        while len(alive) > FINALISTS and self._passed() < until_s:
            measured = [one for one in alive if one in self._trials]
            alive = self._ranked(measured)[: max(FINALISTS, len(measured) // KEEP)]
            self._note(f"{len(alive)} candidates left")
            self._round(alive, until_s)

    def _propose(self, until_s: float) -> None:
        """While there is time: what the model thinks best of the whole grid, beside the best so far."""
        grid = self._space.all()
        while self._passed() + self._cost < until_s:
            mean, deviation = Surrogate(self._space, self._seen).predict(grid)
            hopes = mean + BOLDNESS * deviation / (1 + np.array([len(self._trials.get(one, ())) for one in grid]))
            best = self._leading(1)
            bold = [grid[place] for place in np.argsort(-hopes)[:PROPOSALS]]
            likely = grid[int(np.argmax(mean))]
            chosen = list(dict.fromkeys([*bold, likely, *best]))
            self._note(f"trying {len(chosen)} proposals beside {best[0]}")
            self._round(chosen, until_s)

    def _decide(self) -> Found:
        """The final: a few candidates and the default, in rounds of their own."""
        finalists = list(dict.fromkeys([*self._leading(FINALISTS), self._default]))
        self._note(f"final among {len(finalists)} candidates")
        race: dict[Candidate, list[Trial]] = {one: [] for one in finalists}
        for number in range(FINAL_ROUNDS):
            if number and self._passed() + self._cost * len(finalists) > self._budget:
                break
            for one, trial in self._round(finalists).items():
                race[one].append(trial)
        capacities = {one: median_capacity(trials, self._target) for one, trials in race.items()}
        winner = max(capacities, key=lambda one: capacities[one])
        if capacities[winner] <= capacities[self._default] + MARGIN * abs(capacities[self._default]):
            winner = self._default
        return Found(winner, self._default, capacities, [trial for trials in self._trials.values() for trial in trials])

    def _round(self, candidates: Sequence[Candidate], until_s: float | None = None) -> dict[Candidate, Trial]:
        """Measure each once, as many as time allows."""
        found = {}
        for one in candidates:
            if until_s is not None and self._passed() > until_s:
                break
            found[one] = self._measure(one)
            self._trials[one].append(found[one])
            self._seen.append(Observation(one, found[one].capacity(self._target), self._passed()))
        return found

    def _leading(self, count: int) -> list[Candidate]:
        """The best of what was measured, by the model, which evens luck out."""
        measured = list(self._trials)
        if len(measured) < 2:
            return measured
        mean, _ = Surrogate(self._space, self._seen).predict(measured)
        return [measured[place] for place in np.argsort(-mean)[:count]]

    def _ranked(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        return sorted(candidates, key=lambda one: median_capacity(self._trials[one], self._target), reverse=True)

    @property
    def _cost(self) -> float:
        """Seconds per measurement so far."""
        return max(self._passed(), 1e-6) / max(1, len(self._seen))

    def _passed(self) -> float:
        return self._clock() - self._start


def exhaustive(space: Space, measure: Measure, target_ms: float) -> Candidate:
    """The grid's choice: everything measured once."""
    trials = [measure(one) for one in space.all()]
    return max(trials, key=lambda trial: trial.capacity(target_ms)).candidate
