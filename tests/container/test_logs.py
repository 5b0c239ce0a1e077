"""The log of the image: every line an object, and what an image without OpenTelemetry says to those who want traces."""

from __future__ import annotations

import json
from pathlib import Path

from containers import Container, docker


def test_json_holds_for_every_line_from_the_start_to_the_end(encoder: Path) -> None:
    with Container(encoder, {"BYOC_LOG_FORMAT": "json"}, ("--tty",)) as container:
        container.invoke({"inputs": "secret words"}, X_Request_Id="r-1")
        container.invoke({"inputs": 1}, X_Request_Id="r-2")
        docker("stop", container.name)
        entries = [json.loads(line) for line in container.logs().splitlines()]
        assert container.state()["ExitCode"] == 0
    assert all({"time", "level", "logger", "message"} <= entry.keys() for entry in entries)
    calls = {entry["id"]: entry for entry in entries if entry["logger"] == "byoc.access"}
    assert (calls["r-1"]["status"], calls["r-2"]["status"], calls["r-2"]["error"]) == (200, 400, "InvalidRecord")
    assert "exit 0" in entries[-1]["message"]
    assert not any("secret words" in json.dumps(entry) for entry in entries)


def test_an_endpoint_for_traces_without_the_library_is_one_sentence(encoder: Path) -> None:
    with Container(encoder, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, wait=False) as container:
        assert container.wait() != 0
        (line,) = container.logs().splitlines()
    assert line.endswith("build the image with --build-arg TRACING=otlp, or do without the variable")
