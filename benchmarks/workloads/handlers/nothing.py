"""A TorchServe handler that does nothing: what a request costs beside the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def handle(data: Sequence[Any] | None, context: Any) -> list[bytes]:
    """One byte per request."""
    return [b"0"] * len(data or ())
