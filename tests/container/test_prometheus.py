"""A real Prometheus scrapes the real image under load, and every panel of the dashboard has something right to show."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import pytest
import yaml

from containers import Container
from running import ROOT, free_port

COMPOSE = ROOT / "docker" / "compose"
DASHBOARD = json.loads((COMPOSE / "grafana" / "dashboards" / "batching.json").read_text("utf-8"))
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"] if panel["type"] != "row"}
# What Grafana puts in for the chosen models and for an interval of four scrapes.
CHOSEN = {"$model": ".*", "$__rate_interval": "8s"}
CLIENTS = 8
LOAD_S = 14.0
BODY = {"inputs": ["rain on a tin roof", "a kettle", "the quiet of the house before anybody is awake " * 4]}
# The least and the most that a panel may show under this load, on a machine however slow.
SANE = {
    "Calls": (0.05, 1e5),
    "Time of a call": (0.0001, 60.0),
    "In flight and queued": (0.0, CLIENTS),
    "Records": (0.0, 1e6),
    "Calls by model": (0.05, 1e5),
    "Models and workers": (0.0, 1.0),
    "Requests per batch": (1.0, CLIENTS),
    "Records per forward pass": (1.0, 4.0 * CLIENTS),
    "Padding": (0.0, 0.5),
    "Batch sizes": (0.0, 1e6),
    "Tokens": (0.0, 1e7),
    "Forward passes": (0.05, 1e5),
    "Time in the queue": (0.0, 60.0),
    "Time in the handler": (0.0001, 60.0),
    "Time in forward passes": (0.0001, 60.0),
}


def program(name: str) -> str:
    """Where a program of Debian's package lies; its absence fails the tests instead of skipping them."""
    found = shutil.which(name, path=f"{ROOT / 'build' / 'prometheus' / 'usr' / 'bin'}:{os.environ['PATH']}")
    assert found, f"{name} is not here: run `make test`, or on Debian `apt-get install prometheus`"
    return found


class Prometheus:
    """Prometheus with compose's own configuration, scraping the address given. Use it as a context manager."""

    def __init__(self, folder: Path, address: str) -> None:
        configuration = yaml.safe_load((COMPOSE / "prometheus.yml").read_text("utf-8"))
        configuration["scrape_configs"][0]["static_configs"][0]["targets"] = [address]
        self._file = folder / "prometheus.yml"
        self._file.write_text(yaml.safe_dump(configuration), "utf-8")
        self._folder = folder
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{free_port()}", timeout=30.0)

    def __enter__(self) -> Self:
        listen = f"{self.http.base_url.host}:{self.http.base_url.port}"
        command = [program("prometheus"), f"--config.file={self._file}", f"--storage.tsdb.path={self._folder / 'data'}"]
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen([*command, f"--web.listen-address={listen}"], stdout=log, stderr=log)
        self._until(lambda: self.http.get("/-/ready").status_code == 200, "Prometheus does not become ready")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.terminate()
        self._process.wait(20)
        if kind is not None:
            print((self._folder / "prometheus.log").read_text("utf-8"))

    def wait_for_target(self) -> None:
        """Until the first scrape has succeeded."""
        self._until(lambda: self.ask("up") == [1.0], "Prometheus does not reach the container")

    def ask(self, query: str) -> list[float]:
        """An instant query: the value of each series."""
        answer = self.http.get("/api/v1/query", params={"query": query})
        assert answer.status_code == 200, f"{query}: {answer.text}"
        return [float(series["value"][1]) for series in answer.json()["data"]["result"]]

    def targets(self) -> list[dict[str, Any]]:
        """What it scrapes, and how that goes."""
        found: list[dict[str, Any]] = self.http.get("/api/v1/targets").json()["data"]["activeTargets"]
        return found

    def _until(self, holds: Any, complaint: str) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert self._process.poll() is None, (self._folder / "prometheus.log").read_text("utf-8")
            try:
                if holds():
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.2)
        raise AssertionError(complaint)


@pytest.fixture(scope="module")
def container(encoder: Path) -> Iterator[Container]:
    with Container(encoder) as running:
        yield running


@pytest.fixture(scope="module")
def shown(container: Container, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[list[float]]]]:
    """What each target of each panel shows while callers are at it."""
    with Prometheus(tmp_path_factory.mktemp("prometheus"), container.base_url.removeprefix("http://")) as prometheus:
        prometheus.wait_for_target()
        with ThreadPoolExecutor(CLIENTS) as callers:
            until = time.monotonic() + LOAD_S
            calling = [callers.submit(call, container, until) for _ in range(CLIENTS)]
            time.sleep(LOAD_S - 2)
            found = {
                title: [prometheus.ask(filled(target["expr"])) for target in panel["targets"]] for title, panel in PANELS.items()
            }
            assert sum(each.result() for each in calling) > CLIENTS
        (target,) = prometheus.targets()
        assert (target["health"], target["lastError"]) == ("up", "")
        yield found


def call(container: Container, until: float) -> int:
    """Call without a break until then; how often."""
    count = 0
    while time.monotonic() < until:
        assert container.invoke(BODY).status_code == 200
        count += 1
    return count


def filled(query: str) -> str:
    for name, value in CHOSEN.items():
        query = query.replace(name, value)
    return query


@pytest.mark.parametrize("title", sorted(set(PANELS) - {"GPU utilisation", "GPU memory", "GPU temperature"}))
def test_a_panel_shows_something_sane_under_load(shown: dict[str, list[list[float]]], title: str) -> None:
    least, most = SANE[title]
    for target, values in zip(PANELS[title]["targets"], shown[title], strict=True):
        assert values, f"{target['expr']} shows nothing"
        assert all(least <= value <= most for value in values), (target["expr"], values)


def test_what_happens_shows_and_what_does_not_is_zero(shown: dict[str, list[list[float]]]) -> None:
    ((calls,),) = shown["Calls"]
    outcomes, cut = shown["Records"]
    assert sum(outcomes) == pytest.approx(3 * calls, rel=0.3)
    assert min(outcomes) == cut[0] == 0
    assert shown["Models and workers"] == [[1.0], [0.0]]
    assert shown["In flight and queued"][0][0] > 0
    (text,), (padding,) = shown["Tokens"]
    assert text > padding
    p50, p95, p99 = (values[0] for values in shown["Time of a call"])
    assert p50 <= p95 <= p99


def test_without_a_gpu_the_panels_of_the_gpus_are_empty(shown: dict[str, list[list[float]]]) -> None:
    titles = [title for title in shown if title.startswith("GPU")]
    assert len(titles) == 3
    assert [values for title in titles for values in shown[title]] == [[]] * 4


def test_promtool_has_nothing_to_say_against_the_metrics_and_the_configuration(container: Container) -> None:
    text = container.http.get("/metrics").text
    checked = subprocess.run([program("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    command = [program("promtool"), "check", "config", str(COMPOSE / "prometheus.yml")]
    config = subprocess.run(command, capture_output=True, text=True, check=False)
    assert config.returncode == 0, config.stdout + config.stderr
