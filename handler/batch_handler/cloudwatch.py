"""What CloudWatch accepts as a namespace and as dimensions, by its pages on PutMetricData and Dimension.

The metrics themselves are the frontend's (docker/endpoints): their names are here only because no dimension may take one.
"""

from __future__ import annotations

import json
import re

METRICS = frozenset(
    (
        *("Requests", "ClientErrors", "ServerErrors", "InflightRequests", "QueuedRequests", "WorkerStarts"),
        *("Records", "FailedRecords", "TruncatedRecords", "Tokens", "PaddingTokens", "ForwardPasses"),
        *("RequestTime", "QueueTime", "HandlerTime", "ForwardTime", "BatchRequests", "MicrobatchRecords"),
    )
)
MODEL = "Model"
TAKEN = METRICS | {MODEL, "_aws"}
# CloudWatch takes 30 by now; readers of the format that are older than that take 9, and one is the model's.
MOST_DIMENSIONS = 8
NAMESPACE = re.compile(r"(?!AWS/)[A-Za-z0-9._/#-][A-Za-z0-9._/#:-]{0,254}")
DIMENSION = re.compile(r"(?!:)(?=.*[!-~])[ -~]{1,255}")


def namespace(text: str) -> str:
    """A namespace of one's own. Raises ValueError."""
    if not NAMESPACE.fullmatch(text):
        raise ValueError(text)
    return text


def dimensions(text: str) -> dict[str, str]:
    """A JSON object of names and values. Raises ValueError."""
    written = json.loads(text)
    if not isinstance(written, dict) or len(written) > MOST_DIMENSIONS:
        raise ValueError(text)
    for name, value in written.items():
        if name in TAKEN or not isinstance(value, str) or not (DIMENSION.fullmatch(name) and DIMENSION.fullmatch(value)):
            raise ValueError(text)
    return written
