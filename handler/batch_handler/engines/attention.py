"""Attention among the tokens of one row, each record for itself, exact and without padding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.functional import scaled_dot_product_attention

Runs = Sequence[tuple[int, int]]
"""(count, length) of neighbouring records of equal length: after sorting they stand side by side and share a kernel call."""

SHORTEST_BLOCK = 64
"""Queries that share a call at least, where attention is limited to a window."""


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    runs: Runs,
    scale: float | None = None,
    window: int | None = None,
) -> torch.Tensor:
    """Attention within each record: heads × tokens × width in, tokens × (heads · width) out.

    `scale` defaults to 1 / √width. With a `window` a token sees those less than so many places away, to either side.
    Tokens behind the last record are nobody's, and their rows are zero.
    """
    pieces = []
    start = 0
    for count, length in runs:
        stop = start + count * length
        q, k, v = (_records(tensor, start, stop, count) for tensor in (query, key, value))
        if window is None or length <= window:
            attended = scaled_dot_product_attention(q, k, v, scale=scale)
        else:
            attended = _within(q, k, v, scale, window)
        pieces.append(attended.transpose(1, 2).reshape(stop - start, -1))
        start = stop
    if start < query.shape[1]:
        pieces.append(query.new_zeros((query.shape[1] - start, query.shape[0] * value.shape[2])))
    return torch.cat(pieces)


def _records(tensor: torch.Tensor, start: int, stop: int, count: int) -> torch.Tensor:
    """Tokens start to stop of heads × tokens × width, as records × heads × length × width."""
    heads, _, width = tensor.shape
    return tensor[:, start:stop].reshape(heads, count, -1, width).transpose(0, 1)


def _within(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None, window: int) -> torch.Tensor:
    """Block by block: a block of queries needs the keys of its own places and of a window before and behind.

    Cost: linear in the length, where a mask over the whole record would cost its square in time and memory.
    """
    length = query.shape[2]
    block = max(window, SHORTEST_BLOCK)
    places = torch.arange(length, device=query.device)
    pieces = []
    for start in range(0, length, block):
        asked = slice(start, min(start + block, length))
        seen = slice(max(0, start - window + 1), min(length, start + block + window - 1))
        near = (places[asked, None] - places[None, seen]).abs() < window
        pieces.append(
            scaled_dot_product_attention(query[:, :, asked], key[:, :, seen], value[:, :, seen], attn_mask=near, scale=scale)
        )
    return torch.cat(pieces, dim=2)
