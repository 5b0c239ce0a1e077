"""One finished call, as the frontend tells it, as OpenTelemetry spans: one for the call and one for each of its stages.

Owns names, attributes and parents. Times are nanoseconds since the epoch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

MOST_SPANS = 7
"""Of one call: itself, queue, decode, tokenise, forward, encode and write."""
CLIENT_ERROR, NOT_FOUND = 400, 404
X_RAY_ROOT = re.compile(r"1-([0-9a-f]{8})-([0-9a-f]{24})")
X_RAY_PARENT = re.compile(r"[0-9a-f]{16}")
HEADER_LIMIT = 256
MICROSECONDS = ("wait", "run")
_w3c = TraceContextTextMapPropagator()


class Ids(RandomIdGenerator):
    """Random ids; a trace that AWS has named without a span above ours gets that name. For one thread."""

    def __init__(self) -> None:
        self.next_trace: int | None = None

    def generate_trace_id(self) -> int:
        """The one that was set, once, or a random one."""
        given, self.next_trace = self.next_trace, None
        return given or super().generate_trace_id()


def record(tracer: trace.Tracer, ids: Ids, call: Mapping[str, Any]) -> int:
    """Start and end the spans of a call, if it is sampled; how many were recorded."""
    parent = parent_of(call, ids)
    name = f"{call['method']} {call['path']}" if call["status"] != NOT_FOUND else call["method"]
    span = tracer.start_span(name[:HEADER_LIMIT], parent, SpanKind.SERVER, attributes(call), start_time=call["began"])
    ids.next_trace = None
    if not span.is_recording():
        return 0
    if call["status"] >= CLIENT_ERROR:
        # The conventions leave 4xx unset where nothing is known of the request; here it is known to have failed.
        span.set_status(Status(StatusCode.ERROR, call.get("error") or str(call["status"])))
    within = trace.set_span_in_context(span)
    for stage, times in call["stages"].items():
        began, ended = (int(part) for part in times.split("-"))
        child = tracer.start_span(
            stage, within, attributes=of_passes(call["facts"]) if stage == "forward" else {}, start_time=began
        )
        child.end(ended)
    span.end(call["ended"])
    return 1 + len(call["stages"])


def parent_of(call: Mapping[str, Any], ids: Ids) -> Context:
    """The caller's span: W3C's traceparent, else that of X-Amzn-Trace-Id; none where neither makes sense."""
    sent = {name: call[name] for name in ("traceparent", "tracestate") if call.get(name)}
    context = _w3c.extract(sent, Context())
    if trace.get_current_span(context).get_span_context().is_valid:
        return context
    parts = dict(part.strip().split("=", 1) for part in (call.get("amzn_trace_id") or "").split(";") if "=" in part)
    root, parent = X_RAY_ROOT.fullmatch(parts.get("Root", "")), X_RAY_PARENT.fullmatch(parts.get("Parent", ""))
    if root is None:
        return Context()
    trace_id = int(root[1] + root[2], 16)
    if parent is None:
        ids.next_trace = trace_id
        return Context()
    flags = TraceFlags(TraceFlags.DEFAULT if parts.get("Sampled") == "0" else TraceFlags.SAMPLED)
    above = SpanContext(trace_id, int(parent[0], 16), is_remote=True, trace_flags=flags)
    return trace.set_span_in_context(NonRecordingSpan(above), Context())


def attributes(call: Mapping[str, Any]) -> dict[str, Any]:
    """By OpenTelemetry's conventions for HTTP where they have a name, else under ``byoc.``. Nothing of any body."""
    known = {
        "http.request.method": call["method"],
        "url.path": call["path"][:HEADER_LIMIT],
        "http.response.status_code": call["status"],
        "http.request.body.size": call["bytes_in"],
        "http.response.body.size": call["bytes_out"],
        "error.type": call.get("error") or (str(call["status"]) if call["status"] >= CLIENT_ERROR else None),
        "byoc.request_id": call["id"],
        "byoc.records": call["records"],
        "byoc.bad_records": call["bad_records"],
        "aws.sagemaker.inference_id": (call.get("inference_id") or "")[:HEADER_LIMIT] or None,
    }
    return {name: value for name, value in known.items() if value is not None}


def of_passes(facts: Mapping[str, str]) -> dict[str, Any]:
    """What is known of a call's forward passes. Calls that shared one have an entry of ``byoc.forward.pass_ids`` in common."""
    told: dict[str, Any] = {}
    for name, value in facts.items():
        if name == "pass_ids":
            told[f"byoc.forward.{name}"] = value.split(",")
        elif name in MICROSECONDS:
            told[f"byoc.forward.{name}_ms"] = int(value) / 1_000
        else:
            told[f"byoc.forward.{name}"] = int(value)
    return told
