"""Whether traces are exported, and what a finished call becomes: sent to a collector over HTTP, and read there."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from entrypoint import trace_exporter, traces
from entrypoint.failure import StartError
from entrypoint.home import Home
from otlp import Collector, attributes, children, roots

BEGAN = 1_800_000_000_000_000_000
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CALL: dict[str, Any] = {
    "method": "POST", "path": "/invocations", "status": 200, "began": BEGAN, "ended": BEGAN + 9_000_000, "id": "r-1",
    "inference_id": None, "traceparent": None, "tracestate": None, "amzn_trace_id": None, "records": 2, "bad_records": 0,
    "bytes_in": 10, "bytes_out": 20, "error": None,
    "stages": {
        "queue": f"{BEGAN + 1_000_000}-{BEGAN + 2_000_000}",
        "forward": f"{BEGAN + 3_000_000}-{BEGAN + 8_000_000}",
    },
    "facts": {"wait": "1500", "run": "3000", "tokens": "7", "passes": "2", "pass_requests": "4", "pass_ids": "9.1,9.2"},
}  # fmt: skip


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"):
        monkeypatch.delenv(name, raising=False)
    with Collector() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.url)
        yield running


def export(*calls: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> None:
    lines = b"".join(json.dumps({**CALL, **call}).encode() + b"\n" for call in calls)
    trace_exporter.main(io.BytesIO(lines), environment or {})


def test_without_an_endpoint_there_is_nothing_to_run() -> None:
    home = Home(Path("/opt/byoc"))
    url = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
    assert traces.exporter({}, home) == []
    assert traces.exporter({**url, "OTEL_SDK_DISABLED": "true"}, home) == []
    assert traces.exporter({**url, "OTEL_TRACES_EXPORTER": "none"}, home) == []
    assert traces.exporter(url, home)[-1] == "entrypoint.trace_exporter"
    assert traces.exporter({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c/v1/traces"}, home) != []


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}, ("OTEL_EXPORTER_OTLP_ENDPOINT='collector:4318'", "http://")),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            ("OTEL_EXPORTER_OTLP_PROTOCOL='grpc'", "http/protobuf"),
        ),
    ],
)
def test_what_cannot_be_exported_stops_the_start(variables: dict[str, str], words: tuple[str, ...]) -> None:
    with pytest.raises(StartError) as stop:
        traces.exporter(variables, Home(Path("/opt/byoc")))
    assert all(word in str(stop.value) for word in words)


def test_an_image_without_the_library_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "LIBRARY", "opentelemetry.exporter.otlp.proto.carrier_pigeon")
    with pytest.raises(StartError, match=r"OTEL_EXPORTER_OTLP_ENDPOINT is set, .* TRACING=otlp"):
        traces.exporter({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, Home(Path("/opt/byoc")))


def test_a_call_is_a_span_with_its_stages_below(collector: Collector) -> None:
    export({"traceparent": f"00-{TRACE}-{PARENT}-01", "inference_id": "batch 7"})
    (root,) = roots(collector.spans)
    assert (root.name, root.trace_id.hex(), root.parent_span_id.hex()) == ("POST /invocations", TRACE, PARENT)
    assert (root.start_time_unix_nano, root.end_time_unix_nano) == (BEGAN, BEGAN + 9_000_000)
    assert root.status.code == Status.STATUS_CODE_UNSET
    known = attributes(root)
    assert (known["http.response.status_code"], known["byoc.request_id"], known["byoc.records"]) == (200, "r-1", 2)
    assert known["aws.sagemaker.inference_id"] == "batch 7"
    below = children(collector.spans, root)
    assert set(below) == {"queue", "forward"}
    assert below["forward"].end_time_unix_nano - below["forward"].start_time_unix_nano == 5_000_000
    assert below["forward"].kind == Span.SPAN_KIND_INTERNAL
    assert attributes(below["forward"]) == {
        "byoc.forward.wait_ms": 1.5, "byoc.forward.run_ms": 3.0, "byoc.forward.tokens": 7, "byoc.forward.passes": 2,
        "byoc.forward.pass_requests": 4, "byoc.forward.pass_ids": ["9.1", "9.2"],
    }  # fmt: skip
    assert collector.resources[0]["service.name"] == "torchserve-byoc"


def test_awss_header_names_the_trace_where_w3cs_does_not(collector: Collector) -> None:
    root = f"Root=1-{TRACE[:8]}-{TRACE[8:]}"
    export(
        {"amzn_trace_id": f"{root};Parent={PARENT};Sampled=1"},
        {"amzn_trace_id": root},
        {"amzn_trace_id": f"{root};Parent={PARENT};Sampled=0"},
        {"amzn_trace_id": "Root=nonsense;Parent", "traceparent": "00-0-0-0"},
        {"amzn_trace_id": root, "traceparent": f"00-{'1' * 32}-{'2' * 16}-01"},
    )
    found = [(span.trace_id.hex(), span.parent_span_id.hex()) for span in roots(collector.spans)]
    assert found[0] == (TRACE, PARENT)
    assert found[1] == (TRACE, "")
    assert found[2][0] not in (TRACE, "1" * 32)
    assert found[2][1] == ""
    assert found[3:] == [("1" * 32, "2" * 16)]


def test_a_failed_call_is_an_error_of_its_type(collector: Collector) -> None:
    export({"status": 400, "error": "InvalidRecord"}, {"status": 503, "error": "Overloaded"}, {"status": 404, "path": "/x"})
    failed = roots(collector.spans)
    assert [(span.status.code, span.status.message, attributes(span)["error.type"]) for span in failed] == [
        (Status.STATUS_CODE_ERROR, "InvalidRecord", "InvalidRecord"),
        (Status.STATUS_CODE_ERROR, "Overloaded", "Overloaded"),
        (Status.STATUS_CODE_ERROR, "404", "404"),
    ]
    assert failed[2].name == "POST"


def test_the_name_and_the_sampler_are_opentelemetrys_own(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "sentences")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.25")
    export(*[{}] * 200, environment={"OTEL_SERVICE_NAME": "sentences"})
    assert 20 <= len(roots(collector.spans)) <= 85
    assert len(collector.spans) == 3 * len(roots(collector.spans))
    assert collector.resources[0]["service.name"] == "sentences"


def test_what_cannot_be_sent_is_counted_and_told(collector: Collector, capsys: pytest.CaptureFixture[str]) -> None:
    collector.status = 400
    export({}, {"dropped": 5}, {})
    first, last = capsys.readouterr().out.splitlines()
    assert first.endswith("WARN traces: 0 spans could not be sent and 5 calls have none")
    assert "WARN traces: 9 spans could not be sent and 0 calls have none: " in last
    assert "400" in last


def test_a_queue_that_is_full_drops_whole_calls(
    collector: Collector, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"QUEUE_SIZE": "12", "EXPORT_BATCH_SIZE": "12"}.items():
        monkeypatch.setenv(f"OTEL_BSP_MAX_{name}", value)
    export(*[{}] * 10, environment={"OTEL_BSP_MAX_QUEUE_SIZE": "12"})
    told = len(roots(collector.spans))
    assert 2 <= told < 10
    assert len(collector.spans) == 3 * told
    assert "calls have none" in capsys.readouterr().out
