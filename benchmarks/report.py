"""The results as Markdown: throughput and ratios, latency, cost and memory, limits, and what is missing and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import summary
from benchmarks.summary import Spread
from benchmarks.systems import PRODUCT, SYSTEMS

NOISY = 0.05
"""Drift of the limit within a round beyond which its figures are called noisy."""
LIMITS = {
    "padded": "batches of 32 in order of arrival, padded",
    "sorted": "batches of 32 sorted by length, padded",
    "budget": "sorted, padded, 1,024 tokens per pass",
    "packed": "**the limit**: the product's engine on tokenised texts, one lane per core",
    "one": "one text at a time (tokenise, run, serialise), one thread",
    "one-threaded": "one text at a time, torch's own threads",
}


def markdown(seen: Mapping[str, Any]) -> str:
    """The whole report."""
    parts = [_heading(seen), _throughput(seen), _latency(seen), _cost(seen), _limits(seen), _absent(seen)]
    return "\n\n".join(part for part in parts if part) + "\n"


def drift(seen: Mapping[str, Any], number: int) -> str:
    """One line about how steady the machine was in a round."""
    change = summary.drift(seen, number)
    if change is None:
        return f"round {number + 1}: no drift known"
    verdict = "steady" if abs(change) <= NOISY else "NOISY: repeat on a quiet machine"
    return f"round {number + 1}: the limit drifted by {change:+.1%} ({verdict})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An aligned Markdown table, numbers to the right."""
    widths = [max(3, *(len(row[column]) for row in (head, *rows))) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = "|".join("-" * (width + 2) if column == 0 else "-" * (width + 1) + ":" for column, width in enumerate(widths))
    return "\n".join([line(head), f"|{rule}|", *map(line, rows)])


def number(value: float | None) -> str:
    """Three figures that matter."""
    if value is None:
        return "–"
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:,.{digits}f}"


def spread(value: Spread | None) -> str:
    """Median, and smallest to largest where they differ."""
    if value is None:
        return "–"
    median, low, high = (number(part) for part in (value.median, value.low, value.high))
    return median if low == high else f"{median} ({low}–{high})"


def within(value: Spread | None) -> str:
    """Median, and half the range as a share of it."""
    if value is None:
        return "–"
    share = (value.high - value.low) / 2 / value.median if value.median else 0.0
    return number(value.median) if value.low == value.high else f"{number(value.median)} ±{share:.0%}"


def load_title(lines: int, clients: int) -> str:
    """A load in a table's head."""
    return f"W1 c={clients}" if lines == 1 else f"W2 {lines:,} c={clients}"


def _heading(seen: Mapping[str, Any]) -> str:
    machine, plan = seen["machine"], seen["plan"]
    drifts = [change for index in range(plan["rounds"]) if (change := summary.drift(seen, index)) is not None]
    steady = ", ".join(f"{change:+.1%}" for change in drifts) or "unknown"
    return (
        f"**{seen['model']['title']}** on {machine['cores']} cores of {machine['cpu']}; median of {plan['rounds']} rounds "
        f"(± half the range; ratios: smallest–largest), {plan['seconds']:g} s per load. "
        "W1: one JSON text per request; W2: many lines per request; c: clients. "
        f"Drift of the limit within each round: {steady}."
    )


def _throughput(seen: Mapping[str, Any]) -> str:
    loads = summary.points(seen)
    rows = [[_name(name), *(_records(seen, name, *load) for load in loads)] for name in summary.systems(seen)]
    rows.append(["× best peer", *(spread(summary.to_best_peer(seen, *load)) for load in loads)])
    rows.append(["× limit", *(spread(summary.to_limit(seen, *load)) for load in loads)])
    return "### Records per second\n\n" + _narrow(["", *(load_title(*load) for load in loads)], rows) + _best_peers(seen)


def _best_peers(seen: Mapping[str, Any]) -> str:
    """Which peer the ratios are to."""
    loads: dict[str, list[str]] = {}
    for load in summary.points(seen):
        name = summary.best_peer(seen, *load)
        if name:
            loads.setdefault(name, []).append(load_title(*load))
    return "\n\nBest peer: " + "; ".join(f"{name} ({', '.join(titles)})" for name, titles in loads.items()) + "." if loads else ""


def _narrow(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Tables of at most six loads each, so that they fit a page."""
    parts = []
    for first in range(1, len(head), 6):
        columns = [0, *range(first, min(first + 6, len(head)))]
        parts.append(table([head[column] for column in columns], [[row[column] for column in columns] for row in rows]))
    return "\n\n".join(parts)


def _records(seen: Mapping[str, Any], system: str, lines: int, clients: int) -> str:
    value = summary.figure(seen, system, lines, clients, "records_per_s")
    failures = summary.failed(seen, system, lines, clients)
    if value is None:
        return "too long" if summary.left_out(seen, system, lines, clients) else "–"
    return within(value) + (f", {failures:,} failed" if failures else "")


def _latency(seen: Mapping[str, Any]) -> str:
    loads = [load for load in summary.points(seen) if load[0] == 1]
    rows = []
    for name in summary.systems(seen):
        values = [[summary.figure(seen, name, *load, figure) for figure in ("p50_ms", "p99_ms")] for load in loads]
        rows.append([_name(name), *(" / ".join(number(value.median if value else None) for value in pair) for pair in values)])
    bare = [
        f"{label}: p50 {number(p50.median)} ms, p99 {number(p99.median)} ms"
        for kind, label in (("one", "one thread"), ("one-threaded", "torch's threads"))
        if (p50 := summary.limit(seen, kind, "p50_ms")) and (p99 := summary.limit(seen, kind, "p99_ms"))
    ]
    note = f"\n\nBare tokenise, run and serialise of the same texts, {'; '.join(bare)}." if bare else ""
    head = ["p50 / p99 in ms", *(load_title(*load) for load in loads)]
    return f"### Latency\n\n{table(head, rows)}{note}" if loads else ""


def _cost(seen: Mapping[str, Any]) -> str:
    loads = summary.points(seen)
    chosen = [load for load in loads if load in ((1, 1), (1, 32), (1, 128), (256, 1), (256, 4))] or loads[:5]
    head = ["", *(f"CPU s/1,000 at {load_title(*load)}" for load in chosen), "rest MB", "peak MB", "cold start s"]
    rows = []
    for name in summary.systems(seen):
        costs = [within(summary.figure(seen, name, *load, "cpu_s_per_1000")) for load in chosen]
        rest, cold = (summary.start(seen, name, figure) for figure in ("rest_mb", "cold_start_s"))
        rows.append(
            [_name(name), *costs, number(rest.median if rest else None), number(summary.peak_mb(seen, name)), spread(cold)]
        )
    return "### Cost, memory (PSS of all processes), start (to the first answer)\n\n" + table(head, rows)


def _limits(seen: Mapping[str, Any]) -> str:
    rows = [[text, within(value)] for kind, text in LIMITS.items() if (value := summary.limit(seen, kind))]
    return "### Offline limits\n\n" + table(["", "records/s"], rows)


def _absent(seen: Mapping[str, Any]) -> str:
    rows = [f"- {name}: {reason}" for name, reason in seen["absent"].items()]
    return "### Not measured\n\n" + "\n".join(rows) if rows else ""


def _name(name: str) -> str:
    if name == PRODUCT:
        return f"**{name}**"
    return f"{name} (its default)" if name in SYSTEMS and SYSTEMS[name].stock else name
