"""What is measured: which systems, at how many clients and lines, for how long, how often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.systems import BF16, FLASK, INT8, ONE_CORE, PRODUCT, QUICK, STANDARD, STOCK, SYSTEMS


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
    """``seconds`` per point; a W2 point that would take a system longer than ``longest_s`` is left out and shown as such.

    ``special`` has the points of systems that are not asked all of them, or more. ``limits`` are measured once per round,
    beside those that products are a share of, which are measured at its start and its end. ``workloads`` need no model.
    """

    systems: Sequence[str]
    points: Sequence[Point]
    limits: Sequence[str]
    rounds: int
    seconds: float
    longest_s: float
    special: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    workloads: Sequence[str] = ()

    def points_of(self, system: str) -> Sequence[Point]:
        """The loads of one system."""
        return self.special.get(system, self.points)

    @property
    def own_limits(self) -> list[str]:
        """The offline limits of the plan's products."""
        return list(dict.fromkeys(limit for name in self.systems if (limit := SYSTEMS[name].limit)))


def points(singles: Sequence[int], sizes: Sequence[int], many: Sequence[int]) -> list[Point]:
    """W1 points, then W2 points, each from few to many clients."""
    return [Point(1, clients) for clients in singles] + [Point(size, clients) for size in sizes for clients in many]


CORES_POINTS = [Point(1, 32), Point(256, 1)]
"""Where the cost per record on one core is compared with that on all."""
BARE = ("one", "one-threaded")
FULL = Plan(
    systems=tuple(SYSTEMS),
    points=points((1, 8, 32, 128, 512), (16, 256, 5_000), (1, 2, 4, 16)),
    limits=("padded", "sorted", "budget", "compiled", *BARE),
    rounds=2,
    seconds=4.0,
    longest_s=45.0,
    special={ONE_CORE: CORES_POINTS},
    workloads=("trivial", "large", "sizes"),
)
COMMON: Sequence[Point] = points((1, 8, 32, 128, 512), (256,), (1, 4))
STANDARD_PLAN = Plan(
    systems=STANDARD,
    points=COMMON,
    limits=BARE,
    rounds=2,
    seconds=4.0,
    longest_s=30.0,
    special={
        ONE_CORE: CORES_POINTS,
        STOCK: points((1, 8, 32, 128), (256,), (1,)),
        **{name: [*COMMON, Point(16, 1), Point(5_000, 1)] for name in (PRODUCT, INT8)},
    },
    workloads=("trivial", "large", "sizes"),
)
QUICK_PLAN = Plan(
    systems=QUICK,
    points=points((1, 8, 32, 128), (256,), (1, 4)),
    limits=("one",),
    rounds=2,
    seconds=3.0,
    longest_s=30.0,
)
OTHER_MODELS = (PRODUCT, BF16, INT8, FLASK, "TorchServe, loop, 2 × 1 thread")
"""The product, and the two peers that lead on a model whose forward pass is long."""


def for_model(plan: Plan, model: str) -> Plan:
    """The same plan for another model: fewer systems and points, nothing that needs no model."""
    if model == "minilm":
        return plan
    fewer = replace(plan, systems=OTHER_MODELS, limits=("one",), special={}, workloads=())
    if plan is STANDARD_PLAN:
        return replace(fewer, points=points((1, 8, 32), (16,), (1, 4)), seconds=6.0, longest_s=40.0)
    return replace(fewer, points=[point for point in plan.points if point.lines <= 256])
