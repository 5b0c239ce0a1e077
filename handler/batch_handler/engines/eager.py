"""The plain engine: records padded to the longest of their micro-batch, as the Hugging Face library itself runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from batch_handler.engines import Tokens, per_token_logits


class Eager:
    """Padded forward passes through the unchanged model."""

    name = "eager"
    padded = True
    team_tokens = 0

    def __init__(self, model: Any) -> None:
        self._model = model
        self._pad = model.config.pad_token_id or 0
        self._takes_types = getattr(model.config, "type_vocab_size", 0) > 0
        self._base = model.base_model

    def hidden(self, records: Sequence[Tokens]) -> torch.Tensor:
        """Total tokens × hidden size."""
        inputs = self._inputs(records)
        states: torch.Tensor = self._base(**inputs).last_hidden_state
        return states[inputs["attention_mask"].bool()]

    def logits(self, records: Sequence[Tokens]) -> torch.Tensor:
        """Records × labels."""
        logits: torch.Tensor = self._model(**self._inputs(records)).logits
        return logits

    def token_logits(self, records: Sequence[Tokens], kept: Sequence[int] | None = None) -> torch.Tensor:
        """Total tokens × labels, or those of the kept tokens."""
        inputs = self._inputs(records)
        logits = per_token_logits(self._model(**inputs))[inputs["attention_mask"].bool()]
        return logits if kept is None else logits[list(kept)]

    def _inputs(self, records: Sequence[Tokens]) -> dict[str, torch.Tensor]:
        longest = max(len(record.ids) for record in records)

        def padded(rows: Sequence[Sequence[int]], filler: int) -> torch.Tensor:
            return torch.tensor([[*row, *([filler] * (longest - len(row)))] for row in rows], device=self._model.device)

        inputs = {
            "input_ids": padded([record.ids for record in records], self._pad),
            "attention_mask": padded([[1] * len(record.ids) for record in records], 0),
        }
        if self._takes_types:
            inputs["token_type_ids"] = padded([record.types for record in records], 0)
        return inputs
