"""Ten minutes of 512 clients (SOAK_MINUTES): every answer right, and nothing that grows. Draws build/soak/NAME.html.

For as long before them fewer clients call, so that a heap, the allocators' arenas and the code that is compiled for every
number of tokens have their size: alone, 512 clients meet the rare numbers of tokens too late.

The embedded encoder answers some 100 calls a second here, too few to see a slope by the 100,000: a heap's saw-tooth is
as large. A tiny encoder takes the same way through the container, and answers ten times as many.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from containers import Container, readable
from crowd import Calls, Sight, besiege, latencies_of_ping
from footprint import PARTS, Footprint, slope
from models import encoders
from running import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

from loading import charts

MINUTES = float(os.environ.get("SOAK_MINUTES", "10"))
CLIENTS = 512
WARMING = (1, 2, 4, 8, 16, 32, 64, 128, 512, 512)
"""How many clients call before, each number for a tenth of the minutes."""
MOST_MB_PER_100_000_REQUESTS = 1.0
PING_LIMIT_S = 0.5
CPUS = ("--cpus", "2")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder that costs next to nothing, so that what is left is the container's own work."""
    return readable(encoders.save(tmp_path_factory.mktemp("tiny") / "model", head=False))


@pytest.mark.parametrize("size", ["encoder", "tiny"])
def test_ten_minutes_of_hundreds_of_clients_leave_nothing_behind(size: str, request: pytest.FixtureRequest) -> None:
    seconds = 60 * MINUTES
    with Container(request.getfixturevalue(size), {"HF_TASK": "sentence-embeddings"}, CPUS) as container:
        calls = Calls(container)
        began = time.monotonic()
        with Footprint(container) as footprint, ThreadPoolExecutor() as pool:
            pings = pool.submit(latencies_of_ping, container.base_url, 2 * seconds)
            for clients in WARMING:
                besiege(container.base_url, calls, clients, seconds / len(WARMING))
            warm = time.monotonic() - began
            sight = besiege(container.base_url, calls, CLIENTS, seconds)
        assert container.ping() == 200
    rate = sight.answers / sight.seconds
    growth = {part: slope(footprint.samples[part], "memory_mb", warm) / rate * 100_000 for part in PARTS}
    tell(sight, pings.result(), footprint, growth)
    draw(size, footprint)
    assert not sight.wrong, sight.wrong[:5]
    assert {status for status in sight.statuses if status >= 500} == set()
    assert np.quantile(pings.result(), 0.999) < PING_LIMIT_S
    assert sight.quantile(0.99) < 2.5 * CLIENTS / rate
    for part in PARTS:
        assert growth[part] <= MOST_MB_PER_100_000_REQUESTS, part
        for held in ("threads", "files"):
            before, after = (
                [getattr(one, held) for one in footprint.samples[part] if (one.seconds >= warm) is late] for late in (False, True)
            )
            assert max(after) <= max(before), f"{held} of the {part} grow"


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


def draw(size: str, footprint: Footprint) -> None:
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
    (target / f"{size}.html").write_text(page, "utf-8")
