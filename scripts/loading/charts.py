"""Charts as inline SVG whose colours follow the page (CSS classes), drawn wide enough to be read on a phone.

Every mark has a ``<title>``, which browsers show under the pointer and screen readers say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 420, 270
LEFT, RIGHT, TOP, BOTTOM = 50, 14, 30, 42
LETTER = 6.3
"""Width of a letter of a label, about."""
APART = 13.0
TICKS = 5
LABELLED = 9
STEPS = (1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class Line:
    """A named line through points, or the points alone; ``colour`` is the number of its CSS class."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int = 1
    joined: bool = True


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: what stands under it, its height, and what the pointer shows."""

    label: str
    value: float
    title: str


def lines(
    series: Sequence[Line],
    x_name: str,
    unit: str,
    *,
    log_y: bool = False,
    log_x: bool = True,
    marks: Sequence[tuple[float, str]] = (),
) -> str:
    """Lines over a logarithmic or linear x axis; ``marks`` are horizontal rules with a name."""
    xs = sorted({x for line in series for x, _ in line.points})
    ys = [y for line in series for _, y in line.points]
    if not xs or not ys:
        return ""
    high = max([*ys, *(value for value, _ in marks)])
    y_ticks = log_ticks(min(y for y in ys if y > 0), high) if log_y and high > 0 and any(ys) else linear_ticks(high)
    place_y = _scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP, log_y and y_ticks[0] > 0)
    x_ticks = xs if log_x else linear_ticks(xs[-1])
    place_x = _scale(x_ticks[0], x_ticks[-1], LEFT + 12.0, WIDTH - RIGHT - 12.0, log_x and xs[0] > 0)
    parts = [_y_axis(y_ticks, place_y), _x_labels([(place_x(x), f"{x:,.4g}") for x in x_ticks], x_name)]
    for value, name in marks:
        y = place_y(value)
        parts.append(f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="note" x="{WIDTH - RIGHT}" y="{y - 5:.1f}" text-anchor="end">{escape(name)}</text>')
    for line in series:
        drawn = [(place_x(x), place_y(y)) for x, y in line.points]
        if line.joined:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in drawn)
            parts.append(f'<polyline class="line c{line.colour}" points="{path}"/>')
        radius = 3.4 if line.joined else 2.2
        for (x, y), (px, py) in zip(line.points, drawn, strict=True):
            shown = escape(f"{line.name}: {y:,.4g} {unit} at {x:,.4g} {x_name}")
            parts.append(
                f'<circle class="dot c{line.colour}" cx="{px:.1f}" cy="{py:.1f}" r="{radius}"><title>{shown}</title></circle>'
            )
    parts.append(_legend(series, unit))
    return _svg(parts, f"{', '.join(line.name for line in series)} in {unit} against {x_name}")


def bars(items: Sequence[Bar], x_name: str, unit: str) -> str:
    """Bars side by side; as many labels as have room."""
    if not items or not any(item.value for item in items):
        return ""
    ticks = linear_ticks(max(item.value for item in items))
    place = _scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP, False)
    width = (WIDTH - LEFT - RIGHT) / len(items)
    every = max(1, math.ceil(len(items) / LABELLED))
    parts = [_y_axis(ticks, place)]
    labels = []
    for number, item in enumerate(items):
        left, top = LEFT + number * width, place(item.value)
        gap = min(3.0, width * 0.15)
        parts.append(
            f'<rect class="bar" x="{left + gap / 2:.1f}" y="{top:.1f}" width="{width - gap:.1f}" '
            f'height="{HEIGHT - BOTTOM - top:.1f}" rx="1.5"><title>{escape(item.title)}</title></rect>'
        )
        if number % every == 0:
            labels.append((left + width / 2, item.label))
    parts.append(_x_labels(labels, x_name))
    parts.append(f'<text class="note" x="{LEFT}" y="14">{escape(unit)}</text>')
    return _svg(parts, f"{unit} against {x_name}")


def linear_ticks(high: float) -> list[float]:
    """Round values from 0 to at least ``high``, about five of them."""
    if high <= 0:
        return [0.0, 1.0]
    step = _round_up(high / TICKS)
    return [number * step for number in range(math.ceil(high / step - 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10 … around both; only powers of ten over more than two decades."""
    kept = STEPS if high / low <= 100 else STEPS[:1]
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1
    ticks = [factor * 10.0**power for power in range(first, last + 1) for factor in kept]
    start = max(place for place, tick in enumerate(ticks) if tick <= low * (1 + 1e-9))
    end = min(place for place, tick in enumerate(ticks) if tick >= high * (1 - 1e-9))
    return ticks[start : max(end, start + 1) + 1]


def _round_up(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next((factor * power for factor in STEPS if factor * power >= step * (1 - 1e-9)), 10 * power)


def _scale(low: float, high: float, start: float, end: float, logarithmic: bool) -> Callable[[float], float]:
    """Values → places; a range of one value lies in the middle."""
    if high <= low:
        return lambda _: (start + end) / 2
    if not logarithmic:
        return lambda value: start + (value - low) / (high - low) * (end - start)
    return lambda value: start + math.log(max(value, low) / low) / math.log(high / low) * (end - start)


def _y_axis(ticks: Sequence[float], place: Callable[[float], float]) -> str:
    parts = []
    for tick in ticks:
        y = place(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(tick)}</text>')
    return "".join(parts)


def _x_labels(labels: Sequence[tuple[float, str]], name: str) -> str:
    parts = []
    free = -math.inf
    for x, label in labels:
        half = len(label) * LETTER / 2
        if x - half < free:
            continue
        free = x + half + APART / 2
        parts.append(f'<text class="tick" x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{escape(label)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="note" x="{middle:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(name)}</text>')
    return "".join(parts)


def _legend(series: Sequence[Line], unit: str) -> str:
    parts = [f'<text class="note" x="{LEFT}" y="14">{escape(unit)}</text>']
    x = LEFT + len(unit) * LETTER + 16.0
    if len(series) > 1:
        for line in series:
            parts.append(f'<circle class="dot c{line.colour}" cx="{x:.1f}" cy="10" r="3.4"/>')
            parts.append(f'<text class="name" x="{x + 8:.1f}" y="14">{escape(line.name)}</text>')
            x += len(line.name) * LETTER + 26.0
    return "".join(parts)


def _short(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:,.3g}M"
    return f"{value / 1e3:,.3g}k" if value >= 1e4 else f"{value:,.4g}"


def _svg(parts: Sequence[str], described: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(described)}">{"".join(parts)}</svg>'
