"""compose.yaml and what it mounts: valid, closed to other machines, and asking for metrics that the server has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from entrypoint.gpu_metrics import GAUGES

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
MOUNTED = ROOT / "docker" / "compose"
DASHBOARD = json.loads((MOUNTED / "grafana" / "dashboards" / "batching.json").read_text("utf-8"))
METRICS_JAVA = ROOT / "docker" / "endpoints" / "src" / "main" / "java" / "byoc" / "endpoints" / "Metrics.java"
PARTS = re.compile(r"_(bucket|sum|count)$")


def panels() -> list[dict[str, Any]]:
    """Those that show something; a row only groups those below it."""
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> list[str]:
    """What all panels ask, those of a machine without a GPU first."""
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    return sorted(asked, key=lambda query: "byoc_gpu" in query)


def test_compose_itself_accepts_the_file() -> None:
    compose = shutil.which("docker-compose")
    if compose is None:
        pytest.skip("no docker-compose on the PATH")
    checked = subprocess.run(
        [compose, "--profile", "load", "config", "--quiet"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_every_published_port_is_on_loopback() -> None:
    ports = [str(port) for service in COMPOSE["services"].values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_what_is_mounted_and_built_exists() -> None:
    sources = [
        volume.rsplit(":", 2 if volume.endswith(":ro") else 1)[0]
        for service in COMPOSE["services"].values()
        for volume in service["volumes"]
    ]
    named = [source for source in sources if source.startswith("./docker/")]
    assert len(named) == 3
    assert all((ROOT / source).exists() for source in named)
    build = COMPOSE["services"]["load"]["build"]
    recipe = ROOT / build["context"] / build["dockerfile"]
    copied = re.findall(r"^COPY (.+) \S+$", recipe.read_text("utf-8"), re.MULTILINE)
    assert copied
    assert all((ROOT / build["context"] / name).exists() for line in copied for name in line.split())


def test_prometheus_scrapes_the_service_by_its_name_and_the_dashboard_asks_that_prometheus() -> None:
    (job,) = yaml.safe_load((MOUNTED / "prometheus.yml").read_text("utf-8"))["scrape_configs"]
    (address,) = job["static_configs"][0]["targets"]
    name, port = address.split(":")
    assert name in COMPOSE["services"]
    assert COMPOSE["services"][name]["ports"][0].endswith(f":{port}")
    assert job.get("metrics_path", "/metrics") == "/metrics"
    (source,) = yaml.safe_load((MOUNTED / "grafana" / "provisioning" / "datasources" / "prometheus.yaml").read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    assert {panel["datasource"]["uid"] for panel in panels()} == {source["uid"]}


def test_the_panels_lie_side_by_side() -> None:
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]}
    assert len(places) == len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(taken) == len(set(taken)), "two panels overlap"
    assert max(x for x, _ in taken) == 23


def test_grafanas_own_schema_reads_the_dashboard_and_loses_nothing_of_it() -> None:
    register_default_plugins()
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(DASHBOARD)))
    assert missing(DASHBOARD, read) == []
    assert [type(panel).__name__ for panel in Dashboard.from_json(DASHBOARD).panels or []].count("Panel") == len(panels())


def missing(written: Any, read: Any, place: str = "dashboard") -> list[str]:
    """The places of what was written and is not there any more."""
    if isinstance(written, dict):
        return [
            fault
            for key, value in written.items()
            for fault in (missing(value, read[key], f"{place}.{key}") if key in read else [f"{place}.{key}"])
        ]
    if isinstance(written, list):
        pairs = zip(written, read, strict=True)
        return [fault for number, (one, two) in enumerate(pairs) for fault in missing(one, two, f"{place}[{number}]")]
    return [] if written == read else [place]


def test_every_panel_shows_the_chosen_models_but_those_of_the_machine() -> None:
    (variable,) = DASHBOARD["templating"]["list"]
    assert (variable["name"], variable["query"]["query"]) == ("model", "label_values(byoc_requests_total, model)")
    for query in queries():
        for name, selector in re.findall(r"(byoc_[a-z_]+)(\{[^}]*\})?", query):
            assert selector == ("" if name.startswith(("byoc_gpu", "byoc_models")) else '{model=~"$model"}'), query


def test_a_histogram_is_asked_for_its_parts_and_a_counter_for_its_rate() -> None:
    declared: dict[str, Any] = dict.fromkeys(re.findall(r'"(byoc_[a-z_]+)"', METRICS_JAVA.read_text("utf-8")))
    declared |= GAUGES
    asked = {name for query in queries() for name in re.findall(r"byoc_[a-z_]+", query)}
    assert {PARTS.sub("", name) for name in asked} <= set(declared)
    for query in queries():
        for name in re.findall(r"byoc_[a-z_]+", query):
            if name.endswith(("_total", "_bucket", "_sum", "_count")):
                assert re.search(rf"(rate|increase)\({name}\{{[^}}]*\}}\[(\$__rate_interval|5m)\]\)", query), query
        assert query.count("(") == query.count(")")
