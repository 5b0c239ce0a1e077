"""The program that the frontend hands finished calls to, one JSON object a line on its standard input, to export as spans.

It keeps out of every call's way: it is a process of low priority, and what it cannot send in time it drops and counts.
What the spans of a call are belongs to `spans`; everything about sending follows OpenTelemetry's own variables.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import BinaryIO

import orjson
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from entrypoint.log import Log, provisional
from entrypoint.spans import MOST_SPANS, Ids, record

NICE = 10
TELL_EVERY_S = 60.0
SERVICE = "torchserve-byoc"
QUEUE, QUEUE_DEFAULT = "OTEL_BSP_MAX_QUEUE_SIZE", 2_048


class Losses(logging.Handler):
    """What could not be sent: counted, and told once a minute with the last reason that the library gave."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._reason = ""
        self._spans = 0
        self._calls = 0
        self._told = -TELL_EVERY_S
        self._counting = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        """The library says that something is wrong."""
        self._reason = record.getMessage()

    def add(self, spans: int = 0, calls: int = 0) -> None:
        """So much is lost."""
        with self._counting:
            self._spans += spans
            self._calls += calls
            if (self._spans or self._calls) and time.monotonic() - self._told >= TELL_EVERY_S:
                self._tell()

    def end(self) -> None:
        """The rest is told at once."""
        with self._counting:
            if self._spans or self._calls:
                self._tell()

    def _tell(self) -> None:
        reason = f": {self._reason}" if self._reason else ""
        self._log.warning(f"traces: {self._spans} spans could not be sent and {self._calls} calls have none{reason}")
        self._spans = self._calls = 0
        self._told = time.monotonic()


class Sender(SpanExporter):
    """Sends spans by OTLP and counts: ``done`` of them are sent or lost."""

    def __init__(self, losses: Losses) -> None:
        self._otlp = OTLPSpanExporter()
        self._losses = losses
        self.done = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send some; returns when they are sent or given up."""
        outcome = self._otlp.export(spans)
        self.done += len(spans)
        if outcome is not SpanExportResult.SUCCESS:
            self._losses.add(spans=len(spans))
        return outcome

    def shutdown(self) -> None:
        """Give up what is being tried again."""
        self._otlp.shutdown()  # type: ignore[no-untyped-call]  # the library leaves it so


def main(lines: BinaryIO, environment: Mapping[str, str]) -> None:
    """Export the calls that come on `lines`, until they end."""
    losses = Losses(provisional(environment))
    library = logging.getLogger("opentelemetry")
    library.handlers[:], library.propagate = [losses], False
    sender, ids = Sender(losses), Ids()
    provider = TracerProvider(id_generator=ids, resource=resource(environment), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(sender))
    tracer = provider.get_tracer(SERVICE)
    room = int(environment.get(QUEUE) or QUEUE_DEFAULT) - MOST_SPANS
    begun = 0
    for line in lines:
        call = orjson.loads(line)
        lost = call.get("dropped", 0)
        if begun - sender.done > room:  # a whole call is dropped, so that no trace lacks a part
            lost += 1
        else:
            begun += record(tracer, ids, call)
        losses.add(calls=lost)
    provider.shutdown()
    losses.end()


def resource(environment: Mapping[str, str]) -> Resource:
    """What all spans are of: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, with a name of ours where they have none."""
    named = environment.get("OTEL_SERVICE_NAME") or "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({} if named else {"service.name": SERVICE})


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):
        os.nice(NICE)
    main(sys.stdin.buffer, os.environ)
