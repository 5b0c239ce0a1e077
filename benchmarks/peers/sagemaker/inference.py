"""A user's script for the toolkit: model_fn, input_fn, predict_fn and output_fn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.peers.inference import Model, read, write


def model_fn(directory: str, context: Any = None) -> Model:
    """Load."""
    return Model()


def input_fn(body: bytes | str, content_type: str, context: Any = None) -> list[str]:
    """The texts of one request."""
    return read(body.encode() if isinstance(body, str) else bytes(body))


def predict_fn(texts: Sequence[str], model: Model, context: Any = None) -> list[Any]:
    """One result per text."""
    return model(texts)


def output_fn(results: Sequence[Any], accept: str, context: Any = None) -> str:
    """One line per result."""
    return write(results)
