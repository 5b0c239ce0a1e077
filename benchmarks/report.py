"""The results as sections of tables and sentences, and those as Markdown; `page` shows the same sections as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import summary
from benchmarks.goals import Goal, goals
from benchmarks.summary import Spread
from benchmarks.systems import PRODUCT, SYSTEMS
from benchmarks.workloads.sizes import SIZES_MB

NOISY = 0.05
"""Drift of the limit within a round beyond which its figures are called noisy."""
LIMITS = {
    "padded": "batches of 32 in order of arrival, padded",
    "sorted": "batches of 32 sorted by length, padded",
    "budget": "sorted, padded, 1,024 tokens per pass",
    "compiled": "the same through torch.compile, weights frozen",
    "packed": "**the limit**: the product's engine on tokenised texts, one lane per core",
    "packed bf16": "the limit with products in bf16",
    "openvino fp32": "the limit with OpenVINO, fp32",
    "openvino int8-weights": "the limit with OpenVINO, 8-bit weights",
    "openvino int8": "the limit with OpenVINO, int8",
    "one": "one text at a time (tokenise, run, serialise), one thread",
    "one-threaded": "one text at a time, torch's own threads",
}
README_LOADS = ((1, 1), (1, 8), (1, 32), (1, 128), (256, 1), (256, 4))


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as they are shown; the first column holds names, the others figures. ``**`` marks what is stressed."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, a paragraph, tables, a paragraph or a list under them."""

    title: str
    tables: Sequence[Table] = ()
    before: str = ""
    after: str = ""
    items: Sequence[str] = ()


def sections(seen: Mapping[str, Any]) -> list[Section]:
    """The whole report, without sections that would be empty."""
    parts = [
        Section(seen["model"]["title"], before=_heading(seen)),
        _goals(seen),
        _throughput(seen),
        _latency(seen),
        _cost(seen),
        _trivial(seen),
        _large(seen),
        _sizes(seen),
        _limits(seen),
        _absent(seen),
    ]
    return [part for part in parts if part.before or part.items or any(table.rows for table in part.tables)]


def markdown(seen: Mapping[str, Any]) -> str:
    """The sections one under the other."""
    parts: list[str] = []
    for section in sections(seen):
        tables = [table(each.head, each.rows) for each in section.tables]
        listed = "\n".join(f"- {item}" for item in section.items)
        parts += [f"### {section.title}", section.before, *tables, section.after, listed]
    return "\n\n".join(part for part in parts if part) + "\n"


def for_readme(seen: Mapping[str, Any]) -> str:
    """The few loads and systems that the README shows."""
    loads = [load for load in README_LOADS if load in summary.points(seen)]
    leaders = {summary.best_peer(seen, *load) for load in loads}
    names = [name for name in summary.systems(seen) if name in leaders or SYSTEMS[name].limit]
    rows = []
    for name in names:
        rates = [summary.figure(seen, name, *load, "records_per_s") for load in loads]
        cost = summary.figure(seen, name, 1, 32, "cpu_s_per_1000")
        rows.append([_name(name), *(number(one.median if one else None) for one in (*rates, cost))])
    for name in (name for name in names if SYSTEMS[name].limit):
        for title, how in (("best peer", summary.to_best_peer), ("own limit", summary.to_limit)):
            values = [how(seen, *load, name) for load in loads]
            rows.append([f"× {title}, {name}", *(f"{value.median:.2f}" if value else "–" for value in values), ""])
    return table(["", *(load_title(*load) for load in loads), "CPU s per 1,000 (W1, 32)"], rows) + "\n"


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
    made = f" on {machine['began']}, revision {machine['revision']}" if "began" in machine else ""
    return (
        f"Measured{made}, {machine['cores']} cores of {machine['cpu']}; median of {plan['rounds']} rounds "
        f"(± half the range; ratios: smallest–largest), {plan['seconds']:g} s per load. "
        "W1: one JSON text per request; W2: many lines per request; c: clients. "
        f"Drift of the limit within each round: {steady}."
    )


def _goals(seen: Mapping[str, Any]) -> Section:
    rows = [[goal.title, f"{goal.sense} {goal.target:g}{_unit(goal)}", _measured(goal), _verdict(goal)] for goal in goals(seen)]
    met, judged = (sum(row[3] in verdicts for row in rows) for verdicts in (("met",), ("met", "**missed**")))
    before = f"{met} of {judged} that were measured are met (judged by the median)." if rows else ""
    return Section("Goals", [Table(["", "goal", "measured (smallest–largest)", ""], rows)], before)


def _unit(goal: Goal) -> str:
    return f" {goal.unit}" if goal.unit else ""


def _measured(goal: Goal) -> str:
    if goal.value is None:
        return "–"
    digits = 4 if not goal.unit else 1 if goal.unit in ("%", "ms", "s", "MB", "MB/s") else 2
    median, low, high = (f"{part:,.{digits}f}" for part in (goal.value.median, goal.value.low, goal.value.high))
    shown = median if low == high else f"{median} ({low}–{high})"
    return shown + (f"; {goal.note}" if goal.note else "")


def _verdict(goal: Goal) -> str:
    return {None: "not measured", True: "met", False: "**missed**"}[goal.met]


def _throughput(seen: Mapping[str, Any]) -> Section:
    loads = summary.points(seen)
    rows = [[_name(name), *(_records(seen, name, *load) for load in loads)] for name in summary.systems(seen)]
    for name in (name for name in summary.systems(seen) if SYSTEMS[name].limit):
        rows.append([f"{name} × best peer", *(spread(summary.to_best_peer(seen, *load, name)) for load in loads)])
        rows.append([f"{name} × own limit", *(spread(summary.to_limit(seen, *load, name)) for load in loads)])
    agreed = [
        f"{name} agrees with fp32 to a mean cosine of {measured['cosine']:.5f} (worst {measured['worst']:.4f})"
        for name, measured in seen.get("agreement", {}).items()
    ]
    notes = [note for note in (_best_peers(seen), "; ".join(agreed) + "." if agreed else "") if note]
    return Section("Records per second", _narrow(["", *(load_title(*load) for load in loads)], rows), after=" ".join(notes))


def _best_peers(seen: Mapping[str, Any]) -> str:
    """Which peer the ratios are to."""
    loads: dict[str, list[str]] = {}
    for load in summary.points(seen):
        name = summary.best_peer(seen, *load)
        if name:
            loads.setdefault(name, []).append(load_title(*load))
    return "Best peer: " + "; ".join(f"{name} ({', '.join(titles)})" for name, titles in loads.items()) + "." if loads else ""


def _narrow(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Table]:
    """Tables of at most six loads each, so that they fit a page."""
    tables = []
    for first in range(1, len(head), 6):
        columns = [0, *range(first, min(first + 6, len(head)))]
        tables.append(Table([head[column] for column in columns], [[row[column] for column in columns] for row in rows]))
    return tables


def _records(seen: Mapping[str, Any], system: str, lines: int, clients: int) -> str:
    value = summary.figure(seen, system, lines, clients, "records_per_s")
    failures = summary.failed(seen, system, lines, clients)
    if value is None:
        return "too long" if summary.left_out(seen, system, lines, clients) else "–"
    return within(value) + (f", {failures:,} failed" if failures else "")


def _latency(seen: Mapping[str, Any]) -> Section:
    loads = [load for load in summary.points(seen) if load[0] == 1]
    rows = []
    for name in summary.systems(seen) if loads else ():
        values = [[summary.figure(seen, name, *load, figure) for figure in ("p50_ms", "p99_ms")] for load in loads]
        rows.append([_name(name), *(" / ".join(number(value.median if value else None) for value in pair) for pair in values)])
    bare = [
        f"{label}: p50 {number(p50.median)} ms, p99 {number(p99.median)} ms"
        for kind, label in (("one", "one thread"), ("one-threaded", "torch's threads"))
        if (p50 := summary.limit(seen, kind, "p50_ms")) and (p99 := summary.limit(seen, kind, "p99_ms"))
    ]
    note = f"Bare tokenise, run and serialise of the same texts, {'; '.join(bare)}." if bare else ""
    return Section("Latency", [Table(["p50 / p99 in ms", *(load_title(*load) for load in loads)], rows)], after=note)


def _cost(seen: Mapping[str, Any]) -> Section:
    loads = summary.points(seen)
    chosen = [load for load in loads if load in ((1, 1), (1, 32), (1, 128), (256, 1), (256, 4))] or loads[:5]
    head = ["", *(f"CPU s/1,000 at {load_title(*load)}" for load in chosen), "rest MB", "peak MB", "after MB", "cold start s"]
    rows = []
    for name in summary.systems(seen):
        costs = [within(summary.figure(seen, name, *load, "cpu_s_per_1000")) for load in chosen]
        rest, after, cold = (summary.start(seen, name, figure) for figure in ("rest_mb", "after_mb", "cold_start_s"))
        peak = summary.peak_mb(seen, name)
        memory = [number(rest.median if rest else None), number(peak), number(after.median if after else None)]
        rows.append([_name(name), *costs, *memory, spread(cold)])
    starts = [
        f"{title} {spread(value)} s"
        for figure, title in (("script_s", "a bare script takes"), ("container_s", "from `docker run` the image takes"))
        if (value := Spread.of(entry.get(figure) for entry in seen.get("bare", ())))
    ]
    after_table = f"To the first answer {', '.join(starts)}." if starts else ""
    return Section("Cost, memory (PSS of all processes), start (to the first answer)", [Table(head, rows)], after=after_table)


def _trivial(seen: Mapping[str, Any]) -> Section:
    columns = ("requests_per_s", "p50_ms", "p99_ms", "cpu_s_per_1000")
    head = ["", "requests/s", "p50 ms", "p99 ms", "CPU s/1,000"]
    return Section("A handler that does nothing, 128 clients", [Table(head, _workload(seen, "trivial", columns))])


def _large(seen: Mapping[str, Any]) -> Section:
    columns = ("out_mb_s", "out_first_ms", "out_cpu_ms", "in_mb_s")
    head = ["", "25 MB out, MB/s", "begins after ms", "CPU ms per answer", "25 MB in, MB/s"]
    return Section("Bodies of 25 MB, one request at a time", [Table(head, _workload(seen, "large", columns))])


def _sizes(seen: Mapping[str, Any]) -> Section:
    columns = [f"{direction}_{size}" for size in SIZES_MB for direction in ("out", "in")]
    head = ["MB/s", *(f"{size} MB {direction}" for size in SIZES_MB for direction in ("out", "in"))]
    return Section("Bodies of a transform job, one request at a time", [Table(head, _workload(seen, "sizes", columns))])


def _workload(seen: Mapping[str, Any], kind: str, columns: Sequence[str]) -> list[list[str]]:
    names = list(dict.fromkeys(entry["system"] for entry in seen.get(kind, ())))
    entries = {name: summary.of_system(seen, kind, name) for name in names}
    return [[name, *(within(Spread.of(each[column] for each in entries[name])) for column in columns)] for name in names]


def _limits(seen: Mapping[str, Any]) -> Section:
    rows = [[text, within(value)] for kind, text in LIMITS.items() if (value := summary.limit(seen, kind))]
    return Section("Offline limits", [Table(["", "records/s"], rows)])


def _absent(seen: Mapping[str, Any]) -> Section:
    return Section("Not measured", items=[f"{name}: {reason}" for name, reason in seen["absent"].items()])


def _name(name: str) -> str:
    if name == PRODUCT:
        return f"**{name}**"
    return f"{name} (its default)" if name in SYSTEMS and SYSTEMS[name].stock else name
