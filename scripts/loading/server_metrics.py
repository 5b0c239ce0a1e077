"""What the server saw of a step: the difference between its ``/metrics`` before and after.

The names are those of the container (``byoc_…``); a server without them has nothing to say here.
"""

from __future__ import annotations

import math
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

LIMIT_S = 5.0
BATCHES = "byoc_batch_requests"
QUEUE, HANDLER, FORWARD = "byoc_queue_seconds", "byoc_handler_seconds", "byoc_forward_seconds"
TOKENS, PADDING = "byoc_tokens_total", "byoc_padding_tokens_total"
RECORDS, PASSES = "byoc_records_total", "byoc_forward_passes_total"

Samples = Mapping[tuple[str, str], float]
"""Values by name and label (the bucket's bound, the outcome or the status), those of all models together."""


@dataclass(frozen=True, slots=True)
class ServerView:
    """One step as the server counted it. Times are means in milliseconds; ``batches`` maps an upper bound to a count."""

    requests_per_batch: float
    records_per_pass: float
    padding: float
    queue_ms: float
    handler_ms: float
    forward_ms: float
    records: int
    batches: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """For the result file."""
        return {
            "requests_per_batch": round(self.requests_per_batch, 2),
            "records_per_forward_pass": round(self.records_per_pass, 2),
            "padding_share": round(self.padding, 4),
            "queue_ms": round(self.queue_ms, 3),
            "handler_ms": round(self.handler_ms, 3),
            "forward_ms": round(self.forward_ms, 3),
            "records": self.records,
            "batches": self.batches,
        }


def read(url: str | None) -> Samples | None:
    """The server's numbers now, or None where it does not tell them."""
    if url is None:
        return None
    try:
        with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:  # noqa: S310 -- http or https by its construction
            text = answer.read().decode("utf-8")
        found: dict[tuple[str, str], float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = sample.name, next((value for label, value in sample.labels.items() if label != "model"), "")
                found[key] = found.get(key, 0.0) + sample.value
    except (OSError, ValueError):
        return None
    return found if any(name.startswith(BATCHES) for name, _ in found) else None


def between(before: Samples | None, after: Samples | None) -> ServerView | None:
    """What happened from one reading to the next; None without both, or when no batch was run."""
    if before is None or after is None:
        return None

    def grown(name: str, label: str = "") -> float:
        return after.get((name, label), 0.0) - before.get((name, label), 0.0)

    def mean(name: str, scale: float = 1.0) -> float:
        count = grown(f"{name}_count")
        return scale * grown(f"{name}_sum") / count if count > 0 else 0.0

    if grown(f"{BATCHES}_count") <= 0:
        return None
    records = grown(RECORDS, "ok") + grown(RECORDS, "error")
    tokens, padding, passes = grown(TOKENS), grown(PADDING), grown(PASSES)
    return ServerView(
        requests_per_batch=mean(BATCHES),
        records_per_pass=records / passes if passes > 0 else 0.0,
        padding=padding / (tokens + padding) if tokens + padding > 0 else 0.0,
        queue_ms=mean(QUEUE, 1e3),
        handler_ms=mean(HANDLER, 1e3),
        forward_ms=mean(FORWARD, 1e3),
        records=round(records),
        batches=_buckets(before, after),
    )


def _buckets(before: Samples, after: Samples) -> dict[str, int]:
    """How many batches had at most so many requests and more than the bound below; cumulative counts taken apart."""
    bounds = sorted((label for name, label in after if name == f"{BATCHES}_bucket"), key=_number)
    counts: dict[str, int] = {}
    below = 0.0
    for bound in bounds:
        key = (f"{BATCHES}_bucket", bound)
        upto = after[key] - before.get(key, 0.0)
        counts["more" if math.isinf(_number(bound)) else f"{_number(bound):g}"] = round(upto - below)
        below = upto
    return counts


def _number(bound: str) -> float:
    return float(bound.replace("+Inf", "inf"))
