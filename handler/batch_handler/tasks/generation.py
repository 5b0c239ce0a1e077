"""The decoding loop of both generating tasks: one token per row and step, and a row that has ended leaves the batch.

Caches, encoder outputs and rules are prepared by Hugging Face's `generate`, which runs this loop in the place of its own;
beam search and the rarer ways of decoding stay with it.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import transformers
from packaging.version import Version
from transformers import Cache, GenerationMixin, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList
from transformers.generation.configuration_utils import GenerationMode
from transformers.utils.generic import ModelOutput

Step = Mapping[int, int]
"""Row of the batch → its new token, for the rows that had not ended before."""
Inputs = Mapping[str, torch.Tensor]

ONE_PATH = (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE)
ROW_BOUND = ("EncoderNoRepeatNGram", "EncoderRepetitionPenalty", "UnbatchedClassifierFreeGuidance")
"""Beginnings of the names of rules that remember each row of the first batch, so that no row may leave it."""
_TELLS_LENGTH = "next_sequence_length" in inspect.signature(GenerationMixin.prepare_inputs_for_generation).parameters
"""Whether the loop says how many tokens are new (transformers 5), or keeps their positions itself (4)."""
_TAKES_LOOP = Version(transformers.__version__) >= Version("4.56")
"""Whether `generate` takes a loop as ``custom_generate``, or only runs what stands in the place of its own."""


def one_path(model: Any, told: Mapping[str, Any]) -> bool:
    """Whether every row follows one path, so that `steps` decodes it: neither beams nor what needs a second model."""
    generation = copy.copy(model.generation_config)
    generation.update(**told)
    mode: GenerationMode = generation.get_generation_mode()
    return mode in ONE_PATH and (generation.num_return_sequences or 1) == 1


def steps(
    model: Any,
    inputs: Inputs,
    processors: LogitsProcessorList,
    criteria: StoppingCriteriaList,
    told: Mapping[str, Any],
    compact: bool = True,
) -> Iterator[Step]:
    """Decode token by token, the likeliest or, with a `Draw` among the processors, the drawn one.

    `inputs` are rows × tokens. With `compact` ended rows are dropped and their share of the caches freed. A step is
    computed when it is asked for; closing the iterator stops the work. Safe to use from several threads at once.
    """
    if _TAKES_LOOP:
        told = {**told, "custom_generate": _decoded}
    else:
        model._sample = partial(_decoded, model)  # noqa: SLF001 - what `generate` of these versions calls
    with torch.inference_mode():
        made: Iterator[Step] = model.generate(
            **inputs,
            do_sample=False,  # drawing is a processor's work: rows then draw each from its own seed
            logits_processor=processors,
            stopping_criteria=criteria if compact else StoppingCriteriaList([*criteria, _EveryRowStays()]),
            **told,
        )
    return made


def rows(found: Iterator[Step], count: int) -> list[list[int]]:
    """All steps, as the new tokens of each row."""
    tokens: list[list[int]] = [[] for _ in range(count)]
    for step in found:
        for row, token in step.items():
            tokens[row].append(token)
    return tokens


def _decoded(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: Any,
    synced_gpus: bool = False,
    streamer: Any = None,
    **state: Any,
) -> Iterator[Step]:
    """What `generate` calls once all is prepared; ``state`` is what it hands from one forward pass to the next."""
    rules: Any = logits_processor
    here = list(range(len(input_ids)))
    ended: set[int] = set()
    compact = not any(isinstance(criterion, _EveryRowStays) for criterion in stopping_criteria)
    compact = compact and not any(type(rule).__name__.startswith(ROW_BOUND) for rule in rules)
    state = _placed(input_ids, state)
    first = True
    while len(ended) < len(here):
        # Entered anew for each step: the mode is the thread's, and whoever asks for the next step has its own.
        with torch.inference_mode():
            outputs = model(**_model_inputs(model, input_ids, state, first), return_dict=True)
            state = model._update_model_kwargs_for_generation(  # noqa: SLF001 - what `custom_generate` functions are meant to call
                outputs, state, is_encoder_decoder=model.config.is_encoder_decoder
            )
            scores = rules(input_ids, outputs.logits[:, -1].to(copy=True, dtype=torch.float32))
            del outputs  # the first pass's logits may be large
            tokens = scores.argmax(-1)
            input_ids = torch.cat([input_ids, tokens[:, None]], dim=-1)
            over = stopping_criteria(input_ids, scores).tolist()
        step = {row: token for row, token in zip(here, tokens.tolist(), strict=True) if row not in ended}
        ended.update(row for row, is_over in zip(here, over, strict=True) if is_over)
        first = False
        yield step
        kept = [place for place, row in enumerate(here) if row not in ended]
        if compact and 0 < len(kept) < len(here) and _can_shrink(state):
            with torch.inference_mode():
                input_ids, state = _kept(input_ids, state, kept)
            for rule in rules:
                if hasattr(rule, "keep"):
                    rule.keep(kept)
            here = [here[place] for place in kept]
            ended.clear()


class _EveryRowStays(StoppingCriteria):
    """Ends nothing; among the criteria it says that no row may leave."""

    def __call__(self, input_ids: torch.Tensor, scores: Any, **unused: Any) -> torch.Tensor:
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


def _placed(input_ids: torch.Tensor, state: dict[str, Any]) -> dict[str, Any]:
    """The state with the places of the prompt's tokens, where the loop keeps them: the cache is still empty."""
    if _TELLS_LENGTH:
        return state
    return {**state, "cache_position": torch.arange(input_ids.shape[1], device=input_ids.device)}


def _model_inputs(model: Any, input_ids: torch.Tensor, state: Mapping[str, Any], first: bool) -> Mapping[str, Any]:
    if not _TELLS_LENGTH:
        inputs: Mapping[str, Any] = model.prepare_inputs_for_generation(input_ids, **state)
    elif first:
        inputs = model.prepare_inputs_for_generation(input_ids, is_first_iteration=True, **state)
    else:
        new = 1 if state.get("use_cache") else None
        inputs = model.prepare_inputs_for_generation(input_ids, next_sequence_length=new, **state)
    return inputs


def _can_shrink(state: Mapping[str, Any]) -> bool:
    """Whether all that the model remembers is of kinds whose rows can be told apart."""
    return all(map(_has_rows, state.values()))


def _has_rows(value: Any) -> bool:
    if isinstance(value, tuple):  # caches of transformers 4
        return all(map(_has_rows, value))
    return value is None or isinstance(value, bool | int | torch.Tensor | Cache | ModelOutput)


def _kept(input_ids: torch.Tensor, state: Mapping[str, Any], places: Sequence[int]) -> tuple[torch.Tensor, dict[str, Any]]:
    """Token ids and state of these rows alone."""
    index = torch.tensor(places, device=input_ids.device)
    return input_ids[index], {name: _of_rows(value, index, len(input_ids)) for name, value in state.items()}


def _of_rows(value: Any, index: Any, count: int) -> Any:
    if isinstance(value, torch.Tensor):
        return value[index] if value.ndim > 1 and len(value) == count else value
    if isinstance(value, Cache):
        value.reorder_cache(index)
        return value
    if isinstance(value, tuple):
        return tuple(_of_rows(member, index, count) for member in value)
    if isinstance(value, ModelOutput):
        return type(value)(**{name: _of_rows(member, index, count) for name, member in value.items()})
    return value
