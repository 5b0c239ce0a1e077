"""The same as large.py in the form of a SageMaker script, which the product's own handler runs."""

from __future__ import annotations

from typing import Any

LARGE = bytes(range(250)) * 100_000


def model_fn(directory: str) -> bytes:
    """What the answer is made of."""
    return LARGE


def transform_fn(model: bytes, body: bytes, content_type: str, accept: str) -> tuple[Any, str]:
    """So many megabytes for ``large`` or, say, ``large6``, else the number of bytes that came."""
    if not body.startswith(b"large") or len(body) > len(b"large100"):
        return str(len(body)).encode(), "application/octet-stream"
    megabytes = int(body.removeprefix(b"large") or b"25")
    answer = model if megabytes == 25 else (model * -(-megabytes // 25))[: megabytes * 1_000_000]
    return answer, "application/octet-stream"
