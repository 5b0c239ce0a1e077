"""A TorchServe handler whose answer is 25 MB for the body ``large``, and else the number of bytes that came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LARGE = bytes(range(250)) * 100_000


def handle(data: Sequence[Mapping[str, Any]] | None, context: Any) -> list[bytes]:
    """One answer per request."""
    bodies = [bytes(entry.get("body") or b"") for entry in data or ()]
    return [LARGE if body == b"large" else str(len(body)).encode() for body in bodies]
