"""The engine for GPUs: records padded to one of few shapes, each recorded once as a CUDA graph and replayed from then on.

An encoder launches some hundred kernels a pass, and for small models a GPU waits for each of them; a graph is one launch.
Attention is our own with a mask per record, so nothing in a pass depends on values and waits for them. Where graphs cannot
be recorded, the same passes run without. Recording, replaying and their memory belong to `graphs`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from batch_handler.device import to_device
from batch_handler.engines import Engine, Tokens
from batch_handler.engines.graphs import REPLAYED_AFTER, Graphs, Tensors
from batch_handler.engines.heads import Head
from batch_handler.engines.packed import with_attention
from batch_handler.engines.rows import Layout, RowEngine

log = logging.getLogger(__name__)

ATTENTION = "byoc_shaped"
SHORTEST = 16
STEPS_PER_OCTAVE = 4
_current = threading.local()


def shape(rows: int, length: int) -> tuple[int, int]:
    """The shape that so many rows of at most so many tokens are padded to: at least as many of both, and one of few.

    Rows are powers of two and the halves between them, lengths four to a doubling: an eighth of either is filled up on
    average, and there are some 20 lengths up to 512 tokens instead of 512.
    """
    return _rows(rows), _length(length)


def _rows(rows: int) -> int:
    power = 1 << (rows - 1).bit_length()
    return power * 3 // 4 if power >= 4 and rows <= power * 3 // 4 else power


def _length(length: int) -> int:
    if length <= SHORTEST:
        return SHORTEST
    step = max(1, (1 << (length - 1).bit_length()) // (2 * STEPS_PER_OCTAVE))
    return -(-length // step) * step


def shaped_attention(
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
    """Attention within each row: rows × heads × length × width in, rows × length × heads × width out.

    `sliding_window` is the layer's own: a token sees those less than so many places away.
    """
    mask = _current.mask
    if sliding_window is not None and sliding_window < query.shape[2]:
        places = torch.arange(query.shape[2], device=query.device)
        mask = mask & ((places[:, None] - places[None, :]).abs() < sliding_window)
    attended = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
    return attended.transpose(1, 2), None


ALL_ATTENTION_FUNCTIONS.register(ATTENTION, shaped_attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(ATTENTION, lambda *_, **__: None)


class Shaped(RowEngine):
    """Padded passes in few shapes, as graphs where there is a GPU. Shares the weights with the model it was made from."""

    name = "graphs"
    padded = True

    def __init__(self, model: Any, head: Head | None = None, graphs: Graphs | None = None) -> None:
        super().__init__(head or Head(model))
        self._base = with_attention(model, ATTENTION)
        self._layout = Layout.of(self._base)
        self._graphs = graphs or Graphs(self._base.device)

    def states(self, records: Sequence[Tokens]) -> torch.Tensor:
        """Total tokens × hidden size."""
        inputs, places = self._padded(records)
        with torch.inference_mode():
            states = self._graphs.run(self._forward, inputs)
            return states.flatten(0, 1).index_select(0, to_device(places, self._base.device))

    def _padded(self, records: Sequence[Tokens]) -> tuple[Tensors, torch.Tensor]:
        """Inputs as rows × length on the CPU, and where the tokens of the records stand among rows · length."""
        lengths = [len(record.ids) for record in records]
        rows, length = shape(len(records), max(lengths))
        row = self._layout.row(records)
        starts = torch.arange(len(records)) * length
        before = torch.tensor([0, *accumulate(lengths)][:-1])
        counts = torch.tensor(lengths)
        places = torch.arange(sum(lengths)) + torch.repeat_interleave(starts - before, counts)

        def spread(values: torch.Tensor) -> torch.Tensor:
            return values.new_zeros(rows * length).index_copy_(0, places, values).view(rows, length)

        inputs = {"ids": spread(row.ids[0]), "positions": spread(row.positions[0])}
        if row.types is not None:
            inputs["types"] = spread(row.types[0])
        mask = torch.arange(length) < torch.cat([counts, counts.new_ones(rows - len(records))]).unsqueeze(1)
        return {**inputs, "mask": mask[:, None, None, :]}, places

    def _forward(self, inputs: Tensors) -> torch.Tensor:
        """Rows × length × hidden size, from inputs on the device."""
        _current.mask = inputs["mask"]
        types = {"token_type_ids": inputs["types"]} if "types" in inputs else {}
        states: torch.Tensor = self._base(input_ids=inputs["ids"], position_ids=inputs["positions"], **types).last_hidden_state
        return states


def fitting(model: Any, eager: Any, use: Any, records: Sequence[Tokens], exactly: bool) -> Engine:
    """The engine for a model on a GPU, held to `eager` after its graphs have been recorded; `eager` where it does not fit.

    With `exactly` it must agree within AGREEMENT, else, where 16 bits are asked for, compute the same model.
    """
    from batch_handler.engines.checks import AGREEMENT, alike, exact, fitting_head

    try:
        engine = Shaped(model, fitting_head(model, eager, use, records))
        for _ in range(REPLAYED_AFTER):
            engine.states(records)
        right = exact(engine, eager, use, records) <= AGREEMENT if exactly else alike(engine, eager, records)
    except Exception as error:  # noqa: BLE001 - any architecture may fail in its own way, and eager serves it
        log.info("the engine graphs does not fit %s (%s)", type(model).__name__, type(error).__name__)
        right = False
    return engine if right else eager
