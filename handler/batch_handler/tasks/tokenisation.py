"""Texts and pairs of texts to tokens, in one call for a whole batch; text over the model's length is cut and counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from batch_handler.engines import Tokens
from batch_handler.errors import invalid_record, quote
from batch_handler.request import Record

Text = str | tuple[str, str]


class Tokeniser:
    """A tokeniser with a fixed limit. Not for use by several threads at once."""

    def __init__(self, tokenizer: Any, limit: int) -> None:
        self._tokenizer = tokenizer
        self.limit = limit
        self._gives_types = "token_type_ids" in tokenizer.model_input_names
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        if self._backend is not None:
            self._backend.enable_truncation(limit, direction=tokenizer.truncation_side)
            self._backend.no_padding()

    def __call__(self, texts: Sequence[Text]) -> list[tuple[Tokens, bool]]:
        """Tokens of every text, and whether it had to be cut."""
        if self._backend is None:
            return [self._slow(text) for text in texts]
        encodings = self._backend.encode_batch_fast(list(texts))
        return [(Tokens(encoding.ids, self._types(encoding)), bool(encoding.overflowing)) for encoding in encodings]

    def _types(self, encoding: Any) -> Sequence[int]:
        """Which text each token is of, for models that were trained to be told; RoBERTa's kin know the one type 0."""
        types: Sequence[int] = encoding.type_ids if self._gives_types else [0] * len(encoding.ids)
        return types

    def _slow(self, text: Text) -> tuple[Tokens, bool]:
        pair = text if isinstance(text, tuple) else (text,)
        whole = self._tokenizer(*pair, truncation=False, verbose=False)
        truncated = len(whole["input_ids"]) > self.limit
        kept = self._tokenizer(*pair, truncation=True, max_length=self.limit) if truncated else whole
        ids = kept["input_ids"]
        return Tokens(ids, kept.get("token_type_ids") or [0] * len(ids)), truncated


def single_text(record: Record) -> str:
    """The record's text. Raises ServiceError (400) when it holds anything else."""
    if not isinstance(record.inputs, str):
        raise invalid_record(f"'inputs' must be a text, not {quote(record.inputs)}")
    return record.inputs


def text_or_pair(record: Record) -> Text:
    """A text, or ``{"text", "text_pair"}`` as the Hugging Face pipeline takes it. Raises ServiceError (400) otherwise."""
    inputs = record.inputs
    if isinstance(inputs, dict) and set(inputs) <= {"text", "text_pair"} and isinstance(inputs.get("text"), str):
        pair = inputs.get("text_pair")
        if pair is None:
            return str(inputs["text"])
        if isinstance(pair, str):
            return inputs["text"], pair
    if isinstance(inputs, str):
        return inputs
    raise invalid_record(f"'inputs' must be a text or an object with 'text' and 'text_pair', not {quote(inputs)}")


def refuse_truncation(parameters: Mapping[str, Any], default: bool, truncated: bool, limit: int) -> None:
    """Raise ServiceError (400) when a text was cut though the request or the setting forbids it."""
    if truncated and not parameters.get("truncation", default):
        raise invalid_record(
            f"the text is longer than the model's {limit} tokens and truncation is off: shorten it or allow truncation"
        )
