"""The padding-free engine: the tokens of all records in one row, and attention within each record only.

Every layer but attention works token by token, so one long row computes exactly what separate rows would. Attention is
swapped through transformers' attention interface for one that walks the records; positions restart with each record.
"""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from batch_handler.engines import Tokens, per_token_logits

ATTENTION = "byoc_packed"
_current = threading.local()


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **unused: Any,
) -> tuple[torch.Tensor, None]:
    """Attention within each record: 1 × heads × tokens × width in, 1 × tokens × heads × width out.

    Records of equal length, which stand side by side after sorting, share one kernel call.
    """
    pieces = []
    start = 0
    for count, length in _current.runs:
        stop = start + count * length
        q, k, v = (_rows(tensor, start, stop, count) for tensor in (query, key, value))
        attended = scaled_dot_product_attention(q, k, v, scale=scaling)
        pieces.append(attended.transpose(1, 2).reshape(stop - start, query.shape[1], -1))
        start = stop
    return torch.cat(pieces).unsqueeze(0), None


def _rows(tensor: torch.Tensor, start: int, stop: int, count: int) -> torch.Tensor:
    """Tokens start to stop of 1 × heads × tokens × width, as records × heads × length × width."""
    heads, width = tensor.shape[1], tensor.shape[3]
    return tensor[0, :, start:stop].reshape(heads, count, -1, width).transpose(0, 1)


ALL_ATTENTION_FUNCTIONS.register(ATTENTION, packed_attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(ATTENTION, lambda *_, **__: None)


class Packed:
    """Padding-free forward passes. Shares the weights with the model it was made from.

    Raises whatever the architecture raises when it cannot run this way; `engines.choose` then takes another engine.
    """

    name = "packed"
    padded = False

    def __init__(self, model: Any) -> None:
        config = copy.deepcopy(model.config)
        config._attn_implementation = ATTENTION  # noqa: SLF001 - the public setter changes the model it came from
        self._base = _with_config(model.base_model, config)
        accepted = inspect.signature(self._base.forward).parameters
        self._takes_positions = "position_ids" in accepted
        self._takes_types = "token_type_ids" in accepted and getattr(config, "type_vocab_size", 0) > 0
        if not self._takes_positions:
            raise NotImplementedError("positions cannot be given")
        if any(getattr(module, "sliding_window", None) for module in self._base.modules()):
            raise NotImplementedError("attention over a window")
        self._first_position = _first_position(self._base)
        self._head, self._pooler = _head(model)

    def hidden(self, records: Sequence[Tokens]) -> torch.Tensor:
        """Total tokens × hidden size."""
        lengths = [len(record.ids) for record in records]
        _current.runs = [(len(list(run)), length) for length, run in groupby(lengths)]
        device = self._base.device
        ids = torch.tensor([token for record in records for token in record.ids], device=device)
        inputs: dict[str, torch.Tensor] = {
            "input_ids": ids.unsqueeze(0),
            "position_ids": self._positions(ids, lengths).unsqueeze(0),
        }
        if self._takes_types:
            inputs["token_type_ids"] = torch.tensor([[kind for record in records for kind in record.types]], device=device)
        states: torch.Tensor = self._base(**inputs).last_hidden_state
        return states[0]

    def _positions(self, ids: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        """Positions from the start of each record. Where they start behind a padding index, tokens of that index (a text
        may spell out ``<pad>``) do not count."""
        padding = self._first_position - 1
        if padding < 0 or not bool((ids == padding).any()):
            return torch.cat([torch.arange(length, device=ids.device) for length in lengths]) + self._first_position
        counted = (ids != padding).long()
        each = torch.split(counted, list(lengths))
        return torch.cat([row.cumsum(0) * row + padding for row in each])

    def logits(self, records: Sequence[Tokens]) -> torch.Tensor:
        """Records × labels, from each record's first token: a head that looks at others fails the check at load."""
        states = self.hidden(records)
        lengths = torch.tensor([len(record.ids) for record in records], device=states.device)
        first = states[lengths.cumsum(0) - lengths].unsqueeze(1)
        _current.output = BaseModelOutputWithPooling(
            last_hidden_state=first, pooler_output=None if self._pooler is None else self._pooler(first)
        )
        placeholder = torch.zeros((len(records), 1), dtype=torch.long, device=states.device)
        logits: torch.Tensor = self._head(input_ids=placeholder, attention_mask=placeholder + 1).logits
        return logits

    def token_logits(self, records: Sequence[Tokens], kept: Sequence[int] | None = None) -> torch.Tensor:
        """Total tokens × labels; the head runs on the kept tokens only, which is most of the work of a vocabulary's."""
        states = self.hidden(records)
        if kept is not None:
            states = states[list(kept)]
        _current.output = BaseModelOutputWithPooling(last_hidden_state=states.unsqueeze(0))
        placeholder = torch.zeros((1, len(states)), dtype=torch.long, device=states.device)
        return per_token_logits(self._head(input_ids=placeholder, attention_mask=placeholder + 1))[0]


class _Computed(torch.nn.Module):
    """Stands in for the encoder under a head: returns the states that were computed already."""

    def forward(self, *_: Any, **__: Any) -> Any:
        return _current.output


def _with_config(model: torch.nn.Module, config: Any) -> Any:
    """The same modules and weights under another configuration object, leaving the original untouched."""
    memo: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    twin: Any = copy.deepcopy(model, memo)
    for module in twin.modules():
        if hasattr(module, "config"):
            module.config = config
    return twin


def _head(model: Any) -> tuple[Any, Any]:
    """The model with its encoder taken out, and the encoder's pooler if it has one."""
    prefix = model.base_model_prefix
    if model.base_model is model or not hasattr(model, prefix):
        return None, None
    head = copy.copy(model)
    head._modules = {**model._modules, prefix: _Computed()}  # noqa: SLF001 - a shallow copy shares this table
    return head, getattr(model.base_model, "pooler", None)


def _first_position(model: Any) -> int:
    """RoBERTa and its kin count positions from the padding index + 1."""
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            continue
        table = getattr(module, "position_embeddings", None)
        if isinstance(table, torch.nn.Embedding) and table.padding_idx is not None:
            return int(table.padding_idx) + 1
    return 0
