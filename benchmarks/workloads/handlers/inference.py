"""The same as large.py in the form of a SageMaker script, which the product's own handler runs."""

from __future__ import annotations

from typing import Any

LARGE = bytes(range(250)) * 100_000


def model_fn(directory: str) -> bytes:
    """What the answer is made of."""
    return LARGE


def transform_fn(model: bytes, body: bytes | str, content_type: str, accept: str) -> tuple[Any, str]:
    """25 MB for the body ``large``, else the number of bytes that came."""
    asked = body in (b"large", "large")
    return (model if asked else str(len(body)).encode()), "application/octet-stream"
