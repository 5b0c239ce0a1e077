"""Spans of real calls, sent to a real collector over HTTP: their tree, their ids, their times, and that nobody waits for them."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from otlp import Collector, attributes, children, roots
from running import RunningServer, at_once, descendants

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
STAGES = ["queue", "decode", "tokenise", "forward", "encode", "write"]
FAST = {"OTEL_BSP_SCHEDULE_DELAY": "200", "OTEL_SERVICE_NAME": "sentences"}


def test_a_call_is_a_tree_of_its_stages_under_the_callers_span(encoder: Path) -> None:
    with Collector() as collector, RunningServer(encoder, {**FAST, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}) as server:
        server.invoke({"inputs": "secret words"}, traceparent=f"00-{TRACE}-{PARENT}-01", X_Request_Id="r-1")
        server.invoke({"inputs": 7}, X_Request_Id="r-2")
        server.http.get("/ping")
        collector.wait_for(lambda spans: len(roots(spans)) == 2)
        bodies = [json.dumps({"inputs": f"text {n}"}) for n in range(8)]
        at_once([lambda body=body: server.invoke(body) for body in bodies])
        spans = collector.wait_for(lambda spans: len(roots(spans)) == 10)
        server.stop()
        assert "traces:" not in server.output
    calls = {attributes(span)["byoc.request_id"]: span for span in roots(spans)}
    good, bad = calls["r-1"], calls["r-2"]
    assert (good.trace_id.hex(), good.parent_span_id.hex()) == (TRACE, PARENT)
    assert attributes(good)["http.response.status_code"] == 200
    below = sorted(children(spans, good).values(), key=lambda span: span.start_time_unix_nano)
    assert [span.name for span in below] == STAGES
    assert below[0].start_time_unix_nano >= good.start_time_unix_nano
    assert all(one.end_time_unix_nano <= next_.start_time_unix_nano + 2_000 for one, next_ in pairwise(below))
    assert below[-1].end_time_unix_nano == good.end_time_unix_nano
    lasted = sum(span.end_time_unix_nano - span.start_time_unix_nano for span in below)
    assert lasted <= good.end_time_unix_nano - good.start_time_unix_nano
    assert (bad.status.code, attributes(bad)["error.type"]) == (Status.STATUS_CODE_ERROR, "InvalidRecord")
    assert "forward" not in children(spans, bad)
    together = [attributes(children(spans, call)["forward"]) for name, call in calls.items() if not name.startswith("r-")]
    shared = [told for told in together if told["byoc.forward.pass_requests"] > 1]
    assert shared, together
    for told in shared:
        others = [one for one in together if set(one["byoc.forward.pass_ids"]) & set(told["byoc.forward.pass_ids"])]
        assert len(others) >= told["byoc.forward.pass_requests"]
    assert not any(b"secret words" in body for body in collector.raw)
    assert collector.resources[0]["service.name"] == "sentences"


def test_a_collector_that_is_gone_costs_no_call_anything_but_a_line(encoder: Path) -> None:
    settings = {**FAST, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    with RunningServer(encoder, settings) as server:
        answers = at_once([lambda: server.invoke({"inputs": "x"})] * 16)
        assert [answer.status_code for answer in answers] == [200] * 16
        assert server.stop() == 0
    assert server.output.count("WARN traces: ") >= 1
    assert "Traceback" not in server.output


@pytest.mark.parametrize("endpoint", ["", "http://127.0.0.1:9"])
def test_only_where_a_collector_is_named_does_anything_of_it_run(encoder: Path, endpoint: str) -> None:
    with RunningServer(encoder, {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint} if endpoint else {}) as server:
        assert server.invoke({"inputs": "x"}).status_code == 200
        processes = descendants(server.pid)
        threads = [one.read_text().strip() for pid, _ in processes for one in Path(f"/proc/{pid}/task").glob("*/comm")]
        exporters = [command for _, command in processes if command.strip().endswith("-m entrypoint.trace_exporter")]
        feeds = [name for name in threads if name == "byoc-traces"]
    assert (len(exporters), len(feeds)) == ((1, 1) if endpoint else (0, 0))


@pytest.mark.parametrize("variables", [{"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}])
def test_an_endpoint_that_is_none_stops_the_start(encoder: Path, variables: dict[str, str]) -> None:
    server = RunningServer(encoder, variables, wait=False)
    assert server.wait(30) != 0
    assert "OTEL_EXPORTER_OTLP_ENDPOINT='collector:4318' is not accepted" in server.lines[-1]
