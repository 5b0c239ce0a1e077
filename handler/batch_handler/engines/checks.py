"""What an engine is held to at load: what ``eager`` gives, on the model's own weights and records of mixed lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from batch_handler.engines import Engine, Tokens
from batch_handler.engines.heads import Head

AGREEMENT = 2e-5
ALIKE = 0.8
"""Cosine between hidden states below which an engine is not imprecise but wrong: its files are damaged."""
SAME = 2e-6
"""How far an answer may be from itself in other company: sums of attention may come out in another order."""
COMPANY = 8
SAMPLE_LENGTHS = (7, 2, 19, 7, 1, 33)
LONGEST_SAMPLE = 1_024


@dataclass(frozen=True, slots=True)
class Use:
    """What a task will ask of its engine: hidden states, or logits of a head, per record or `per_token`."""

    head: bool
    per_token: bool = False

    def asked(self, engine: Engine, records: Sequence[Tokens]) -> torch.Tensor:
        """The engine's answer."""
        if self.per_token:
            return engine.token_logits(records)
        return engine.logits(records) if self.head else engine.hidden(records)


def samples(model: Any) -> list[Tokens]:
    """Records of random tokens; one of them is longer than the model's attention window, if it has one."""
    generator = torch.Generator().manual_seed(0)
    return [
        Tokens(torch.randint(5, model.config.vocab_size, (length,), generator=generator).tolist(), [0] * length)
        for length in (*SAMPLE_LENGTHS, *_beyond_window(model))
    ]


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest, relative to the largest value; infinite between tensors of different shapes."""
    if one.shape != other.shape:
        return float("inf")
    return float((one - other).abs().max()) / max(1.0, float(other.abs().max()))


def exact(engine: Engine, eager: Engine, use: Use, records: Sequence[Tokens]) -> float:
    """How far an engine is from ``eager``; at most AGREEMENT for one that is exact."""
    with torch.inference_mode():
        return difference(use.asked(engine, records), use.asked(eager, records))


def alike(engine: Engine, eager: Engine, records: Sequence[Tokens]) -> bool:
    """Whether an engine that rounds still computes this model."""
    with torch.inference_mode():
        cosines = torch.nn.functional.cosine_similarity(engine.hidden(records), eager.hidden(records), dim=1)
    return bool(cosines.mean() >= ALIKE)


def independent(engine: Engine, records: Sequence[Tokens]) -> bool:
    """Whether records get the same states alone and in company, whatever else the engine does to them."""
    with torch.inference_mode():
        alone = torch.cat([engine.hidden([record]) for record in records])
        together = engine.hidden([*records] * COMPANY)
    return difference(together[: len(alone)], alone) <= SAME


def fitting_head(model: Any, eager: Engine, use: Use, records: Sequence[Tokens]) -> Head:
    """The head, shown of each record what it looks at. Raises NotImplementedError for one that looks at something else."""
    if not use.head or use.per_token:
        return Head(model)
    lengths = [len(record.ids) for record in records]
    with torch.inference_mode():
        states, wanted = eager.hidden(records), eager.logits(records)
        for whole in (False, True):
            head = Head(model, whole)
            if difference(head.logits(states, lengths), wanted) <= AGREEMENT:
                return head
    raise NotImplementedError("a head that looks at more than the last hidden states")


def _beyond_window(model: Any) -> tuple[int, ...]:
    windows = [window for module in model.modules() if isinstance(window := getattr(module, "sliding_window", None), int)]
    if not windows:
        return ()
    return (min(2 * max(windows) + 3, getattr(model.config, "max_position_embeddings", LONGEST_SAMPLE), LONGEST_SAMPLE),)
