"""A collector for tests: OTLP over HTTP, decoded with OpenTelemetry's own messages, which it keeps."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """Listens on loopback; ``status`` is what it answers. Use it as a context manager."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.spans: list[Span] = []
        self.resources: list[dict[str, Any]] = []
        self.raw: list[bytes] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
                if collector.status == 200 and self.path == "/v1/traces":
                    collector.take(body)
                self.send_response(collector.status if self.path == "/v1/traces" else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Tests read other lines."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, body: bytes) -> None:
        """Keep what an export holds."""
        self.raw.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append({one.key: value(one.value) for one in resource.resource.attributes})
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]

    def wait_for(self, there: Callable[[list[Span]], bool], limit_s: float = 20.0) -> list[Span]:
        """Poll until the spans are as wanted; what came is in the failure."""
        deadline = time.monotonic() + limit_s
        while not there(self.spans):
            assert time.monotonic() < deadline, self.spans
            time.sleep(0.05)
        return self.spans


def value(any_value: Any) -> Any:
    """A value as Python's."""
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return [value(one) for one in any_value.array_value.values]
    return getattr(any_value, kind) if kind else None


def attributes(span: Span) -> dict[str, Any]:
    """A span's attributes by name."""
    return {one.key: value(one.value) for one in span.attributes}


def roots(spans: list[Span]) -> list[Span]:
    """The spans of calls."""
    return [span for span in spans if span.kind == Span.SPAN_KIND_SERVER]


def children(spans: list[Span], parent: Span) -> dict[str, Span]:
    """The spans below one, by name."""
    return {span.name: span for span in spans if span.parent_span_id == parent.span_id and span.trace_id == parent.trace_id}
