"""text-generation with a decoder-only model: prompts and conversations to continuations, padded on the left.

Source of the parameters' names: Hugging Face's generation and its pipeline of that name. Answers are greedy unless the
request or the artefact's generation_config.json asks for sampling; a sampled text depends on its own seed alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM, LogitsProcessorList, StoppingCriteriaList

from batch_handler.artefact import ArtefactError
from batch_handler.errors import ServiceError, invalid_record, quote
from batch_handler.formats.options import Layout
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded
from batch_handler.tasks.parameters import Parameter, boolean, checked, number, text_or_texts, whole
from batch_handler.tasks.pretrained import load_model, load_tokenizer, longest_input
from batch_handler.tasks.sampling import SAMPLING, StopAt, drawing
from batch_handler.tasks.tokenisation import refuse_truncation

GENERATION: Mapping[str, Parameter] = {
    "num_beams": whole(1, 32),
    "early_stopping": boolean(),
    "length_penalty": number(-10, 10),
    "repetition_penalty": number(0.01, 100),
    "no_repeat_ngram_size": whole(0, 100),
}
STOPS = ("stop", "stop_sequence")
HANDLED_HERE = ("truncation", "return_full_text", "seed", *STOPS)
LOOKS_AT_PROMPT = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0}
"""Rules over all tokens so far, padding among them, with the values that switch them off."""
USUAL_NEW_TOKENS = 256
MOST_NEW_TOKENS = 4_096
AGREEMENT = 1e-4
Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's token ids, what it was made from, and the seed for its own draws."""

    ids: Sequence[int]
    source: str | list[Message]
    seed: int


class Company(Enum):
    """Which prompts may share a forward pass with a prompt of the same parameters."""

    ANY = "any-lengths"
    EQUAL = "equal-lengths"
    NONE = "none"


class TextGeneration:
    """Prompts to texts. Records share a forward pass only with records of the same parameters; seeds may differ."""

    holds = ("value", "text")
    writes = ("json", "json_lines", "csv", "text")
    layout = Layout(columns=lambda result: [_plain(result)], line=lambda result: _plain(result))
    result_keys = ("generated_text",)
    padded = True

    def __init__(self, directory: Path, settings: Settings) -> None:
        self._tokenizer = load_tokenizer(directory, settings)
        self._model = load_model(AutoModelForCausalLM, directory, settings)
        generation = self._model.generation_config
        self._sampling = {name: getattr(generation, name, None) for name in SAMPLING}
        self._own_rules = {name: getattr(generation, name, None) for name in LOOKS_AT_PROMPT}
        for name in (*SAMPLING, "num_return_sequences"):
            setattr(generation, name, None)
        self._ends = _ends(generation, self._tokenizer)
        self._pad = _pad(generation, self._tokenizer, self._ends)
        self._limit = longest_input(directory, self._tokenizer, settings)
        most = max(1, min(self._limit - 1, MOST_NEW_TOKENS))
        self._usual = min(generation.max_new_tokens or USUAL_NEW_TOKENS, max(1, self._limit // 2))
        self._truncation = settings.truncation
        self._parameters: Mapping[str, Parameter] = {
            **GENERATION,
            **SAMPLING,
            "seed": whole(0, 2**63 - 1),
            "max_new_tokens": whole(1, most),
            "min_new_tokens": whole(0, most),
            "return_full_text": boolean(),
            "truncation": boolean(),
            **dict.fromkeys(STOPS, text_or_texts(16)),
        }
        self._company = self._tried_company()

    @property
    def description(self) -> str:
        """Length, and which prompts share a forward pass."""
        return f"engine=generate max_tokens={self._limit} together={self._company.value}"

    def encode(self, records: Sequence[Record]) -> list[Encoded | ServiceError]:
        """Check, apply the chat template, and tokenise."""
        return [self._encoded(record) for record in records]

    def _encoded(self, record: Record) -> Encoded | ServiceError:
        try:
            parameters = checked(record.parameters, self._parameters)
            told = self._told(parameters)
            ids = self._ids(record.inputs)
            room = self._limit - told["max_new_tokens"]
            refuse_truncation(parameters, self._truncation, len(ids) > room, room)
        except ServiceError as error:
            return error
        kept = ids[-room:]
        group = (_frozen(told), _stops(parameters), self._kept_apart(told, len(kept)))
        prompt = Prompt(kept, record.inputs, parameters.get("seed", secrets.randbits(63)))
        return Encoded(prompt, len(kept), len(ids) > room, group, parameters)

    def _kept_apart(self, told: Mapping[str, Any], length: int) -> Hashable:
        """What must be equal beside the parameters: nothing, the length, or a number that no other record has."""
        if self._company is Company.NONE:
            return secrets.token_bytes(16)
        sees_padding = any(told.get(rule) not in (None, off) for rule, off in LOOKS_AT_PROMPT.items())
        return length if sees_padding or self._company is Company.EQUAL else None

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

    def _ids(self, inputs: Any) -> list[int]:
        """Token ids of a text or of a conversation. Raises ServiceError (400) for anything else, and where there are none."""
        if isinstance(inputs, str):
            ids = self._tokenizer(inputs, truncation=False, verbose=False)["input_ids"]
        elif _is_chat(inputs):
            ids = self._chat(inputs)
        else:
            raise invalid_record(f"'inputs' must be a text, or a list of messages with 'role' and 'content', not {quote(inputs)}")
        if not ids and self._tokenizer.bos_token_id is not None:
            ids = [self._tokenizer.bos_token_id]
        if not ids:
            raise invalid_record("the text holds no token that this model knows: send some text")
        return list(ids)

    def _chat(self, messages: list[Message]) -> list[int]:
        if not self._tokenizer.chat_template:
            raise invalid_record("this model's tokenizer has no chat template: send a text")
        unfinished = messages[-1]["role"] == "assistant"
        try:
            ids: list[int] = self._tokenizer.apply_chat_template(
                messages, add_generation_prompt=not unfinished, continue_final_message=unfinished, return_dict=True
            )["input_ids"]
        except Exception as error:  # noqa: BLE001 - a template may raise what it likes about the messages
            raise invalid_record(f"the model's chat template refuses these messages: {error}") from None
        return ids

    def run(self, records: Sequence[Encoded]) -> Sequence[Sequence[int]]:
        """Generate for one micro-batch: the new token ids of each record, without what follows its end."""
        frozen, stops, _ = cast(tuple[Iterable[tuple[str, Any]], Sequence[str], Hashable], records[0].group)
        told = dict(frozen)
        processors = drawing(told, [record.model_input.seed for record in records])
        longest = max(record.length for record in records)
        criteria = StoppingCriteriaList([StopAt(stops, self._tokenizer, longest)] if stops else [])
        produced = self._generate([record.model_input.ids for record in records], processors, criteria, **told)
        return [self._until_end(row[longest:]) for row in produced.tolist()]

    def _generate(
        self, prompts: Sequence[Sequence[int]], processors: LogitsProcessorList, criteria: StoppingCriteriaList, **told: Any
    ) -> Any:
        longest = max(map(len, prompts))
        device = self._model.device
        ids = torch.tensor([[self._pad] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=device)
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device)
        with torch.inference_mode():
            return self._model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=False,  # drawing is a processor's work: rows then draw each from its own seed
                logits_processor=processors,
                stopping_criteria=criteria,
                pad_token_id=self._pad,
                **told,
            )

    def _until_end(self, ids: list[int]) -> list[int]:
        end = next((place + 1 for place, token in enumerate(ids) if token in self._ends), len(ids))
        kept = ids[:end]
        while kept and kept[-1] == self._pad and self._pad not in self._ends:
            kept.pop()
        return kept

    def decode(self, output: Sequence[int], record: Encoded) -> dict[str, Any]:
        """The text behind its prompt, or alone with ``return_full_text`` false; a conversation with the answer added."""
        text: str = self._tokenizer.decode(list(output), skip_special_tokens=True)
        source = record.model_input.source
        if not record.options.get("return_full_text", True):
            return {"generated_text": text}
        if isinstance(source, str):
            return {"generated_text": source + text}
        if source[-1]["role"] == "assistant":
            return {"generated_text": [*source[:-1], {"role": "assistant", "content": source[-1]["content"] + text}]}
        return {"generated_text": [*source, {"role": "assistant", "content": text}]}

    def _tried_company(self) -> Company:
        """Tried out on the model's own weights: not every architecture pads exactly, or keeps the rows of a batch apart."""
        width = max(2, min(9, self._limit - 3))
        vocabulary = self._model.config.get_text_config().vocab_size
        long, short, other = (
            [(step * place + 3) % vocabulary for place in range(length)]
            for step, length in ((7, width), (7, width // 2), (11, width // 2))
        )
        alone = self._last_scores([short])
        for company, neighbour in ((Company.ANY, long), (Company.EQUAL, other)):
            if (self._last_scores([neighbour, short]) - alone).abs().max() <= AGREEMENT * max(1.0, float(alone.abs().max())):
                return company
        return Company.NONE

    def _last_scores(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Logits of the last prompt's third token: by then the model has used what it remembers of the first ones."""
        told = {"max_new_tokens": 3, "min_new_tokens": 3, "num_beams": 1, "return_dict_in_generate": True, "output_logits": True}
        logits: torch.Tensor = self._generate(prompts, LogitsProcessorList(), StoppingCriteriaList(), **told).logits[-1][-1]
        return logits

    def samples(self) -> Sequence[Record]:
        """Short texts and few new tokens."""
        return [Record("warm " * words, 1, {"max_new_tokens": 2}) for words in (1, 8)]


def load(directory: Path, settings: Settings, name: str) -> TextGeneration:
    """The task for any decoder-only model. Raises ArtefactError when no token can stand for padding."""
    return TextGeneration(directory, settings)


def _ends(generation: Any, tokenizer: Any) -> set[int]:
    ends = generation.eos_token_id if generation.eos_token_id is not None else tokenizer.eos_token_id
    return set(ends if isinstance(ends, list) else [] if ends is None else [ends])


def _pad(generation: Any, tokenizer: Any, ends: set[int]) -> int:
    """The padding token; models trained without one pad with the end of text, as Hugging Face's `generate` does."""
    named = (tokenizer.pad_token_id, generation.pad_token_id, *sorted(ends))
    found = next((token for token in named if token is not None), None)
    if found is None:
        raise ArtefactError("the tokenizer has neither a padding nor an end token: set pad_token in tokenizer_config.json")
    return int(found)


def _is_chat(inputs: Any) -> bool:
    return (
        isinstance(inputs, list)
        and bool(inputs)
        and all(
            isinstance(message, dict) and isinstance(message.get("role"), str) and isinstance(message.get("content"), str)
            for message in inputs
        )
    )


def _stops(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    named = [parameters.get(name, []) for name in STOPS]
    return tuple(stop for value in named for stop in ([value] if isinstance(value, str) else value) if stop)


def _frozen(told: Mapping[str, Any]) -> Hashable:
    return tuple(sorted(told.items()))


def _plain(result: Mapping[str, Any]) -> str:
    text = result["generated_text"]
    return str(text if isinstance(text, str) else text[-1]["content"])
