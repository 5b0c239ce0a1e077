"""The padding-free engine: the tokens of all records in one row, and attention within each record only.

Attention is swapped through transformers' attention interface for one that walks the records.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from typing import Any

import torch
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from batch_handler.engines import Tokens
from batch_handler.engines.attention import attend
from batch_handler.engines.heads import Head
from batch_handler.engines.linear import reorder, rounded
from batch_handler.engines.rows import Layout, RowEngine

ATTENTION = "byoc_packed"
TEAM_TOKENS = 200
"""On two cores one pass takes 0.72 of the time of two at 59 tokens, 0.86 at 136, 0.94 at 193, and more from some 300 on. Both
what the weights take to read and what a token takes to compute grow with the model."""
_current = threading.local()


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **unused: Any,
) -> tuple[torch.Tensor, None]:
    """Attention within each record: 1 × heads × tokens × width in, 1 × tokens × heads × width out.

    `sliding_window` is the layer's own (ModernBERT's local layers): a token sees those less than so many places away.
    """
    attended = attend(query[0], key[0], value[0], _current.runs, scaling, sliding_window)
    return attended.view(1, attended.shape[0], query.shape[1], -1), None


ALL_ATTENTION_FUNCTIONS.register(ATTENTION, packed_attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(ATTENTION, lambda *_, **__: None)


class Packed(RowEngine):
    """Padding-free forward passes. Shares the weights with the model it was made from, but for those of its linear layers.

    These multiply in ``dtype``; hidden states and heads are fp32 in any case. Raises whatever the architecture raises when it
    cannot run this way; `engines.choose` then takes another engine.
    """

    def __init__(self, model: Any, head: Head | None = None, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(head or Head(model))
        self.name = "packed" if dtype is torch.float32 else "packed-bf16"
        self._base = with_attention(model, ATTENTION)
        reorder(self._base, dtype=dtype)
        self._layout = Layout.of(self._base)
        self.team_tokens = TEAM_TOKENS if self._base.device.type == "cpu" else 0

    def states(self, records: Sequence[Tokens]) -> torch.Tensor:
        """Total tokens × hidden size."""
        tokens = sum(len(record.ids) for record in records)
        row = self._layout.row(records, self._base.device, rounded(tokens))
        _current.runs = row.runs
        types = {} if row.types is None else {"token_type_ids": row.types}
        states: torch.Tensor = self._base(input_ids=row.ids, position_ids=row.positions, **types).last_hidden_state
        return states[0, :tokens].float()


def with_attention(model: Any, name: str) -> Any:
    """The model's encoder under a registered attention function: the same weights, and the model left as it was."""
    config = copy.deepcopy(model.config)
    config._attn_implementation = name  # noqa: SLF001 - the public setter changes the model it came from
    base = model.base_model
    memo: dict[int, Any] = {id(tensor): tensor for tensor in (*base.parameters(), *base.buffers())}
    twin: Any = copy.deepcopy(base, memo)
    for module in twin.modules():
        if hasattr(module, "config"):
            module.config = config
    return twin
