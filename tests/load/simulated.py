"""A batching server on paper: throughput and latency follow from its settings, noise from a seed, and it has its own clock.

The one stand-in of this suite: a search can be held against the true optimum only where that is known.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from tuning.space import Candidate
from tuning.trial import Point, Trial

LADDER = (1, 4, 16, 64, 256)
TOKENS_PER_REQUEST = 32.0


@dataclass(slots=True)
class SimulatedServer:
    """``pass_ms`` per forward pass, ``token_us`` per token; wide passes pay ``cache_us`` per token over ``cache_tokens``.

    ``contention`` slows every lane down per further worker. ``drift`` is how much the whole machine slows down over time.
    """

    pass_ms: float = 4.0
    token_us: float = 60.0
    cache_tokens: float = 2_000.0
    cache_us: float = 40.0
    contention: float = 0.06
    noise: float = 0.03
    drift: float = 0.0
    start_s: float = 5.0
    trial_s: float = 10.0
    seed: int = 1
    clock_s: float = 0.0
    generator: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.generator = random.Random(self.seed)

    def measure(self, one: Candidate) -> Trial:
        """With noise, and in its time."""
        self.clock_s += self.start_s + self.trial_s
        slower = 1.0 + self.drift * self.clock_s / 1_000.0
        luck = math.exp(self.generator.gauss(0.0, self.noise)) / slower
        return Trial(one, tuple(Point(p.clients, p.requests_per_s * luck, p.latency_ms / luck) for p in self.truth(one).points))

    def truth(self, one: Candidate) -> Trial:
        """Without noise."""
        return Trial(one, tuple(self._point(one, clients) for clients in LADDER))

    def _point(self, one: Candidate, clients: int) -> Point:
        waiting = clients / one.workers
        batch = min(one.batch_size, max(1.0, waiting))
        gathered = one.delay_ms if batch < one.batch_size and one.delay_ms > 1 else 0.0
        tokens = batch * TOKENS_PER_REQUEST
        passes = max(min(float(one.threads), batch), tokens / one.token_budget)
        width = tokens / passes
        per_token = self.token_us + self.cache_us * max(0.0, width / self.cache_tokens - 1.0)
        lanes = min(float(one.threads), passes)
        work = passes * (self.pass_ms + width * per_token / 1e3 * (1.0 + 1.0 / (1.0 + width / 256))) / lanes
        work *= 1.0 + self.contention * (one.workers - 1)
        service = work + gathered
        rate = one.workers * batch / service * 1e3
        latency = max(service * 1.6, clients / rate * 1e3)
        return Point(clients, min(rate, clients / latency * 1e3), latency)
