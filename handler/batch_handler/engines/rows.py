"""The row: the tokens of all records one after the other, positions restarting with each. Owns how it is laid out, and the
side of an engine that all row engines share; how the encoder runs over a row is theirs.

Every layer but attention works token by token, so one long row computes exactly what separate rows would.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch

from batch_handler.engines import Tokens
from batch_handler.engines.attention import Runs
from batch_handler.engines.heads import Head


@dataclass(frozen=True, slots=True)
class Row:
    """``ids``, ``positions`` and ``types`` are 1 × tokens; ``types`` is None for models that know none."""

    ids: torch.Tensor
    positions: torch.Tensor
    types: torch.Tensor | None
    runs: Runs


@dataclass(frozen=True, slots=True)
class Layout:
    """What an architecture wants of its row: where positions start, whether it is told which text a token is of."""

    first_position: int
    takes_types: bool

    @classmethod
    def of(cls, base: Any) -> Layout:
        """That of an encoder. Raises NotImplementedError for one whose positions cannot be given."""
        accepted = inspect.signature(base.forward).parameters
        if "position_ids" not in accepted:
            raise NotImplementedError("positions cannot be given")
        types = "token_type_ids" in accepted and getattr(base.config, "type_vocab_size", 0) > 0
        return cls(_first_position(base), types)

    def row(self, records: Sequence[Tokens], device: torch.device | None = None, tokens: int = 0) -> Row:
        """All records in a row, filled up to so many `tokens` with such as belong to no record."""
        lengths = [len(record.ids) for record in records]
        filler = [0] * (tokens - sum(lengths))
        ids = torch.tensor([token for record in records for token in record.ids], device=device)
        positions = self._positions(ids, lengths)
        if filler:
            ids = torch.cat([ids, ids.new_tensor(filler)])
            positions = torch.cat([positions, positions.new_tensor(filler) + self.first_position])
        types = None
        if self.takes_types:
            types = torch.tensor([[*(kind for record in records for kind in record.types), *filler]], device=device)
        runs = tuple((len(list(run)), length) for length, run in groupby(lengths))
        return Row(ids.unsqueeze(0), positions.unsqueeze(0), types, runs)

    def _positions(self, ids: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        """Positions from the start of each record. Where they start behind a padding index, tokens of that index (a text
        may spell out ``<pad>``) do not count."""
        padding = self.first_position - 1
        if padding < 0 or not bool((ids == padding).any()):
            return torch.cat([torch.arange(length, device=ids.device) for length in lengths]) + self.first_position
        counted = (ids != padding).long()
        each = torch.split(counted, list(lengths))
        return torch.cat([row.cumsum(0) * row + padding for row in each])


class RowEngine:
    """An engine without padding: `states` runs the encoder over a row, and the head takes it from there."""

    name = "row"
    padded = False
    team_tokens = 0

    def __init__(self, head: Head) -> None:
        self.head = head

    def states(self, records: Sequence[Tokens]) -> torch.Tensor:
        """Total tokens × hidden size."""
        raise NotImplementedError

    def hidden(self, records: Sequence[Tokens]) -> torch.Tensor:
        """Total tokens × hidden size."""
        return self.states(records)

    def logits(self, records: Sequence[Tokens]) -> torch.Tensor:
        """Records × labels."""
        return self.head.logits(self.states(records), [len(record.ids) for record in records])

    def token_logits(self, records: Sequence[Tokens], kept: Sequence[int] | None = None) -> torch.Tensor:
        """Total tokens × labels, or those of the kept tokens."""
        return self.head.token_logits(self.states(records), kept)


def _first_position(model: Any) -> int:
    """RoBERTa and its kin count positions from the padding index + 1."""
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            continue
        table = getattr(module, "position_embeddings", None)
        if isinstance(table, torch.nn.Embedding) and table.padding_idx is not None:
            return int(table.padding_idx) + 1
    return 0
