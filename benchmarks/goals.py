"""The project's goals as ratios within one run: what is asked, what was measured, and whether that is enough."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from benchmarks import summary
from benchmarks.plan import BARE
from benchmarks.summary import Spread
from benchmarks.systems import INT8, ONE_CORE, PRODUCT
from benchmarks.workloads.large import NAME as LARGE
from benchmarks.workloads.servers import SCRIPT, STOCK
from benchmarks.workloads.trivial import NAME as TRIVIAL

Seen = Mapping[str, Any]
BUSY = 32
"""Clients from which a server has always something to do."""
FLAT, PER_DOUBLING = 1.10, 0.05
"""Memory after the loads over memory at rest; change of the cost per record."""
REQUESTS_PER_S = 12_000


@dataclass(frozen=True, slots=True)
class Goal:
    """One thing that is asked, at one load. ``value`` is judged by its median; None when it was not measured.

    ``sense`` is ``≥``, ``≤`` or ``±`` (at most so far from zero). ``otherwise`` says that another figure meets the goal.
    """

    title: str
    value: Spread | None
    sense: str
    target: float
    unit: str = "×"
    note: str = ""
    otherwise: bool = False

    @property
    def met(self) -> bool | None:
        """None when it was not measured."""
        if self.value is None:
            return None
        median = self.value.median
        fine = {"≥": median >= self.target, "≤": median <= self.target, "±": abs(median) <= self.target}
        return self.otherwise or fine[self.sense]


def goals(seen: Seen) -> list[Goal]:
    """All goals of the model that was measured, one per load."""
    name = seen["model"]["name"]
    parts = OF_MODEL.get(name, ())
    return [goal for part in parts for goal in part(seen)]


def _exact(seen: Seen) -> Iterator[Goal]:
    singles, many = _loads(seen)
    for clients in singles:
        if clients >= 8:
            ratio = summary.to_best_peer(seen, 1, clients, torch_only=True)
            yield Goal(f"fp32, W1, {clients} clients ÷ best PyTorch peer", ratio, "≥", 1.8 if clients < BUSY else 2.1)
        if clients >= BUSY:
            yield Goal(f"fp32, W1, {clients} clients ÷ offline limit", summary.to_limit(seen, 1, clients), "≥", 0.92)
    for lines, clients in many:
        where = f"fp32, W2, {lines:,} lines, {clients} {'client' if clients == 1 else 'clients'}"
        yield Goal(f"{where} ÷ offline limit", summary.to_limit(seen, lines, clients), "≥", 0.97)
        if ratio := summary.to_best_peer(seen, lines, clients):
            yield Goal(f"{where} ÷ best peer", ratio, "≥", 2.0)


def _lone(seen: Seen) -> Iterator[Goal]:
    p50, p99 = (summary.at(seen, PRODUCT, 1, 1, name) for name in ("p50_ms", "p99_ms"))
    bare: dict[int, float] = {}
    spread: dict[int, float] = {}
    for entry in (entry for entry in seen["limits"] if entry["kind"] in BARE):
        if entry["p50_ms"] < bare.get(entry["round"], math.inf):
            bare[entry["round"]], spread[entry["round"]] = entry["p50_ms"], entry["p99_ms"] / entry["p50_ms"]
    own = Spread.of(spread.values())
    note = f"bare, the same texts: {own.median:.1f} ×" if own else ""
    yield Goal("one client: p50 over bare tokenise, run, serialise", summary.paired(p50, bare, operator.sub), "≤", 1.5, "ms")
    yield Goal("one client: p99 ÷ p50", summary.paired(p99, p50, operator.truediv), "≤", 3.0, note=note)


def _int8(seen: Seen) -> Iterator[Goal]:
    exported = seen.get("agreement", {}).get(INT8, {}).get("cosine")
    live = Spread.of(entry.get("agreement") for entry in summary.of_system(seen, "starts", INT8))
    yield Goal("int8: mean cosine to fp32, texts that scales were not taken from", Spread.of([exported]), "≥", 0.995, "")
    yield Goal("int8: the same of the served answers", live, "≥", 0.995, "")
    singles, many = _loads(seen)
    for lines, clients in [(1, clients) for clients in singles if clients >= BUSY] + many:
        where = f"int8, {'W1' if lines == 1 else f'W2, {lines:,} lines'}, {clients} {'client' if clients == 1 else 'clients'}"
        yield Goal(f"{where} ÷ own offline limit", summary.to_limit(seen, lines, clients, INT8), "≥", 0.88)
        ratio = summary.to_best_peer(seen, lines, clients, INT8)
        if (lines, clients) == (1, BUSY) or (lines > 1 and ratio):
            yield Goal(f"{where} ÷ best peer", ratio, "≥", 4.3 if lines == 1 else 5.0)


def _path(seen: Seen) -> Iterator[Goal]:
    own, stock = (summary.of_system(seen, TRIVIAL, name) for name in (PRODUCT, STOCK))
    rate = Spread.of(summary.by_round(own, "requests_per_s").values())
    stock_cost, own_cost = (summary.by_round(entries, "cpu_s_per_1000") for entries in (stock, own))
    enough = rate is not None and rate.median >= REQUESTS_PER_S
    yield Goal(
        f"trivial handler, 128 clients: CPU per request, stock TorchServe ÷ ours (or {REQUESTS_PER_S:,} requests/s)",
        summary.paired(stock_cost, own_cost, operator.truediv),
        "≥",
        8.0,
        note=f"{rate.median:,.0f} requests/s" if rate else "",
        otherwise=enough,
    )
    out = Spread.of(summary.by_round(summary.of_system(seen, LARGE, SCRIPT), "out_mb_s").values())
    yield Goal("a 25 MB answer leaves at", out, "≥", 200.0, "MB/s")


def _resources(seen: Seen) -> Iterator[Goal]:
    rest, after = (summary.by_round(summary.of_system(seen, "starts", PRODUCT), name) for name in ("rest_mb", "after_mb"))
    leanest: dict[int, float] = {}
    for entry in seen["starts"]:
        if summary.peer(entry, torch_only=True):
            leanest[entry["round"]] = min(entry["rest_mb"], leanest.get(entry["round"], math.inf))
    yield Goal("memory at rest over the leanest PyTorch peer's", summary.paired(rest, leanest, operator.sub), "≤", 100.0, "MB")
    yield Goal("memory after the loads ÷ at rest", summary.paired(after, rest, operator.truediv), "≤", FLAT)
    bare = seen.get("bare", ())
    script, container = (summary.by_round(bare, name) for name in ("script_s", "container_s"))
    cold = summary.by_round(summary.of_system(seen, "starts", PRODUCT), "cold_start_s")
    start, since = (container, "`docker run`") if container else (cold, "the entrypoint (no container)")
    yield Goal(f"{since} to the first answer over a bare script", summary.paired(start, script, operator.sub), "≤", 2.5, "s")


def _scaling(seen: Seen) -> Iterator[Goal]:
    singles, many = _loads(seen)
    steps = [((1, one), (1, other), f"clients {one} → {other}") for one, other in pairwise(singles)]
    sizes = sorted({lines for lines, clients in many if clients == 1})
    steps += [((one, 1), (other, 1), f"lines {one:,} → {other:,}") for one, other in pairwise(sizes)]
    for one, other, title in steps:
        doublings = math.log2(math.prod(other) / math.prod(one))
        after, before = (summary.at(seen, PRODUCT, *load, "cpu_s_per_1000") for load in (other, one))
        yield _per_doubling(title, after, before, doublings)
    cores = seen["machine"]["cores"]
    for load in ((1, BUSY), (256, 1)):
        after, before = (summary.at(seen, name, *load, "cpu_s_per_1000") for name in (PRODUCT, ONE_CORE))
        where = f"W1, {load[1]} clients" if load[0] == 1 else f"W2, {load[0]} lines"
        if cores > 1:
            yield _per_doubling(f"cores 1 → {cores}, {where}", after, before, math.log2(cores))


def _per_doubling(title: str, after: Mapping[int, float], before: Mapping[int, float], doublings: float) -> Goal:
    change = summary.paired(after, before, lambda one, other: float(((one / other) ** (1 / doublings) - 1) * 100))
    return Goal(f"cost per record, per doubling: {title}", change, "±", PER_DOUBLING * 100, "%")


def _classifier(seen: Seen) -> Iterator[Goal]:
    singles, many = _loads(seen)
    for load in [(1, clients) for clients in singles if clients >= BUSY] + many:
        where = f"BERT-base, {'W1' if load[0] == 1 else f'W2, {load[0]:,} lines'}, c={load[1]}"
        yield Goal(f"{where} ÷ best peer", summary.to_best_peer(seen, *load), "≥", 1.75)
        yield Goal(f"{where} ÷ offline limit", summary.to_limit(seen, *load), "≥", 0.95)


def _translator(seen: Seen) -> Iterator[Goal]:
    singles, many = _loads(seen)
    for load in [(1, clients) for clients in singles if clients >= 8] + many:
        where = f"translation, {'W1' if load[0] == 1 else f'W2, {load[0]:,} lines'}, c={load[1]}"
        yield Goal(f"{where} ÷ best peer", summary.to_best_peer(seen, *load), "≥", 2.0)


def _loads(seen: Seen) -> tuple[list[int], list[tuple[int, int]]]:
    """W1's numbers of clients, and W2's loads, that the product was asked."""
    own = sorted({(entry["lines"], entry["clients"]) for entry in summary.of_system(seen, "points", PRODUCT)})
    return [clients for lines, clients in own if lines == 1], [load for load in own if load[0] > 1]


OF_MODEL = {
    "minilm": (_exact, _lone, _int8, _path, _resources, _scaling),
    "bert-base": (_classifier,),
    "translation": (_translator,),
}
