"""One trial of a candidate: its server under a rising number of clients, until the target is missed or nothing is gained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from loading.arrivals import Step
from loading.caller import Plan
from loading.errors import LoadTestError
from loading.generators import Generators, Seen
from loading.payloads import Payload
from loading.target import find

from .servers import Servers
from .space import Candidate
from .trial import Point, Trial

LADDER = (1, 2, 4, 8, 16, 32, 64, 128, 256)
AROUND = 4
"""Trials after the first climb from a fourth of the clients that it could take to four times as many."""
GAIN = 1.03
MOST_ERRORS = 0.01
LONGEST_S = 60.0


@dataclass(slots=True)
class Measuring:
    """``percentile`` of the latency against ``target_ms``; ``seconds`` per rung of the ladder after ``warm_up``."""

    servers: Servers
    payloads: Sequence[Payload]
    percentile: float
    target_ms: float
    seconds: float
    warm_up: float
    ladder: Sequence[int] = field(default=LADDER)
    seed: int = 1

    def trial(self, candidate: Candidate) -> Trial:
        """One climb. A candidate whose server does not start, or fails calls, is a failed trial."""
        try:
            address = self.servers.address(candidate)
        except LoadTestError as error:
            return Trial(candidate, (), str(error))
        self.seed += 1
        plan = Plan(find(address, ()), tuple(self.payloads), seed=self.seed)
        points: list[Point] = []
        with Generators(plan) as generators:
            for clients in self.ladder:
                seen = self._step(generators, clients)
                if seen.failed > MOST_ERRORS * (seen.good + seen.failed) or not seen.good:
                    kind = next(iter(seen.errors), "no answer in time")
                    return Trial(candidate, tuple(points), f"{clients} clients met errors ({kind})")
                rate, latency = seen.finished / max(seen.measured_s, 1e-9), seen.latencies.milliseconds(self.percentile)
                points.append(Point(clients, rate, latency))
                if latency > self.target_ms or (len(points) > 2 and rate < GAIN * points[-3].requests_per_s):
                    break
        return Trial(candidate, tuple(points))

    def look_around(self, first: Trial) -> None:
        """From now on climb only where the first trial found the target to be."""
        within = [point for point in first.points if point.latency_ms <= self.target_ms]
        centre = within[-1].clients if within else LADDER[0]
        self.ladder = [rung for rung in LADDER if centre / AROUND <= rung <= centre * AROUND]

    def _step(self, generators: Generators, clients: int) -> Seen:
        """One rung; again and twice as long while its time was too short for a single call."""
        seconds = self.seconds
        while True:
            step = Step(clients=clients, seconds=seconds, warm_up=self.warm_up)
            seen = generators.run(step, lambda _: None, lambda _: None, lambda: False)
            if seen.good or seen.errors or seconds > LONGEST_S:
                return seen
            seconds *= 2
