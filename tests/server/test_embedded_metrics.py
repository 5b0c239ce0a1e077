"""The metrics as CloudWatch Logs takes them from stdout: valid lines, nothing twice, nothing lost, and silence unasked."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import embedded
from batch_handler.cloudwatch import METRICS
from running import RunningServer, at_once

ASKED = {"BYOC_EMF_NAMESPACE": "team/models", "BYOC_EMF_SECONDS": "1", "BYOC_EMF_DIMENSIONS": '{"EndpointName": "sentences"}'}
CALLS = 24


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_lines_add_up_to_what_prometheus_was_told(encoder: Path, form: str) -> None:
    with RunningServer(encoder, {**ASKED, "BYOC_LOG_FORMAT": form}) as server:
        for _ in range(2):
            at_once([lambda: server.invoke({"inputs": ["a quiet kettle", "rain"]})] * (CALLS // 2))
            time.sleep(1.5)
        assert server.invoke(b"{").status_code == 400
        told = server.metrics()
        assert server.stop() == 0
    found = embedded.lines(server.lines)
    assert len(found) >= 3
    assert {line["Model"] for line in found} == {"model"}
    assert {line["EndpointName"] for line in found} == {"sentences"}
    assert {name for line in found for name in line} == METRICS | {"_aws", "Model", "EndpointName"}
    assert sum(line["Requests"] for line in found) == CALLS + 1
    assert found[-1]["ClientErrors"] == 1, "the last line, at the stop, holds what happened since the one before"
    assert sum(line["Records"] for line in found) == told['byoc_records_total{outcome="ok"}'] + 1
    assert sum(line["Tokens"] for line in found) == told["byoc_tokens_total"]
    assert sum(line["WorkerStarts"] for line in found) == 1
    for metric, name in (
        ("RequestTime", "request_seconds"),
        ("HandlerTime", "handler_seconds"),
        ("BatchRequests", "batch_requests"),
    ):
        taken = embedded.statistics(found, metric)
        assert taken["SampleCount"] == told[f"byoc_{name}_count"]
        assert taken["Sum"] == pytest.approx(told[f"byoc_{name}_sum"], rel=1e-6)
    if form == "json":
        assert all(isinstance(json.loads(line), dict) for line in server.lines if "CloudWatchMetrics" in line)


def test_the_level_of_the_log_does_not_silence_them_and_an_idle_model_has_none(encoder: Path) -> None:
    with RunningServer(encoder, {**ASKED, "SAGEMAKER_CONTAINER_LOG_LEVEL": "40"}, wait=False) as server:
        server.wait_for_ping(200)
        time.sleep(2.5)
        before = len(embedded.lines(server.lines))
        time.sleep(2.5)
        assert len(embedded.lines(server.lines)) == before == 1, "one for the worker's start, then nothing happened"
        assert server.invoke({"inputs": "rain"}).status_code == 200
        server.stop()
    assert embedded.lines(server.lines)[-1]["Requests"] == 1


def test_nothing_is_printed_unasked(server: RunningServer) -> None:
    assert server.invoke({"inputs": "rain"}).status_code == 200
    assert "CloudWatchMetrics" not in server.output
