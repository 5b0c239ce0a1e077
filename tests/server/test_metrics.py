"""What /metrics tells: by model, whole from the first scrape on, and right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from running import RunningServer


@pytest.fixture(scope="module")
def fresh(encoder: Path) -> Iterator[RunningServer]:
    """A server that nobody has called yet."""
    with RunningServer(encoder) as running:
        yield running


def scraped(server: RunningServer) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(server.http.get("/metrics").text)
    return {(sample.name, frozenset(sample.labels.items())): sample.value for family in families for sample in family.samples}


def test_every_series_is_there_before_the_first_call_and_names_its_model(fresh: RunningServer) -> None:
    before = scraped(fresh)
    assert {name for name, labels in before if "model" not in dict(labels)} == {"byoc_models_loaded"}
    assert {dict(labels).get("model", "model") for _, labels in before} == {"model"}
    assert fresh.invoke({"inputs": ["one", "two"]}).status_code == 200
    assert fresh.invoke({"inputs": 1}).status_code == 400
    assert set(scraped(fresh)) == set(before)


def test_calls_are_counted_by_status_and_records_by_outcome(fresh: RunningServer) -> None:
    before = fresh.metrics()
    for body in (["one", "two"], "three"):
        assert fresh.invoke({"inputs": body}).status_code == 200
    assert fresh.invoke(b"{").status_code == 400
    after = fresh.metrics()
    grown = {name: after[name] - before[name] for name in after}
    assert grown['byoc_requests_total{status="200"}'] == 2
    assert grown['byoc_requests_total{status="400"}'] == 1
    assert grown['byoc_records_total{outcome="ok"}'] == 3
    assert grown["byoc_batch_requests_sum"] == 3
    assert after["byoc_inflight_requests"] == 0
