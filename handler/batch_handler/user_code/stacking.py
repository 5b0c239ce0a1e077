"""Inputs of several requests as one, for scripts that say ``BATCHABLE = True``, and the results cut apart again.

An input is a tensor whose first axis counts rows, or an encoding: a mapping of tensors (rows × tokens) that pads with its
attention mask. What does not stack goes through alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

IDS, MASK = "input_ids", "attention_mask"
ROWS_AND_TOKENS = 2
STATES = 3


@dataclass(frozen=True, slots=True)
class Padding:
    """What fills a row's gap: the token, and on which side. The attention mask hides it either way."""

    token: int = 0
    left: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """How an input stacks. Inputs of equal ``group`` do; None is an input that does not. ``length`` counts a row's tokens."""

    group: Hashable
    length: int
    rows: int


def shape(value: Any) -> Shape:
    """What an input may meet."""
    if isinstance(value, torch.Tensor) and value.ndim:
        return Shape(("tensor", value.dtype, value.device, value.shape[1:]), 1, len(value))
    if isinstance(value, Mapping):
        return _encoding(value)
    return ALONE


ALONE = Shape(None, 1, 1)


def together(shapes: Sequence[Shape], token_budget: int) -> list[list[int]]:
    """Which inputs share a call: those of a group, sorted by length and cut where padded tokens exceed the budget."""
    groups: dict[Hashable, list[list[int]]] = {}
    for index in sorted(range(len(shapes)), key=lambda index: shapes[index].length, reverse=True):
        shape_here = shapes[index]
        batches = groups.setdefault((index,) if shape_here.group is None else shape_here.group, [[]])
        rows = sum(shapes[other].rows for other in batches[-1]) + shape_here.rows
        if batches[-1] and shapes[batches[-1][0]].length * rows > token_budget:
            batches.append([])
        batches[-1].append(index)
    return [batch for batches in groups.values() for batch in batches]


def stacked(values: Sequence[Any], padding: Padding) -> Any:
    """Inputs of one group as one input."""
    first = values[0]
    if isinstance(first, torch.Tensor):
        return torch.cat(list(values))
    longest = max(shape(value).length for value in values)
    joined = {name: _joined(name, [value[name] for value in values], first, longest, padding) for name in first}
    return joined if type(first) is dict else _like(first, joined)


def cut(result: Any, rows: Sequence[int], lengths: Sequence[int], padding: Padding) -> list[Any]:
    """One result per input. Raises ValueError for a result whose first axis does not count the rows."""
    total = sum(rows)
    if isinstance(result, torch.Tensor) or hasattr(result, "shape"):
        if not len(result.shape) or len(result) != total:
            raise ValueError(f"the result has the shape {tuple(result.shape)}, and its first axis should count {total} rows")
        return [_trimmed(part, length, max(lengths), padding) for part, length in zip(_parts(result, rows), lengths, strict=True)]
    if isinstance(result, Mapping):
        cuts = {name: cut(member, rows, lengths, padding) for name, member in result.items()}
        return [_like(result, {name: parts[index] for name, parts in cuts.items()}) for index in range(len(rows))]
    if isinstance(result, list) and len(result) == total:
        return _parts(result, rows)
    if isinstance(result, tuple):
        members = [cut(member, rows, lengths, padding) for member in result]
        return [_tuple_like(result, [parts[index] for parts in members]) for index in range(len(rows))]
    raise ValueError(f"a result of type {type(result).__name__} cannot be cut apart into {total} rows")


def _encoding(value: Mapping[str, Any]) -> Shape:
    ids = value.get(IDS)
    if not isinstance(ids, torch.Tensor) or ids.ndim != ROWS_AND_TOKENS:
        return ALONE
    rows, tokens = ids.shape
    kinds: list[Hashable] = []
    for name in sorted(value):
        member = value[name]
        if not isinstance(member, torch.Tensor) or not member.ndim or len(member) != rows:
            return ALONE
        kinds.append((name, member.dtype, member.device, member.ndim, () if _pads(member, tokens) else member.shape[1:]))
    fixed = None if MASK in value else tokens  # without a mask nothing hides padding
    return Shape((type(value), tuple(kinds), fixed), tokens, rows)


def _pads(member: torch.Tensor, tokens: int) -> bool:
    return member.ndim == ROWS_AND_TOKENS and member.shape[1] == tokens


def _joined(name: str, members: Sequence[torch.Tensor], first: Mapping[str, Any], longest: int, padding: Padding) -> torch.Tensor:
    if not _pads(first[name], first[IDS].shape[1]):
        return torch.cat(list(members))
    filler = padding.token if name == IDS else 0

    def padded(member: torch.Tensor) -> torch.Tensor:
        gap = longest - member.shape[1]
        return torch.nn.functional.pad(member, (gap, 0) if padding.left else (0, gap), value=filler)

    return torch.cat([padded(member) for member in members])


def _parts(result: Any, rows: Sequence[int]) -> list[Any]:
    ends = [sum(rows[: index + 1]) for index in range(len(rows))]
    return [result[end - count : end] for end, count in zip(ends, rows, strict=True)]


def _trimmed(part: Any, length: int, longest: int, padding: Padding) -> Any:
    """Rows × tokens × anything loses the padding's tokens, so that it is what the input alone would give."""
    if len(part.shape) != STATES or part.shape[1] != longest or length == longest:
        return part
    return part[:, longest - length :] if padding.left else part[:, :length]


def _like(original: Mapping[str, Any], members: dict[str, Any]) -> Any:
    try:
        return type(original)(members)  # type: ignore[call-arg]
    except (TypeError, ValueError):
        return type(original)(**members)


def _tuple_like(original: tuple[Any, ...], members: list[Any]) -> tuple[Any, ...]:
    return type(original)(*members) if hasattr(original, "_fields") else tuple(members)


def padding_of(model: Any, token: int | None) -> Padding:
    """What the model's own tokenizer or configuration pads with; `token` is the script's word and goes first."""
    holders = list(model.values()) if isinstance(model, dict) else list(model) if isinstance(model, list | tuple) else [model]
    holders += [holder.config for holder in holders if hasattr(holder, "config")]
    named = [found for holder in holders if isinstance(found := getattr(holder, "pad_token_id", None), int)]
    sides = [found for holder in holders if isinstance(found := getattr(holder, "padding_side", None), str)]
    return Padding(token if token is not None else next(iter(named), 0), next(iter(sides), "right") == "left")
