"""Engines: how an encoder's forward pass runs. All give the same answers; they differ in what they waste.

An engine takes token sequences and returns hidden states without padding, or logits; tasks decide what to make of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
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


def per_token_logits(output: Any) -> torch.Tensor:
    """Rows × tokens × labels from what a head returned; the two logits of a question-answering head stand as labels."""
    logits: torch.Tensor = (
        torch.stack([output.start_logits, output.end_logits], dim=-1) if "start_logits" in output else output.logits
    )
    return logits


class Engine(Protocol):
    """The forward pass of an encoder over several records at once. Safe to call from several threads."""

    name: str
    padded: bool

    def hidden(self, records: Sequence[Tokens]) -> torch.Tensor:
        """Last hidden states of all records one after the other: total tokens × hidden size, no padding."""

    def logits(self, records: Sequence[Tokens]) -> torch.Tensor:
        """What the classification head says: records × labels."""

    def token_logits(self, records: Sequence[Tokens], kept: Sequence[int] | None = None) -> torch.Tensor:
        """What a head that judges every token says: total tokens × labels, no padding.

        ``kept`` are places in that row of tokens: only theirs are wanted, in this order. A head of several outputs (where
        a span starts and ends) gives them as labels.
        """


def choose(model: Any, wanted: str, head: bool, per_token: bool = False) -> Engine:
    """The fastest exact engine that the model's architecture allows.

    `head` says that the model classifies, `per_token` that it does so token by token. ``packed`` is checked against
    ``eager`` on the model's own weights; where it cannot run or differs by more than 2e-5, ``eager`` serves.
    """
    from batch_handler.engines.eager import Eager
    from batch_handler.engines.packed import Packed

    eager = Eager(model)
    if wanted == "eager":
        return eager
    try:
        packed = Packed(model)
        difference = _difference(packed, eager, _output(head, per_token), model.config.vocab_size)
    except Exception as error:  # noqa: BLE001 - any architecture may fail in its own way, and eager serves it
        log.info("the packed engine does not fit %s (%s)", type(model).__name__, type(error).__name__)
        difference = float("inf")
    if difference <= AGREEMENT:
        return packed
    if wanted == "packed":
        raise ValueError(f"BYOC_ENGINE=packed does not fit {type(model).__name__}: use auto or eager")
    log.info("engine eager: packed differs from it by %.1e on this model", difference)
    return eager


def _output(head: bool, per_token: bool) -> Callable[[Engine, Sequence[Tokens]], torch.Tensor]:
    """What a task will ask of its engine."""
    if per_token:
        return lambda engine, records: engine.token_logits(records)
    return (lambda engine, records: engine.logits(records)) if head else (lambda engine, records: engine.hidden(records))


def _difference(one: Engine, other: Engine, output: Callable[[Engine, Sequence[Tokens]], torch.Tensor], vocabulary: int) -> float:
    """The largest relative difference between two engines on records of mixed lengths."""
    generator = torch.Generator().manual_seed(0)
    records = [
        Tokens(torch.randint(5, vocabulary, (length,), generator=generator).tolist(), [0] * length) for length in SAMPLE_LENGTHS
    ]
    with torch.inference_mode():
        left, right = (output(engine, records) for engine in (one, other))
    if left.shape != right.shape:
        return float("inf")
    scale = max(1.0, float(right.abs().max()))
    return float((left - right).abs().max()) / scale
