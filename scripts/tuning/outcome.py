"""What the search found, for people and programs: the lines to set, a JSON file, and a page with the Pareto front."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loading.charts import Line, lines
from loading.report import chart, page

from .search import Found
from .space import Candidate, as_json
from .trial import Point, Trial, pareto

NOISY = 0.2
"""A spread of the default's rounds from which the machine was not quiet enough."""
COLUMNS = ("settings", "clients", "calls/s", "latency ms")


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Capacities on payloads that the search never sent, by candidate and interleaved round."""

    rounds: Mapping[Candidate, Sequence[float]]

    @property
    def capacities(self) -> dict[Candidate, float]:
        """The medians."""
        return {one: statistics.median(found) for one, found in self.rounds.items()}

    def spread(self, one: Candidate) -> float:
        """By which share of its median a candidate's rounds differ."""
        found = self.rounds[one]
        return (max(found) - min(found)) / max(abs(statistics.median(found)), 1e-9)


def settled(found: Found, held_out: HeldOut) -> Candidate:
    """The winner if it beats the default in every held-out round, else the default: what is not sure is not worth a change."""
    pairs = zip(held_out.rounds[found.winner], held_out.rounds[found.default], strict=True)
    return found.winner if all(winner > default for winner, default in pairs) else found.default


def as_result(found: Found, held_out: HeldOut, asked: Mapping[str, Any], choice: Candidate) -> dict[str, Any]:
    """The result file's content."""
    return {
        "version": 1,
        **asked,
        "choice": as_json(choice),
        "default": as_json(found.default),
        "environment": choice.environment(),
        "config_properties": choice.properties(),
        "final_requests_per_s": [{**as_json(one), "capacity": round(value, 2)} for one, value in found.capacities.items()],
        "held_out": {
            "requests_per_s": [
                {**as_json(one), "capacity": round(value, 2), "rounds": [round(each, 2) for each in held_out.rounds[one]]}
                for one, value in held_out.capacities.items()
            ],
        },
        "pareto": [{**as_json(one), **_as_json(point)} for one, point in pareto(points(found.trials))],
        "trials": [
            {**as_json(trial.candidate), "points": [_as_json(point) for point in trial.points], "failure": trial.failure}
            for trial in found.trials
        ],
    }


def points(trials: Sequence[Trial]) -> list[tuple[Candidate, Point]]:
    """Each candidate's median points, so that a lucky one leads nothing."""
    candidates = dict.fromkeys(trial.candidate for trial in trials)
    return [(one, point) for one in candidates for point in _medians(trials, one)]


def sentence(found: Found, held_out: HeldOut, choice: Candidate, target: str) -> str:
    """What was found, and how far it can be trusted."""
    chosen, usual = held_out.capacities[choice], held_out.capacities[found.default]
    spread = held_out.spread(found.default)
    doubt = ""
    if spread > NOISY:
        doubt = (
            f" The defaults' own rounds differ by {spread:.0%}: something else kept this machine busy, so run it again when idle."
        )
    if chosen < 0:
        return f"Nothing that was tried keeps {target}: {choice} comes closest, {1 - chosen:,.1f} times as slow as that.{doubt}"
    if choice == found.default:
        return f"The defaults stay ({usual:,.1f} calls per second within {target}): nothing was better in every round.{doubt}"
    gain = f"{chosen / usual - 1:+.0%} on the defaults' {usual:,.1f}" if usual > 0 else "which the defaults do not keep at all"
    return f"{str(choice).capitalize()} answers {chosen:,.1f} calls per second within {target}, {gain}.{doubt}"


def render(found: Found, held_out: HeldOut, choice: Candidate, asked: Mapping[str, Any], said: str) -> str:
    """The page."""
    front = pareto(points(found.trials))
    return page(
        "tuning.html.j2",
        said=said,
        asked=asked,
        about=f"{len(found.trials):,} trials of {len({trial.candidate for trial in found.trials}):,} combinations",
        charts=_front(found, choice, front, asked),
        columns=COLUMNS,
        rows=[
            {"cells": (str(one), f"{point.clients:,}", f"{point.requests_per_s:,.1f}", f"{point.latency_ms:,.1f}")}
            for one, point in front
        ],
        final=[(str(one), _shown(value), one == choice) for one, value in _ordered(found.capacities)],
        held_out=[(str(one), _shown(value), one == choice) for one, value in _ordered(held_out.capacities)],
        properties=choice.properties(),
        environment=choice.environment(),
    )


def _front(
    found: Found, choice: Candidate, front: Sequence[tuple[Candidate, Point]], asked: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Every point faint, the front and the ways of the choice and the default as lines, and the target as a rule."""
    ways = {one: _way(found.trials, one) for one in (choice, found.default)}
    series = [
        Line("all trials", [(point.requests_per_s, point.latency_ms) for _, point in points(found.trials)], 4, joined=False),
        Line("Pareto front", [(point.requests_per_s, point.latency_ms) for _, point in front], 3),
        Line("defaults", ways[found.default], 2),
    ]
    if choice != found.default:
        series.append(Line("choice", ways[choice], 1))
    drawn = lines(
        [line for line in series if line.points],
        "calls/s",
        "ms",
        log_y=True,
        log_x=False,
        marks=[(float(asked["target_ms"]), f"target {asked['target']}")],
    )
    return chart("Latency against throughput", "along each line from few to many clients; right and down is better", drawn)


def _way(trials: Sequence[Trial], one: Candidate) -> list[tuple[float, float]]:
    """Throughput and latency from few to many clients."""
    return [(point.requests_per_s, point.latency_ms) for point in _medians(trials, one)]


def _medians(trials: Sequence[Trial], one: Candidate) -> list[Point]:
    """A candidate's middle trial by throughput, for every number of clients."""
    by_clients: dict[int, list[Point]] = {}
    for trial in trials:
        if trial.candidate == one:
            for point in trial.points:
                by_clients.setdefault(point.clients, []).append(point)
    return [sorted(group, key=lambda point: point.requests_per_s)[len(group) // 2] for _, group in sorted(by_clients.items())]


def _shown(capacity: float) -> str:
    return f"{capacity:,.1f}" if capacity >= 0 else "misses the target"


def _ordered(capacities: Mapping[Candidate, float]) -> list[tuple[Candidate, float]]:
    return sorted(capacities.items(), key=lambda item: -item[1])


def _as_json(point: Point) -> dict[str, float]:
    return {
        "clients": point.clients,
        "requests_per_s": round(point.requests_per_s, 3),
        "latency_ms": round(point.latency_ms, 3),
    }
