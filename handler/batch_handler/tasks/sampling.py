"""How a generated text is drawn and where it stops, row by row, so that no record depends on its neighbours.

Adding Gumbel noise to logits and taking the largest is a draw from their softmax (Gumbel 1954; Maddison, Tarlow and Minka
2014): each row can have its own generator, which one call for a whole batch cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    MinPLogitsWarper,
    StoppingCriteria,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from batch_handler.tasks.parameters import Parameter, boolean, number, whole

SAMPLING: Mapping[str, Parameter] = {
    "do_sample": boolean(),
    "temperature": number(0.01, 100),
    "top_k": whole(0, 1_000_000),
    "top_p": number(0.000001, 1),
    "min_p": number(0, 1),
}
WARPERS: Mapping[str, tuple[Callable[[Any], LogitsProcessor], float]] = {
    "temperature": (lambda value: TemperatureLogitsWarper(float(value)), 1.0),
    "top_k": (lambda value: TopKLogitsWarper(int(value)), 0),
    "top_p": (lambda value: TopPLogitsWarper(float(value)), 1.0),
    "min_p": (lambda value: MinPLogitsWarper(float(value)), 0.0),
}
"""In the order in which Hugging Face applies them, each with the value that changes nothing."""
STOP_WINDOW = 4


def warpers(sampling: Mapping[str, Any]) -> list[LogitsProcessor]:
    """What shapes the distribution before the draw."""
    return [make(sampling[name]) for name, (make, neutral) in WARPERS.items() if sampling.get(name, neutral) != neutral]


class Draw(LogitsProcessor):
    """Gumbel noise on every row from the row's own seed: rows × vocabulary in and out."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows alone."""
        self._generators = [self._generators[row] for row in rows]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """The largest of the result is a draw from the softmax of the scores."""
        width = scores.shape[-1]
        waits = [torch.empty(width, dtype=torch.float64).exponential_(generator=one) for one in self._generators]
        noise = -torch.stack(waits).clamp_min(1e-300).log()
        return scores.double() + noise.to(scores.device)


def drawing(told: dict[str, Any], seeds: Sequence[int]) -> LogitsProcessorList:
    """Take the sampling parameters out of what `generate` is told; the processors that draw instead, none without do_sample."""
    sampling = {name: told.pop(name) for name in SAMPLING if name in told}
    draws = sampling.pop("do_sample", False)
    return LogitsProcessorList([*warpers(sampling), Draw(seeds)] if draws else [])


class StopAt(StoppingCriteria):
    """Ends a row once its new text holds one of the stops."""

    def __init__(self, stops: Sequence[str], tokenizer: Any, prompt_length: int) -> None:
        self._stops = stops
        self._tokenizer = tokenizer
        self._start = prompt_length
        self._tail = max(len(stop.encode()) for stop in stops) + STOP_WINDOW  # every token but a few is at least one byte

    def __call__(self, input_ids: torch.Tensor, scores: Any, **unused: Any) -> torch.Tensor:
        """Rows that are finished."""
        new = input_ids[:, max(self._start, input_ids.shape[1] - self._tail) :].tolist()
        texts = self._tokenizer.batch_decode(new)
        found = [any(stop in text for stop in self._stops) for text in texts]
        return torch.tensor(found, device=input_ids.device)
