"""A TorchServe handler whose answer is 25 MB for the body ``large`` (``large6``: 6 MB), else the number of bytes that came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LARGE = bytes(range(250)) * 100_000


def answer(body: bytes) -> bytes:
    """So many megabytes, or a count."""
    if not body.startswith(b"large") or len(body) > len(b"large100"):
        return str(len(body)).encode()
    megabytes = int(body.removeprefix(b"large") or b"25")
    return LARGE if megabytes == 25 else (LARGE * -(-megabytes // 25))[: megabytes * 1_000_000]


def handle(data: Sequence[Mapping[str, Any]] | None, context: Any) -> list[bytes]:
    """One answer per request."""
    return [answer(bytes(entry.get("body") or b"")) for entry in data or ()]
