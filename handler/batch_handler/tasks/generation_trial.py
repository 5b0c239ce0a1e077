"""Which prompts a decoder-only model may be given together: tried out once, on the model's own weights.

Not every architecture pads exactly, keeps the rows of a batch apart, or survives that one of them leaves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from transformers import LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from batch_handler.tasks.generation import Step

log = logging.getLogger(__name__)

AGREEMENT = 1e-4
STEPS = 3
"""By the third token a model has used what it remembers of the first ones, and of a row that left after the first."""


class Company(Enum):
    """Which prompts may share a forward pass with a prompt of the same parameters."""

    ANY = "any-lengths"
    EQUAL = "equal-lengths"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Habits:
    """What the trial found: which prompts go together, and whether ended rows may be dropped from their midst."""

    company: Company
    compact: bool


Decode = Callable[[Sequence[Sequence[int]], LogitsProcessorList, StoppingCriteriaList, int, bool], Iterator[Step]]
"""Prompts, rules, criteria, the number of new tokens and whether to drop ended rows → the steps."""


def habits(decode: Decode, vocabulary: int, longest: int) -> Habits:
    """Compare a prompt alone with the same prompt beside a neighbour that ends after its first token."""
    width = max(2, min(9, longest - STEPS))
    long, short, other = (
        [(step * place + 3) % vocabulary for place in range(length)]
        for step, length in ((7, width), (7, width // 2), (11, width // 2))
    )
    alone = _scores(decode, [short], compact=False)
    for company, neighbour in ((Company.ANY, long), (Company.EQUAL, other)):
        for compact in (True, False):
            if _agree(decode, [neighbour, short], compact, alone):
                return Habits(company, compact)
    return Habits(Company.NONE, compact=False)


def _agree(decode: Decode, prompts: Sequence[Sequence[int]], compact: bool, alone: torch.Tensor) -> bool:
    try:
        difference = float((_scores(decode, prompts, compact) - alone).abs().max())
    except Exception as error:  # noqa: BLE001 - an architecture may fail at it in its own way, and is then served in another
        log.info("prompts of this model do not go together so (%s)", type(error).__name__)
        return False
    return difference <= AGREEMENT * max(1.0, float(alone.abs().max()))


def _scores(decode: Decode, prompts: Sequence[Sequence[int]], compact: bool) -> torch.Tensor:
    """The last prompt's scores for its last token."""
    seen = _Seen()
    for _ in decode(prompts, LogitsProcessorList([seen]), StoppingCriteriaList([_AllButTheLast()]), STEPS, compact):
        pass
    return seen.scores


class _Seen(LogitsProcessor):
    """Remembers the last row's scores and changes nothing."""

    scores: torch.Tensor

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.scores = scores[-1].nan_to_num(neginf=0.0)  # what is ruled out cannot be compared
        return scores


class _AllButTheLast(StoppingCriteria):
    """Ends every row but the last."""

    def __call__(self, input_ids: torch.Tensor, scores: Any, **unused: Any) -> torch.Tensor:
        return torch.arange(len(input_ids), device=input_ids.device) < len(input_ids) - 1
