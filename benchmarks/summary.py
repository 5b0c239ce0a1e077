"""From measurements to what is shown: medians over rounds with their spread, and ratios that are taken within a round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.systems import PRODUCT, SYSTEMS

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, smallest and largest of one figure over the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """None for no values."""
        known = [value for value in values if value is not None]
        return cls(statistics.median(known), min(known), max(known)) if known else None


def points(seen: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Lines and clients of every load that was measured, in order."""
    return sorted({(entry["lines"], entry["clients"]) for entry in seen["points"]})


def systems(seen: Mapping[str, Any]) -> list[str]:
    """Systems with figures, in the order of the plan."""
    measured = {entry["system"] for entry in seen["points"] if "records_per_s" in entry}
    return [name for name in seen["plan"]["systems"] if name in measured]


def figure(seen: Mapping[str, Any], system: str, lines: int, clients: int, name: str) -> Spread | None:
    """One figure of one system at one load."""
    return Spread.of(entry.get(name) for entry in _entries(seen, lines, clients) if entry["system"] == system)


def failed(seen: Mapping[str, Any], system: str, lines: int, clients: int) -> int:
    """Answers that were not 200, over all rounds."""
    return sum(entry.get("failed", 0) for entry in _entries(seen, lines, clients) if entry["system"] == system)


def left_out(seen: Mapping[str, Any], system: str, lines: int, clients: int) -> str | None:
    """Why a load was not put on a system."""
    reasons = [entry["left_out"] for entry in _entries(seen, lines, clients) if entry["system"] == system and "left_out" in entry]
    return reasons[0] if reasons else None


def limit(seen: Mapping[str, Any], kind: str, name: str = "records_per_s") -> Spread | None:
    """An offline limit over all rounds."""
    return Spread.of(entry.get(name) for entry in seen["limits"] if entry["kind"] == kind)


def to_best_peer(
    seen: Mapping[str, Any], lines: int, clients: int, product: str = PRODUCT, torch_only: bool = False
) -> Spread | None:
    """A product's throughput over that of the fastest peer (`torch_only`: on PyTorch) of the same round at the same load."""

    def best(number: int) -> float | None:
        peers = [entry for entry in _entries(seen, lines, clients) if entry["round"] == number and peer(entry, torch_only)]
        return max((entry["records_per_s"] for entry in peers if entry.get("records_per_s")), default=None)

    return _ratio(seen, lines, clients, product, best)


def peer(entry: Entry, torch_only: bool = False) -> bool:
    """Whether a measurement is that of somebody else's server."""
    system = SYSTEMS.get(entry["system"])
    return system is None or not (system.product or (torch_only and not system.torch))


def best_peer(seen: Mapping[str, Any], lines: int, clients: int) -> str | None:
    """The peer with the highest median at a load."""
    medians = {
        name: spread.median
        for name in systems(seen)
        if peer({"system": name}) and (spread := figure(seen, name, lines, clients, "records_per_s"))
    }
    return max(medians, key=lambda name: medians[name]) if medians else None


def to_limit(seen: Mapping[str, Any], lines: int, clients: int, product: str = PRODUCT) -> Spread | None:
    """A product's throughput over its own offline limit in the same round (the mean of that at its start and its end)."""
    kind = SYSTEMS[product].limit

    def within(number: int) -> float | None:
        own = [entry["records_per_s"] for entry in seen["limits"] if entry["kind"] == kind and entry["round"] == number]
        return statistics.mean(own) if own else None

    return _ratio(seen, lines, clients, product, within)


def by_round(entries: Iterable[Entry], name: str) -> dict[int, float]:
    """Round → one figure, where it is known."""
    return {entry["round"]: entry[name] for entry in entries if entry.get(name) is not None}


def of_system(seen: Mapping[str, Any], kind: str, system: str) -> list[Entry]:
    """The entries of one system among ``points``, ``starts`` or a workload's."""
    return [entry for entry in seen.get(kind, ()) if entry["system"] == system]


def at(seen: Mapping[str, Any], system: str, lines: int, clients: int, name: str) -> dict[int, float]:
    """Round → one figure of one system at one load."""
    return by_round([entry for entry in _entries(seen, lines, clients) if entry["system"] == system], name)


def paired(ones: Mapping[int, float], others: Mapping[int, float], how: Callable[[float, float], float]) -> Spread | None:
    """A figure made of two of the same round."""
    return Spread.of(how(one, others[number]) for number, one in ones.items() if number in others)


def _ratio(seen: Mapping[str, Any], lines: int, clients: int, product: str, base: Callable[[int], float | None]) -> Spread | None:
    pairs = [(own, base(number)) for number, own in at(seen, product, lines, clients, "records_per_s").items()]
    return Spread.of(own / other for own, other in pairs if other)


def drift(seen: Mapping[str, Any], number: int) -> float | None:
    """How much the limit changed between the start and the end of a round: 0.1 is 10% faster at the end."""
    own = {
        entry["when"]: entry["records_per_s"]
        for entry in seen["limits"]
        if entry["kind"] == "packed" and entry["round"] == number
    }
    return own["end"] / own["start"] - 1.0 if {"start", "end"} <= own.keys() else None


def start(seen: Mapping[str, Any], system: str, name: str) -> Spread | None:
    """Cold start or memory at rest."""
    return Spread.of(entry.get(name) for entry in seen["starts"] if entry["system"] == system)


def peak_mb(seen: Mapping[str, Any], system: str) -> float | None:
    """The most memory that a system held in any load of any round."""
    return max((entry["peak_mb"] for entry in seen["points"] if entry["system"] == system and "peak_mb" in entry), default=None)


def _entries(seen: Mapping[str, Any], lines: int, clients: int) -> Sequence[Entry]:
    return [entry for entry in seen["points"] if entry["lines"] == lines and entry["clients"] == clients]
