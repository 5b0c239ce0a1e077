"""A TorchServe handler: the batch's bodies to texts, the texts through the model, one answer per body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.peers.inference import Model, read, write

model: list[Model] = []


def handle(data: Sequence[Mapping[str, Any]] | None, context: Any) -> list[str]:
    """TorchServe's entry point; the first call, without data, loads the model."""
    if not model:
        model.append(Model())
    if data is None:
        return []
    requests = [_texts(entry) for entry in data]
    results = iter(model[0]([text for texts in requests for text in texts]))
    return [write([next(results) for _ in texts]) for texts in requests]


def _texts(entry: Mapping[str, Any]) -> list[str]:
    """TorchServe decodes JSON bodies itself and leaves other bodies as bytes."""
    body = entry.get("body")
    return [body["inputs"]] if isinstance(body, dict) else read(bytes(body or b""))
