"""Texts and pairs of texts to tokens, in one call for a whole batch; text over the model's length is cut and counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batch_handler.engines import Tokens
from batch_handler.errors import invalid_record, quote
from batch_handler.request import Record

Text = str | tuple[str, str]
Encode = Callable[[Sequence[Any]], Sequence[Any]]

CHARACTERS_PER_TOKEN = 64
"""More than any language needs: the beginning of a text this long holds all the tokens that a model keeps of it."""
BEYOND_LIMIT = 16
"""Tokens that must follow the kept ones, so that where the beginning was cut cannot have changed those."""
LONGEST_READ = 1_000_000
"""Characters of a text that are tokenised at most: one word of 25 MB would keep everybody waiting for a quarter of a minute."""


@dataclass(frozen=True, slots=True)
class Marked:
    """A tokenised text that knows where its tokens come from.

    ``special`` is 1 for tokens that the tokeniser added. ``offsets`` are where each token starts and ends in the text, in
    characters; None from a tokeniser that cannot tell.
    """

    tokens: Tokens
    special: Sequence[int]
    offsets: Sequence[tuple[int, int]] | None
    truncated: bool


class Tokeniser:
    """A tokeniser with a fixed limit. Not for use by several threads at once.

    `cut` says what of a pair is shortened: ``longest_first`` by turns, ``only_first`` never the second text.
    """

    def __init__(self, tokenizer: Any, limit: int, cut: str = "longest_first") -> None:
        self._tokenizer = tokenizer
        self.limit = limit
        self._cut = cut
        self._keeps_end = tokenizer.truncation_side == "left"
        self._gives_types = "token_type_ids" in tokenizer.model_input_names
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        if self._backend is not None:
            self._backend.enable_truncation(limit, strategy=cut, direction=tokenizer.truncation_side)
            self._backend.no_padding()

    def __call__(self, texts: Sequence[Text]) -> list[tuple[Tokens, bool]]:
        """Tokens of every text, and whether it had to be cut."""
        if self._backend is None:
            return [self._slow(text) for text in texts]
        starts = [self._start(text) for text in texts]
        return [self._tokens(*one) for one in zip(texts, starts, self._fast(starts), strict=True)]

    def _fast(self, texts: Sequence[Text]) -> Sequence[Any]:
        encodings: Sequence[Any] = self._backend.encode_batch_fast(list(texts)) if self._backend is not None else ()
        return encodings

    def _start(self, text: Text) -> Text:
        """As much of a text as is likely to hold all tokens that are kept of it."""
        enough = CHARACTERS_PER_TOKEN * self.limit
        return text[:enough] if isinstance(text, str) and len(text) > enough and not self._keeps_end else self._readable(text)

    def _readable(self, text: Text) -> Text:
        """A text, or both of a pair, with no more characters than are ever read."""
        if isinstance(text, tuple):
            return readable(text[0]), readable(text[1])
        return readable(text, self._keeps_end)

    def _tokens(self, text: Text, start: Text, encoding: Any) -> tuple[Tokens, bool]:
        encoding, truncated = self._complete(text, start, encoding, self._fast)
        return Tokens(encoding.ids, self._types(encoding)), truncated

    def _complete(self, text: Text, start: Text, encoding: Any, encode: Encode) -> tuple[Any, bool]:
        """The encoding, made anew where the beginning of the text was not enough; and whether the text had to be cut."""
        shortened = _size(start) < _size(text)
        if shortened and len(start) < LONGEST_READ and sum(len(rest.ids) for rest in encoding.overflowing) < BEYOND_LIMIT:
            whole = self._readable(text)
            encoding = encode([whole])[0]
            shortened = _size(whole) < _size(text)
        return encoding, shortened or bool(encoding.overflowing)

    def marked(self, texts: Sequence[str]) -> list[Marked]:
        """Tokens of every text with their places in it."""
        if self._backend is None:
            return [self._slow_marked(text) for text in texts]
        starts = [self._start(text) for text in texts]
        encode: Encode = self._backend.encode_batch
        return [self._marked(*one, encode) for one in zip(texts, starts, encode(starts), strict=True)]

    def _marked(self, text: str, start: Text, encoding: Any, encode: Encode) -> Marked:
        encoding, truncated = self._complete(text, start, encoding, encode)
        unread = len(text) - len(self._readable(text)) if self._keeps_end else 0
        offsets = [(first + unread, last + unread) for first, last in encoding.offsets] if unread else encoding.offsets
        return Marked(Tokens(encoding.ids, self._types(encoding)), encoding.special_tokens_mask, offsets, truncated)

    def bare(self, text: str) -> Sequence[int]:
        """Token ids of a text alone. Calling the Hugging Face tokeniser itself would undo the limit set on its backend."""
        text = readable(text)
        if self._backend is None:
            ids: Sequence[int] = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        else:
            ids = self._backend.encode(text, add_special_tokens=False).ids
        return ids

    def _slow_marked(self, text: str) -> Marked:
        tokens, truncated = self._slow(text)
        special = self._tokenizer.get_special_tokens_mask(list(tokens.ids), already_has_special_tokens=True)
        return Marked(tokens, special, None, truncated)

    def _types(self, encoding: Any) -> Sequence[int]:
        """Which text each token is of, for models that were trained to be told; RoBERTa's kin know the one type 0."""
        types: Sequence[int] = encoding.type_ids if self._gives_types else [0] * len(encoding.ids)
        return types

    def _slow(self, text: Text) -> tuple[Tokens, bool]:
        read = self._readable(text)
        pair = read if isinstance(read, tuple) else (read,)
        whole = self._tokenizer(*pair, truncation=False, verbose=False)
        truncated = len(whole["input_ids"]) > self.limit
        kept = self._tokenizer(*pair, truncation=self._cut, max_length=self.limit) if truncated else whole
        ids = kept["input_ids"]
        return Tokens(ids, kept.get("token_type_ids") or [0] * len(ids)), truncated or _size(read) < _size(text)


def readable(text: str, keeps_end: bool = False) -> str:
    """As much of a text as is ever read: its beginning, or its end where that is what a model keeps."""
    return text[-LONGEST_READ:] if keeps_end else text[:LONGEST_READ]


def _size(text: Text) -> int:
    """Characters, of both texts of a pair."""
    return len(text) if isinstance(text, str) else sum(map(len, text))


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


def refuse_unread(truncation: bool, unread: bool) -> None:
    """Raise ServiceError (400) when the end of a text in windows stays unread though the setting forbids it."""
    if unread and not truncation:
        raise invalid_record(
            f"the text is longer than the {LONGEST_READ:,} characters that are read and truncation is off: shorten it"
        )
