"""text-generation with a decoder-only model: prompts and conversations to continuations, padded on the left.

Source of the parameters' names: Hugging Face's generation and its pipeline of that name. Answers are greedy unless the
request or the artefact's generation_config.json asks for sampling; a sampled text depends on its own seed alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM, LogitsProcessorList, StoppingCriteriaList

from batch_handler.artefact import ArtefactError
from batch_handler.engines.linear import reorder_where_equal
from batch_handler.errors import ServiceError, invalid_record
from batch_handler.formats.options import Layout
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded, generation
from batch_handler.tasks.generation_pieces import Pieces, text
from batch_handler.tasks.generation_prompts import Message, Prompts, answered
from batch_handler.tasks.generation_trial import Company, habits
from batch_handler.tasks.parameters import Parameter, boolean, checked, number, text_or_texts, whole
from batch_handler.tasks.pretrained import load_model, load_tokenizer, longest_input, sample_logits
from batch_handler.tasks.sampling import SAMPLING, StopAt, drawing
from batch_handler.tasks.tokenisation import refuse_truncation

GENERATION: Mapping[str, Parameter] = {
    "num_beams": whole(1, 32),
    "early_stopping": boolean(),
    "length_penalty": number(-10, 10),
    "repetition_penalty": number(0.01, 100),
    "no_repeat_ngram_size": whole(0, 100),
}
CUT_AT, STOPS = "stop", ("stop", "stop_sequence")
"""Both end a text; `stop` is cut off it, `stop_sequence` stays in it, as the pipeline's does."""
HANDLED_HERE = ("truncation", "return_full_text", "seed", "stream", *STOPS)
LOOKS_AT_PROMPT = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0}
"""Rules over all tokens so far, padding among them, with the values that switch them off."""
USUAL_NEW_TOKENS = 256
MOST_NEW_TOKENS = 4_096


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's token ids, what it was made from, and the seed for its own draws."""

    ids: Sequence[int]
    source: str | list[Message]
    seed: int


class TextGeneration:
    """Prompts to texts. Records share a forward pass only with records of the same parameters; seeds may differ."""

    holds = ("value", "text")
    writes = ("json", "json_lines", "csv", "text")
    layout = Layout(columns=lambda result: [_plain(result)], line=lambda result: _plain(result))
    result_keys = ("generated_text",)
    padded = True
    team_tokens = 0
    stepwise = True

    def __init__(self, directory: Path, settings: Settings) -> None:
        self._tokenizer = load_tokenizer(directory, settings)
        self._prompts = Prompts(self._tokenizer)
        self._model = load_model(AutoModelForCausalLM, directory, settings)
        reorder_where_equal(self._model, self._model.get_output_embeddings(), lambda: sample_logits(self._model))
        own = self._model.generation_config
        self._sampling = {name: getattr(own, name, None) for name in SAMPLING}
        self._own_rules = {name: getattr(own, name, None) for name in LOOKS_AT_PROMPT}
        usual: Any = type(own)()
        for name in (*SAMPLING, "num_return_sequences"):
            setattr(own, name, getattr(usual, name))
        self._ends = _ends(own, self._tokenizer)
        self._pad = _pad(own, self._tokenizer, self._ends)
        self._limit = longest_input(directory, self._tokenizer, settings)
        most = max(1, min(self._limit - 1, MOST_NEW_TOKENS))
        self._usual = min(own.max_new_tokens or USUAL_NEW_TOKENS, max(1, self._limit // 2))
        self._own_beams = own.num_beams or 1
        self._truncation = settings.truncation
        self._parameters: Mapping[str, Parameter] = {
            **GENERATION,
            **SAMPLING,
            "seed": whole(0, 2**63 - 1),
            "max_new_tokens": whole(1, most),
            "min_new_tokens": whole(0, most),
            "return_full_text": boolean(),
            "stream": boolean(),
            "truncation": boolean(),
            **dict.fromkeys(STOPS, text_or_texts(16)),
        }
        self._habits = habits(self._tried, self._model.config.get_text_config().vocab_size, self._limit)

    @property
    def description(self) -> str:
        """Length, which prompts share a forward pass, and whether ended texts leave it."""
        leaving = "dropped" if self._habits.compact else "kept"
        return f"engine=generate max_tokens={self._limit} together={self._habits.company.value} ended={leaving}"

    def encode(self, records: Sequence[Record]) -> list[Encoded | ServiceError]:
        """Check, apply the chat template, and tokenise."""
        return [self._encoded(record) for record in records]

    def _encoded(self, record: Record) -> Encoded | ServiceError:
        try:
            parameters = checked(record.parameters, self._parameters)
            told = self._told(parameters)
            self._refuse_stream(parameters)
            ids, unread = self._prompts.ids(record.inputs)
            room = self._limit - told["max_new_tokens"]
            truncated = unread or len(ids) > room
            refuse_truncation(parameters, self._truncation, truncated, room)
        except ServiceError as error:
            return error
        kept = ids[-room:]
        group = (_frozen(told), _stops(parameters, *STOPS), self._kept_apart(told, len(kept)))
        prompt = Prompt(kept, record.inputs, parameters.get("seed", secrets.randbits(63)))
        return Encoded(prompt, len(kept), truncated, group, parameters)

    def _refuse_stream(self, parameters: Mapping[str, Any]) -> None:
        """Raise ServiceError (400) for what cannot be told before the text is complete, or is known already."""
        if not parameters.get("stream"):
            return
        if parameters.get("num_beams", self._own_beams) > 1:
            raise invalid_record("'stream' and 'num_beams' do not go together: which beam wins is known at the end")
        if parameters.get("return_full_text"):
            raise invalid_record("'stream' and 'return_full_text' do not go together: only new text is streamed")

    def _kept_apart(self, told: Mapping[str, Any], length: int) -> Hashable:
        """What must be equal beside the parameters: nothing, the length, or a number that no other record has."""
        if self._habits.company is Company.NONE:
            return secrets.token_bytes(16)
        sees_padding = any(told.get(rule) not in (None, off) for rule, off in LOOKS_AT_PROMPT.items())
        return length if sees_padding or self._habits.company is Company.EQUAL else None

    def _told(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """What `generate` and the warpers are told. Raises ServiceError (400) for what does not go together."""
        told = {name: value for name, value in self._own_rules.items() if value is not None}
        told |= {"max_new_tokens": self._usual}
        told |= {key: value for key, value in parameters.items() if key not in HANDLED_HERE}
        if not told.setdefault("do_sample", bool(self._sampling["do_sample"])):
            return told
        if parameters.get("num_beams", 1) > 1:
            raise invalid_record("'num_beams' and 'do_sample' do not go together: send one of them")
        return {**{name: value for name, value in self._sampling.items() if value is not None}, **told, "num_beams": 1}

    def run(self, records: Sequence[Encoded]) -> Sequence[Sequence[int]]:
        """Generate for one micro-batch: the new token ids of each record, without what follows its end."""
        told, processors, criteria, longest = self._plan(records)
        prompts = [record.model_input.ids for record in records]
        if generation.one_path(self._model, told):
            return generation.rows(self._steps(prompts, processors, criteria, told, self._habits.compact), len(records))
        with torch.inference_mode():
            produced = self._model.generate(
                **self._padded(prompts),
                do_sample=False,
                logits_processor=processors,
                stopping_criteria=criteria,
                pad_token_id=self._pad,
                **told,
            )
        return [self._until_end(row[longest:]) for row in produced.tolist()]

    def stream(self, record: Encoded) -> Iterator[str]:
        """The new text of one record in pieces, each as soon as no later token can change it; together they are the text
        that `run` and `decode` give.

        Each piece is computed when it is asked for, in the thread that asks: closing the iterator stops the work. Safe to
        use beside `run` and other streams. Raises what the model raises.
        """
        told, processors, criteria, _ = self._plan([record])
        pieces = Pieces(self._tokenizer, _stops(record.options, CUT_AT))
        for step in self._steps([record.model_input.ids], processors, criteria, told, compact=False):
            for token in step.values():
                if piece := pieces.add(token):
                    yield piece
        if piece := pieces.rest():
            yield piece

    def _plan(self, records: Sequence[Encoded]) -> tuple[dict[str, Any], LogitsProcessorList, StoppingCriteriaList, int]:
        """What `generate` is told, the rules and criteria beside it, and the prompts' length with padding."""
        frozen, stops, _ = cast(tuple[Iterable[tuple[str, Any]], Sequence[str], Hashable], records[0].group)
        told = dict(frozen)
        longest = max(record.length for record in records)
        processors = drawing(told, [record.model_input.seed for record in records])
        criteria = StoppingCriteriaList([StopAt(stops, self._tokenizer, longest)] if stops else [])
        return told, processors, criteria, longest

    def _steps(
        self,
        prompts: Sequence[Sequence[int]],
        processors: LogitsProcessorList,
        criteria: StoppingCriteriaList,
        told: Mapping[str, Any],
        compact: bool,
    ) -> Iterator[generation.Step]:
        told = {**told, "pad_token_id": self._pad}
        return generation.steps(self._model, self._padded(prompts), processors, criteria, told, compact)

    def _tried(
        self,
        prompts: Sequence[Sequence[int]],
        processors: LogitsProcessorList,
        criteria: StoppingCriteriaList,
        count: int,
        compact: bool,
    ) -> Iterator[generation.Step]:
        told = {"max_new_tokens": count, "min_new_tokens": count, "num_beams": 1}
        return self._steps(prompts, processors, criteria, told, compact)

    def _padded(self, prompts: Sequence[Sequence[int]]) -> Mapping[str, torch.Tensor]:
        """Rows × tokens, the padding on the left, where no new token follows it."""
        longest = max(map(len, prompts))
        device = self._model.device
        ids = [[self._pad] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        return {"input_ids": torch.tensor(ids, device=device), "attention_mask": torch.tensor(mask, device=device)}

    def _until_end(self, ids: list[int]) -> list[int]:
        end = next((place + 1 for place, token in enumerate(ids) if token in self._ends), len(ids))
        kept = ids[:end]
        while kept and kept[-1] == self._pad and self._pad not in self._ends:
            kept.pop()
        return kept

    def decode(self, output: Sequence[int], record: Encoded) -> dict[str, Any]:
        """The text behind its prompt, or alone with ``return_full_text`` false; a conversation with the answer added."""
        new = text(self._tokenizer, output, _stops(record.options, CUT_AT))
        alone = not record.options.get("return_full_text", not record.options.get("stream"))
        return {"generated_text": new if alone else answered(record.model_input.source, new)}

    def samples(self) -> Sequence[Record]:
        """Short texts and few new tokens."""
        return [Record("warm " * words, 1, {"max_new_tokens": 2}) for words in (1, 8)]


def load(directory: Path, settings: Settings, name: str) -> TextGeneration:
    """The task for any decoder-only model. Raises ArtefactError when no token can stand for padding."""
    return TextGeneration(directory, settings)


def _ends(own: Any, tokenizer: Any) -> set[int]:
    ends = own.eos_token_id if own.eos_token_id is not None else tokenizer.eos_token_id
    return set(ends if isinstance(ends, list) else [] if ends is None else [ends])


def _pad(own: Any, tokenizer: Any, ends: set[int]) -> int:
    """The padding token; models trained without one pad with the end of text, as Hugging Face's `generate` does."""
    named = (tokenizer.pad_token_id, own.pad_token_id, *sorted(ends))
    found = next((token for token in named if token is not None), None)
    if found is None:
        raise ArtefactError("the tokenizer has neither a padding nor an end token: set pad_token in tokenizer_config.json")
    return int(found)


def _stops(parameters: Mapping[str, Any], *names: str) -> tuple[str, ...]:
    named = [parameters.get(name, []) for name in names]
    return tuple(stop for value in named for stop in ([value] if isinstance(value, str) else value) if stop)


def _frozen(told: Mapping[str, Any]) -> Hashable:
    return tuple(sorted(told.items()))


def _plain(result: Mapping[str, Any]) -> str:
    answer = result["generated_text"]
    return str(answer if isinstance(answer, str) else answer[-1]["content"])
