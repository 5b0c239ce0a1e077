"""Engines: how an encoder's forward pass runs. All give the same answers; they differ in what they waste.

An engine takes token sequences and returns hidden states without padding, or logits; tasks decide what to make of them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

log = logging.getLogger(__name__)

AGREEMENT = 2e-5
SAMPLE_LENGTHS = (7, 2, 19, 7, 1, 33)


@dataclass(frozen=True, slots=True)
class Tokens:
    """One tokenised record: token ids and, for pairs of texts, which text each token belongs to."""

    ids: Sequence[int]
    types: Sequence[int]


class Engine(Protocol):
    """The forward pass of an encoder over several records at once. Safe to call from several threads."""

    name: str
    padded: bool

    def hidden(self, records: Sequence[Tokens]) -> torch.Tensor:
        """Last hidden states of all records one after the other: total tokens × hidden size, no padding."""

    def logits(self, records: Sequence[Tokens]) -> torch.Tensor:
        """What the classification head says: records × labels."""


def choose(model: Any, wanted: str, head: bool) -> Engine:
    """The fastest exact engine that the model's architecture allows.

    `head` says that the model classifies. ``packed`` is checked against ``eager`` on the model's own weights; where it
    cannot run or differs by more than 2e-5, ``eager`` serves.
    """
    from batch_handler.engines.eager import Eager
    from batch_handler.engines.packed import Packed

    eager = Eager(model)
    if wanted == "eager":
        return eager
    try:
        packed = Packed(model)
        difference = _difference(packed, eager, head, model.config.vocab_size)
    except Exception as error:  # noqa: BLE001 - any architecture may fail in its own way, and eager serves it
        log.info("the packed engine does not fit %s (%s)", type(model).__name__, type(error).__name__)
        difference = float("inf")
    if difference <= AGREEMENT:
        return packed
    if wanted == "packed":
        raise ValueError(f"BYOC_ENGINE=packed does not fit {type(model).__name__}: use auto or eager")
    log.info("engine eager: packed differs from it by %.1e on this model", difference)
    return eager


def _difference(one: Engine, other: Engine, head: bool, vocabulary: int) -> float:
    """The largest relative difference between two engines on records of mixed lengths."""
    generator = torch.Generator().manual_seed(0)
    records = [
        Tokens(torch.randint(5, vocabulary, (length,), generator=generator).tolist(), [0] * length) for length in SAMPLE_LENGTHS
    ]
    with torch.inference_mode():
        left, right = (engine.logits(records) if head else engine.hidden(records) for engine in (one, other))
    if left.shape != right.shape:
        return float("inf")
    scale = max(1.0, float(right.abs().max()))
    return float((left - right).abs().max()) / scale
