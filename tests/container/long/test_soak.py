"""Ten minutes of 512 clients (SOAK_MINUTES): every answer right, and nothing that grows. Draws build/soak/footprint.html."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from containers import Container
from crowd import Calls, Sight, besiege, latencies_of_ping
from footprint import PARTS, Footprint, slope
from running import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

from loading import charts

MINUTES = float(os.environ.get("SOAK_MINUTES", "10"))
CLIENTS = 512
WARM_UP = 0.3
"""Share of the time after which a heap, the compiled code and the allocators' arenas have their size."""
MOST_MB_PER_100_000_REQUESTS = 1.0
PING_LIMIT_S = 0.5
OPTIONS = ("--cpus", "2", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")


def test_ten_minutes_of_hundreds_of_clients_leave_nothing_behind(encoder: Path) -> None:
    seconds = 60 * MINUTES
    with Container(encoder, options=OPTIONS) as container:
        calls = Calls(container)
        with Footprint(container) as footprint, ThreadPoolExecutor() as pool:
            pings = pool.submit(latencies_of_ping, container.base_url, seconds)
            sight = besiege(container.base_url, calls, CLIENTS, seconds)
        assert container.ping() == 200
    rate = sight.answers / sight.seconds
    growth = {part: slope(footprint.samples[part], "memory_mb", WARM_UP) / rate * 100_000 for part in PARTS}
    tell(sight, pings.result(), footprint, growth)
    draw(footprint)
    assert not sight.wrong, sight.wrong[:5]
    assert {status for status in sight.statuses if status >= 500} == set()
    assert np.quantile(pings.result(), 0.999) < PING_LIMIT_S
    assert sight.quantile(0.99) < 2.5 * CLIENTS / rate
    for part in PARTS:
        assert growth[part] <= MOST_MB_PER_100_000_REQUESTS, part
        for held in ("threads", "files"):
            counts = [getattr(one, held) for one in footprint.samples[part] if one.seconds > WARM_UP * seconds]
            assert max(counts[len(counts) // 2 :]) <= max(counts[: len(counts) // 2]), f"{held} of the {part} grow"


def tell(sight: Sight, pings: list[float], footprint: Footprint, growth: dict[str, float]) -> None:
    """The figures of the run, for whoever reads its output."""
    print(f"\n{sight.answers:,} answers in {sight.seconds:.0f} s by status {dict(sorted(sight.statuses.items()))}")
    print(f"latency p50 {sight.quantile(0.5):.2f} s, p99 {sight.quantile(0.99):.2f} s, longest {max(sight.latencies):.2f} s")
    print(f"/ping p50 {1e3 * np.median(pings):.1f} ms, p99.9 {1e3 * np.quantile(pings, 0.999):.0f} ms of {len(pings):,}")
    for part in PARTS:
        first, last = footprint.samples[part][0], footprint.samples[part][-1]
        print(
            f"{part}: {first.memory_mb:.0f} → {last.memory_mb:.0f} MB, {growth[part]:+.2f} MB per 100,000 requests once warm, "
            f"{first.threads} → {last.threads} threads, {first.files} → {last.files} files"
        )


def draw(footprint: Footprint) -> None:
    """Memory, threads and files over time, as a page."""
    drawn = []
    for name, label in (("memory_mb", "MB"), ("threads", "threads"), ("files", "open files")):
        series = [
            charts.Line(part, [(one.seconds / 60, getattr(one, name)) for one in footprint.samples[part]], colour)
            for colour, part in enumerate(PARTS, 1)
        ]
        drawn.append(charts.lines(series, "minutes", label, log_x=False))
    style = (ROOT / "scripts" / "loading" / "page.css").read_text("utf-8")
    target = ROOT / "build" / "soak"
    target.mkdir(parents=True, exist_ok=True)
    page = f"<!doctype html><meta charset=utf-8><title>Soak</title><style>{style}</style><main>{''.join(drawn)}</main>"
    (target / "footprint.html").write_text(page, "utf-8")
