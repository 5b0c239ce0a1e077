"""The head of a model on hidden states that an engine has computed: the model itself, its encoder taken out."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers.modeling_outputs import BaseModelOutputWithPooling

from batch_handler.engines import per_token_logits

_current = threading.local()


class Head:
    """Shares the head's weights with the model that it was made from, and keeps nothing of the encoder.

    A head that judges records looks at the first token only, nearly always; with `whole` it is given all of them, padded,
    for one that takes their mean, say. What fits is found out at load (`engines.choose`).
    """

    def __init__(self, model: Any, whole: bool = False) -> None:
        self._whole = whole
        self._head, self._pooler = _without_encoder(model)

    def logits(self, states: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        """Records × labels from total tokens × hidden size."""
        if self._whole:
            shown = pad_sequence(list(torch.split(states, list(lengths))), batch_first=True)
        else:
            counts = torch.tensor(lengths, device=states.device)
            shown = states[counts.cumsum(0) - counts].unsqueeze(1)
        seen = torch.tensor(lengths, device=states.device).clamp(max=shown.shape[1])
        mask = (torch.arange(shown.shape[1], device=states.device) < seen.unsqueeze(1)).long()
        logits: torch.Tensor = self._asked(shown, mask, None if self._pooler is None else self._pooler(shown)).logits
        return logits

    def token_logits(self, states: torch.Tensor, kept: Sequence[int] | None = None) -> torch.Tensor:
        """Tokens × labels, of the kept tokens only where they are named, which saves most of the work of a vocabulary's."""
        shown = (states if kept is None else states[list(kept)]).unsqueeze(0)
        return per_token_logits(self._asked(shown, torch.ones(shown.shape[:2], dtype=torch.long, device=states.device)))[0]

    def _asked(self, states: torch.Tensor, mask: torch.Tensor, pooled: torch.Tensor | None = None) -> Any:
        _current.output = BaseModelOutputWithPooling(last_hidden_state=states, pooler_output=pooled)
        return self._head(input_ids=torch.zeros_like(mask), attention_mask=mask)


class _Computed(torch.nn.Module):
    """Stands in for the encoder under a head: returns the states that were computed already."""

    def forward(self, *_: Any, **__: Any) -> Any:
        return _current.output


def _without_encoder(model: Any) -> tuple[Any, Any]:
    """The model with its encoder taken out, and the encoder's pooler if it has one. (None, None): there is no head."""
    prefix = model.base_model_prefix
    if model.base_model is model or not hasattr(model, prefix):
        return None, None
    head = copy.copy(model)
    head._modules = {**model._modules, prefix: _Computed()}  # noqa: SLF001 - a shallow copy shares this table
    return head, getattr(model.base_model, "pooler", None)
