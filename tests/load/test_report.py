"""The HTML reports: whole in one file, true to the figures, and as wide as the screen."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from load.simulated import SimulatedServer
from loading import charts, report
from tuning import outcome
from tuning.outcome import HeldOut
from tuning.search import Found
from tuning.space import Candidate, default

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SERVER = {
    "requests_per_batch": 7.25,
    "records_per_forward_pass": 4.0,
    "padding_share": 0.031,
    "queue_ms": 12.5,
    "handler_ms": 40.0,
    "forward_ms": 35.0,
    "records": 800,
    "batches": {"1": 3, "2": 0, "4": 1, "8": 90, "16": 0, "more": 0},
}


def step(pace: float, **values: Any) -> dict[str, Any]:
    latency = {"mean": 21.0, "p50": 20.5, "p90": 31.0, "p95": 45.25, "p99": 99.75, "p99.9": 120.0, "max": 130.0}
    bars = [{"from_ms": 10.0, "to_ms": 12.1, "count": 30}, {"from_ms": 12.1, "to_ms": 14.7, "count": 70}]
    known = {"requests_per_s": pace, "requests": 100, "errors": 0, "errors_by_kind": {}, "error_samples": {}}
    known |= {"latency_ms": latency, "histogram": bars, "machine_cpu": 0.9, "server": SERVER}
    return known | values


def result(**values: Any) -> dict[str, Any]:
    known = {
        "target": "http://127.0.0.1:8080",
        "started": "2026-01-31T12:00:00+00:00",
        "stopped_early": False,
        "machine": {"cpus": 2, "system": "Linux x86_64"},
        "payloads": {"path": "texts.jsonl", "count": 20, "mean_bytes": 131},
        "limits": {"max_error_share": 0.01, "target_p99_ms": None, "fail_if": []},
        "sweep": [step(51.5, clients=1), step(260.0, clients=8), step(271.75, clients=64)],
        "open_loop": [step(100.0, rate=100.0), step(200.0, rate=200.0)],
        "max_requests_per_s": 271.75,
        "generator": {"processes": 1, "ceiling_requests_per_s": 8_000.0},
        "saturation": "The CPUs came first.",
        "failed_conditions": [],
    }
    return known | values


def tuned() -> str:
    server = SimulatedServer()
    usual, choice = default(4), Candidate(128, 1, 4096, 1, 4)
    trials = [server.measure(one) for one in (usual, choice, Candidate(4, 50, 256, 4, 1)) for _ in range(3)]
    found = Found(choice, usual, {choice: 900.0, usual: 700.0}, trials)
    held_out = HeldOut({choice: [880.0, 890.0, 870.0], usual: [690.0, 695.0, 680.0]})
    asked = {"model": "./my-model", "target": "p99 of 300 ms", "target_ms": 300.0, "payloads": 10, "seconds": 900}
    asked["machine"] = {"cpus": 4, "system": "Linux x86_64"}
    return outcome.render(found, held_out, choice, asked, outcome.sentence(found, held_out, choice, "p99 of 300 ms"))


PAGES = {"load test": lambda: report.render(result()), "tuning": tuned}


class Page(HTMLParser):
    """Collects what a page refers to, and whether its elements are closed."""

    VOID = frozenset({"meta"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.open: list[str] = []
        self.titles: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "data", "srcset", "xlink:href")]
        if tag in ("script", "link", "img", "iframe"):
            self.references.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "title":
            self.titles.append(data)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_needs_nothing_but_itself(name: str) -> None:
    text = PAGES[name]()
    page = Page(text)
    assert page.references == []
    assert not re.search(r"url\(|@import", text)
    assert page.open == []


def test_the_page_says_what_was_measured() -> None:
    text = report.render(result())
    titles = Page(text).titles
    assert "The CPUs came first." in text
    assert "271.8" in text
    assert {"calls/s: 51.5 calls/s at 1 clients", "p99: 99.75 ms at 8 clients", "in the queue: 12.5 ms at 64 clients"} <= set(
        titles
    )
    assert "90 batches of 5–8 requests" in titles
    assert "3 batches of 1 requests" in titles
    assert "70 between 12.1 and 14.7 ms" in titles
    assert text.count("<figure>") == 7


def test_what_callers_and_servers_said_is_escaped() -> None:
    failing = step(
        10.0, clients=2, errors=4, errors_by_kind={"status 500": 4}, error_samples={"status 500": "<script>alert(1)</script>"}
    )
    text = report.render(result(sweep=[failing], target="http://<b>", failed_conditions=["p99>1ms: <i>"]))
    assert "<script>" not in text
    assert "<b>" not in text.replace('<div class="tile"><b>', "")
    assert "<i>" not in text
    assert "alert(1)" in text


def test_a_server_without_metrics_and_a_single_step_still_make_a_page() -> None:
    text = report.render(result(sweep=[step(10.0, clients=1, server=None)], open_loop=[]))
    assert "told no metrics of its own" in text
    assert text.count("<figure>") == 1


def test_the_ceiling_is_drawn_when_the_generator_came_near_it() -> None:
    near = result(generator={"processes": 1, "ceiling_requests_per_s": 300.0})
    assert "the generator's ceiling".replace("'", "&#x27;") in report.render(near)
    assert "the generator's ceiling".replace("'", "&#x27;") not in report.render(result())


@pytest.mark.parametrize(("high", "ticks"), [(0.0, [0, 1]), (7.0, [0, 2, 4, 6, 8]), (1000.0, [0, 200, 400, 600, 800, 1000])])
def test_linear_ticks_are_round_and_reach_over_the_highest(high: float, ticks: list[float]) -> None:
    assert charts.linear_ticks(high) == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (3.0, 40.0, [2, 5, 10, 20, 50]),
        (0.5, 5_000.0, [0.1, 1, 10, 100, 1_000, 10_000]),
        (10.0, 10.0, [10, 20]),
        (0.02, 0.05, [0.02, 0.05]),
    ],
)
def test_logarithmic_ticks_hold_both_ends(low: float, high: float, ticks: list[float]) -> None:
    assert charts.log_ticks(low, high) == pytest.approx(ticks)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH to lay the pages out")
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_never_wider_than_the_screen(tmp_path: Path, name: str, width: int) -> None:
    """In a frame, since a headless window cannot be as narrow as a phone."""
    (tmp_path / "page.html").write_text(PAGES[name](), "utf-8")
    frame = f'<iframe id="f" src="page.html" style="border:0;width:{width}px;height:3000px"></iframe>'
    script = "onload = () => document.title = document.getElementById('f').contentDocument.documentElement.scrollWidth"
    (tmp_path / "frame.html").write_text(f"<!doctype html><title></title><body>{frame}<script>{script}</script>", "utf-8")
    options = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--allow-file-access-from-files",
        "--dump-dom",
    ]
    command = [str(CHROMIUM), *options, f"--user-data-dir={tmp_path / 'profile'}", f"file://{tmp_path / 'frame.html'}"]
    drawn = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    found = re.search(r"<title>(\d+)</title>", drawn)
    assert found, drawn[:500]
    assert int(found[1]) == width
