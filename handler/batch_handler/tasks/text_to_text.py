"""translation, summarization and text2text-generation with a sequence-to-sequence model: beams or one path, in padded batches.

Source of the parameters' names and of the language handling: Hugging Face's generation and (version 4) translation pipeline.
"""

from __future__ import annotations

import secrets
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from transformers import AutoModelForSeq2SeqLM, StoppingCriteriaList

from batch_handler.artefact import ArtefactError
from batch_handler.engines.linear import reorder_where_equal
from batch_handler.errors import ServiceError, invalid_record, quote
from batch_handler.formats.options import Layout
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded, generation
from batch_handler.tasks.parameters import Parameter, boolean, checked, number, text, whole
from batch_handler.tasks.pretrained import load_model, load_tokenizer, longest_input, sample_logits
from batch_handler.tasks.sampling import SAMPLING, drawing
from batch_handler.tasks.tokenisation import readable, refuse_truncation, single_text

RESULT_KEYS = {"translation": "translation_text", "summarization": "summary_text"}
GENERATION: Mapping[str, Parameter] = {
    "num_beams": whole(1, 32),
    "early_stopping": boolean(),
    "length_penalty": number(-10, 10),
    "repetition_penalty": number(0.01, 100),
    "no_repeat_ngram_size": whole(0, 100),
    **SAMPLING,
}
LANGUAGES: Mapping[str, Parameter] = {"src_lang": text(), "tgt_lang": text()}
HANDLED_HERE = ("truncation", "src_lang", "tgt_lang", "seed")
DEFAULT_NEW_TOKENS = 256


class TextToText:
    """Texts to texts. Records share a forward pass only with records of the same parameters."""

    holds = ("value", "text")
    writes = ("json", "json_lines", "csv", "text")
    padded = True
    team_tokens = 0
    stepwise = True

    def __init__(self, directory: Path, settings: Settings, name: str) -> None:
        self._tokenizer = load_tokenizer(directory, settings)
        if self._tokenizer.pad_token_id is None:
            raise ArtefactError("the tokenizer has no padding token: set pad_token in tokenizer_config.json")
        self._model = load_model(AutoModelForSeq2SeqLM, directory, settings)
        reorder_where_equal(self._model, self._model.get_output_embeddings(), lambda: sample_logits(self._model))
        own = {name: getattr(self._model.generation_config, name, None) for name in SAMPLING}
        self._own_sampling = {name: value for name, value in own.items() if value is not None}
        self._limit = longest_input(directory, self._tokenizer, settings)
        self._truncation = settings.truncation
        self._key = RESULT_KEYS.get(name.partition("_")[0], "generated_text")
        self.result_keys = (self._key,)
        self.layout = Layout(columns=lambda result: [result[self._key]], line=lambda result: str(result[self._key]))
        defaults = (
            (self._model.config.task_specific_params or {}).get(name, {})
            if hasattr(self._model.config, "task_specific_params")
            else {}
        )
        self._prefix = str(defaults.get("prefix", ""))
        self._defaults = {key: value for key, value in defaults.items() if key in GENERATION}
        self._languages = _languages(self._tokenizer)
        self._own_language = self._tokenizer.src_lang if self._languages else None
        most = min(self._limit, 1_024) if self._limit else 1_024
        self._parameters = {
            **GENERATION,
            **(LANGUAGES if self._languages else {}),
            "max_new_tokens": whole(1, most),
            "min_new_tokens": whole(0, most),
            "seed": whole(0, 2**63 - 1),
            "truncation": boolean(),
        }
        self._most = most

    @property
    def description(self) -> str:
        """Length and languages."""
        return f"engine=generate max_tokens={self._limit} languages={len(self._languages) or 'fixed'}"

    def encode(self, records: Sequence[Record]) -> list[Encoded | ServiceError]:
        """Check, prefix and tokenise."""
        return [self._encoded(record) for record in records]

    def _encoded(self, record: Record) -> Encoded | ServiceError:
        try:
            parameters = checked(record.parameters, self._parameters)
            group = self._group(parameters)
            source = self._prefix + single_text(record)
            if self._languages:
                self._tokenizer.src_lang = parameters.get("src_lang", self._own_language)
            read = readable(source, self._tokenizer.truncation_side == "left")
            ids = self._tokenizer(read, truncation=False, verbose=False)["input_ids"]
            truncated = len(read) < len(source) or len(ids) > self._limit
            refuse_truncation(parameters, self._truncation, truncated, self._limit)
            if len(ids) > self._limit:
                ids = self._tokenizer(read, truncation=True, max_length=self._limit)["input_ids"]
        except ServiceError as error:
            return error
        return Encoded(ids, len(ids), truncated, group, parameters)

    def _group(self, parameters: Mapping[str, Any]) -> Hashable:
        """All that `generate` is told, so that only like records meet; languages are checked here."""
        for name in LANGUAGES:
            if name in parameters and parameters[name] not in self._languages:
                known = ", ".join(sorted(self._languages)[:8])
                raise invalid_record(f"the language {quote(parameters[name])} in '{name}' is unknown: this model has {known}, …")
        if ("src_lang" in parameters) != ("tgt_lang" in parameters):
            raise invalid_record("'src_lang' and 'tgt_lang' go together: send both or neither")
        told = {**self._defaults, **{key: value for key, value in parameters.items() if key not in HANDLED_HERE}}
        if told.setdefault("do_sample", bool(self._model.generation_config.do_sample)) and told.get("num_beams", 1) > 1:
            raise invalid_record("'num_beams' and 'do_sample' do not go together: send one of them")
        if told["do_sample"]:
            told = {**self._own_sampling, **told, "num_beams": 1}
        if parameters.get("tgt_lang"):
            told["forced_bos_token_id"] = self._languages[parameters["tgt_lang"]]
        return tuple(sorted(told.items()))

    def run(self, records: Sequence[Encoded]) -> Sequence[str]:
        """Generate for one micro-batch: padded to its longest record."""
        longest = max(record.length for record in records)
        pad = self._tokenizer.pad_token_id
        left = self._tokenizer.padding_side == "left"

        def padded(ids: Sequence[int], filler: int) -> list[int]:
            gap = [filler] * (longest - len(ids))
            return [*gap, *ids] if left else [*ids, *gap]

        device = self._model.device
        inputs = torch.tensor([padded(record.model_input, pad) for record in records], device=device)
        mask = torch.tensor([padded([1] * record.length, 0) for record in records], device=device)
        told = dict(cast(Iterable[tuple[str, Any]], records[0].group))
        if "max_new_tokens" not in told and not self._bounded():
            told["max_new_tokens"] = min(self._most, DEFAULT_NEW_TOKENS)
        processors = drawing(told, [record.options.get("seed", secrets.randbits(63)) for record in records])
        batch = {"input_ids": inputs, "attention_mask": mask}
        if generation.one_path(self._model, told):
            found = generation.steps(self._model, batch, processors, StoppingCriteriaList(), told)
            produced: Any = generation.rows(found, len(records))
        else:
            with torch.inference_mode():
                produced = self._model.generate(**batch, do_sample=False, logits_processor=processors, **told)
        texts: list[str] = self._tokenizer.batch_decode(produced, skip_special_tokens=True)
        return texts

    def _bounded(self) -> bool:
        """Whether the artefact's own generation settings say when to stop."""
        generation = self._model.generation_config
        return bool(generation.max_new_tokens) or bool(generation.max_length and generation.max_length != 20)

    def decode(self, output: str, record: Encoded) -> dict[str, str]:
        """The text under the task's key."""
        return {self._key: output}

    def samples(self) -> Sequence[Record]:
        """Short texts and few new tokens."""
        return [Record("warm " * words, 1, {"max_new_tokens": 2}) for words in (1, 8)]


def load(directory: Path, settings: Settings, name: str) -> TextToText:
    """The task for any model that `AutoModelForSeq2SeqLM` loads. Raises ArtefactError without a padding token."""
    return TextToText(directory, settings, name)


def _languages(tokenizer: Any) -> dict[str, int]:
    """Language code → the token that starts a text in it; empty for tokenisers of one pair of languages."""
    if hasattr(tokenizer, "lang_code_to_token"):
        return {code: int(tokenizer.get_lang_id(code)) for code in tokenizer.lang_code_to_token}
    if not hasattr(tokenizer, "src_lang"):
        return {}
    usual = {tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token, tokenizer.unk_token, tokenizer.mask_token}
    codes = set(tokenizer.all_special_tokens) - usual
    return {code: int(tokenizer.convert_tokens_to_ids(code)) for code in codes}
