"""Three pictures of a results file: throughput against clients, latency against throughput, cost per record against work.

Runs in the environment that benchmarks/requirements.txt describes:

    python -m benchmarks.plots build/bench/results.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks import summary
from benchmarks.systems import ONE_CORE, PRODUCT, SYSTEMS

ACCENT, SECOND, GREY, LIMIT = "#0072B2", "#56B4E9", "#6b6b6b", "#D55E00"
"""Blues and vermilion of Okabe and Ito's palette, which all kinds of colour vision tell apart."""
PEERS = ("#CC79A7", "#B8860B", "#882255", "#777777", "#009E73", "#333333", "#8C564B")
MARKERS = "os^Dv<>PX*hp"
Label = tuple[float, float, str, str]
"""Where a line ends, its name and its colour."""
Series = tuple[list[float], list[float], list[float], list[float]]


def main() -> int:
    """Draw everything beside the results, as PNG and SVG."""
    path = Path(sys.argv[1])
    seen = json.loads(path.read_text("utf-8"))
    suffix = path.stem.removeprefix("results")
    pyplot.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "bench"})
    for name, draw in (("throughput", _throughput), ("latency", _latency), ("cost", _cost)):
        figure = draw(seen)
        for kind in ("png", "svg"):
            target = path.with_name(f"{name}{suffix}.{kind}")
            figure.savefig(target, dpi=150, bbox_inches="tight")
            print(f"written: {target}")
        pyplot.close(figure)
    return 0


def _throughput(seen: Mapping[str, Any]) -> Any:
    """One panel per size of request."""
    sizes = sorted({lines for lines, _ in summary.points(seen)})
    figure, panels = _panels(seen, "Throughput against concurrent clients", "up is better", len(sizes))
    limits = {kind: value for kind in _limits(seen) if (value := summary.limit(seen, kind))}
    for panel, size in zip(panels, sizes, strict=True):
        clients = [clients for lines, clients in summary.points(seen) if lines == size]
        series = {name: _against_clients(seen, name, size, "records_per_s") for name in _shown(seen)}
        labels = [label for index, name in enumerate(series) if (label := _line(panel, series[name], name, index))]
        for kind, limit in limits.items():
            panel.axhline(limit.median, color=LIMIT, linestyle="--", linewidth=1.2)
            labels.append((float(clients[-1]), limit.median, f"offline limit, {kind}", LIMIT))
        panel.set_title("one JSON text per request" if size == 1 else f"{size:,} lines per request", loc="left", fontsize=10)
        panel.set_xlabel("clients")
        panel.set_ylabel("records per second")
        _log2_axis(panel, clients)
        panel.set_ylim(0)
        _direct_labels(panel, labels)
    return figure


def _latency(seen: Mapping[str, Any]) -> Any:
    """One text per request: each system's path from few to many clients."""
    figure, panels = _panels(seen, "Latency against throughput, one JSON text per request", "down and right is better", 2)
    for panel, (percentile, title) in zip(panels, (("p50_ms", "median"), ("p99_ms", "99th percentile")), strict=True):
        labels: list[Label] = []
        for index, name in enumerate(_shown(seen)):
            clients, rates, _, _ = _against_clients(seen, name, 1, "records_per_s")
            _, times, _, _ = _against_clients(seen, name, 1, percentile)
            label = _line(panel, (rates, times, times, times), name, index)
            if label:
                labels.append(label)
            if name == PRODUCT:
                for count, rate, time in zip(clients, rates, times, strict=True):
                    panel.annotate(
                        f"{count:.0f}",
                        (rate, time),
                        xytext=(7, 0),
                        textcoords="offset points",
                        va="center",
                        color=ACCENT,
                        fontsize=8,
                    )
        panel.set_yscale("log")
        panel.set_xlim(0, max((rate for rate, _, _, _ in labels), default=1.0) * 1.15)
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
        panel.set_title(f"{title}; along each line from few to many clients", loc="left", fontsize=10)
        panel.set_xlabel("records per second")
        panel.set_ylabel("latency in ms")
        _direct_labels(panel, labels)
    return figure


def _cost(seen: Mapping[str, Any]) -> Any:
    """CPU seconds per 1,000 records against the records that are under way at once."""
    figure, (panel,) = _panels(seen, "Cost per record against work", "down is better; level: cost does not depend on load", 1)
    labels: list[Label] = []
    for index, name in enumerate(_shown(seen)):
        work: dict[int, list[float]] = {}
        for lines, clients in summary.points(seen):
            cost = summary.figure(seen, name, lines, clients, "cpu_s_per_1000")
            if cost:
                work.setdefault(lines * clients, []).append(cost.median)
        xs = sorted(work)
        ys = [sum(work[x]) / len(work[x]) for x in xs]
        label = _line(panel, ([float(x) for x in xs], ys, ys, ys), name, index)
        if label:
            labels.append(label)
    panel.set_ylabel("CPU seconds per 1,000 records, all processes")
    panel.set_xlabel("records under way at once: clients × records per request")
    _log2_axis(panel, sorted({lines * clients for lines, clients in summary.points(seen)}))
    panel.set_ylim(0)
    _direct_labels(panel, labels)
    return figure


def _shown(seen: Mapping[str, Any]) -> list[str]:
    """The products on all cores, and of each peer the setting that is fastest on average: the table has them all."""

    def pace(name: str) -> float:
        found = [summary.figure(seen, name, *load, "records_per_s") for load in summary.points(seen)]
        return sum(value.median for value in found if value)

    best: dict[str, str] = {}
    for name in sorted(set(summary.systems(seen)) - {ONE_CORE}, key=pace):
        best[SYSTEMS[name].environment or name if name in SYSTEMS else name] = name
    return [name for name in summary.systems(seen) if name in best.values()]


def _limits(seen: Mapping[str, Any]) -> list[str]:
    """The kinds of limit that the products shown are a share of."""
    return [kind for name in _shown(seen) if name in SYSTEMS and (kind := SYSTEMS[name].limit)]


def _panels(seen: Mapping[str, Any], title: str, direction: str, count: int) -> tuple[Any, list[Any]]:
    """Two panels to a row, with room for names at the right of each."""
    columns = min(2, count)
    rows = -(-count // columns)
    size = (8.6 if count == 1 else 7.2 * columns, 0.9 + 4.4 * rows)
    figure, grid = pyplot.subplots(rows, columns, figsize=size, squeeze=False)
    figure.subplots_adjust(wspace=0.85, hspace=0.32, top=1.0 - 0.85 / size[1])
    machine = seen["machine"]
    under = f"{seen['model']['title']} · {machine['cores']} cores, {machine['cpu']} · median of {seen['plan']['rounds']} rounds"
    left = grid[0][0].get_position().x0
    figure.text(left, 1.0 - 0.22 / size[1], f"{title} ({direction})", fontsize=13, weight="bold")
    figure.text(left, 1.0 - 0.45 / size[1], under, fontsize=9, color=GREY)
    panels = [panel for row in grid for panel in row]
    for panel in panels[count:]:
        panel.remove()
    for panel in panels[:count]:
        panel.grid(axis="y", color="#e6e6e6", linewidth=0.8)
        panel.set_axisbelow(True)
    return figure, panels[:count]


def _against_clients(seen: Mapping[str, Any], system: str, lines: int, name: str) -> Series:
    """Clients, and a figure's median, smallest and largest value at each."""
    found = [
        (float(clients), spread)
        for size, clients in summary.points(seen)
        if size == lines and (spread := summary.figure(seen, system, lines, clients, name))
    ]
    spreads = [spread for _, spread in found]
    return (
        [clients for clients, _ in found],
        [spread.median for spread in spreads],
        [spread.low for spread in spreads],
        [spread.high for spread in spreads],
    )


def _line(panel: Any, series: Series, name: str, index: int) -> Label | None:
    """A line with the spread over rounds as a band."""
    xs, ys, lows, highs = series
    if not xs:
        return None
    product = name in SYSTEMS and SYSTEMS[name].product
    colour, order = (ACCENT if name == PRODUCT else SECOND, 5) if product else (PEERS[index % len(PEERS)], 2)
    look = {"linewidth": 2.8 if product else 1.1, "marker": MARKERS[index % len(MARKERS)], "markersize": 5 if product else 4}
    panel.plot(xs, ys, color=colour, zorder=order, **look)
    panel.fill_between(xs, lows, highs, color=colour, alpha=0.15, linewidth=0, zorder=order - 1)
    return xs[-1], ys[-1], name, colour


def _direct_labels(panel: Any, labels: Sequence[Label]) -> None:
    """Names to the right of the panel, as high as their lines' ends and pushed apart until none overlaps."""
    to_axes = panel.transData + panel.transAxes.inverted()
    places = sorted((float(to_axes.transform((x, y))[1]), x, y, name, colour) for x, y, name, colour in labels)
    gap = 0.052
    heights = [place[0] for place in places]
    for index in range(1, len(heights)):
        heights[index] = max(heights[index], heights[index - 1] + gap)
    if heights and heights[-1] > 1.0:
        heights[-1] = 1.0
        for index in range(len(heights) - 2, -1, -1):
            heights[index] = min(heights[index], heights[index + 1] - gap)
    for height, (_, x, y, name, colour) in zip(heights, places, strict=True):
        panel.annotate(
            f"{name} (its default)" if name in SYSTEMS and SYSTEMS[name].stock else name,
            xy=(x, y),
            xytext=(1.07, height),
            xycoords="data",
            textcoords="axes fraction",
            color=colour,
            weight="bold" if colour in (ACCENT, SECOND, LIMIT) else "normal",
            fontsize=8.5,
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.5,
                "alpha": 0.7,
                "shrinkA": 1,
                "shrinkB": 3,
                "relpos": (0, 0.5),
            },
        )


def _log2_axis(panel: Any, ticks: Sequence[int]) -> None:
    panel.set_xscale("log", base=2)
    shown = sorted(set(ticks))
    panel.set_xticks(shown if len(shown) <= 8 else [2**power for power in range(0, shown[-1].bit_length(), 3)])
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    panel.xaxis.set_minor_formatter(NullFormatter())


if __name__ == "__main__":
    sys.exit(main())
