"""A growing row of tokens as pieces of text, each sent once: no broken characters, no beginnings of stops, nothing taken back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

UNFINISHED = "�"
"""What tokenisers write for bytes that are no whole character, yet."""
BYTE = re.compile(r"<0x[0-9A-F]{2}>")
"""A token of one byte in vocabularies that fall back to bytes; a row of them is one text only when it is whole."""


TIDIED = 4
"""Characters from a space on that decide whether tidying takes it away: " .", " n't", " 've" and the like."""


class Pieces:
    """Tokens in, pieces out; all pieces together are what `text` gives for all tokens.

    `stops` are texts before which the answer ends.
    """

    def __init__(self, tokenizer: Any, stops: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stops = stops
        self._tidies = bool(getattr(tokenizer, "clean_up_tokenization_spaces", False))
        self._ids: list[int] = []
        self._sent = ""

    def add(self, token: int) -> str:
        """What may be sent now that there is one more token; often nothing."""
        self._ids.append(token)
        if BYTE.fullmatch(str(self._tokenizer.convert_ids_to_tokens(token))):
            return ""
        return self._fresh(self._settled(text(self._tokenizer, self._ids, self._stops)))

    def rest(self) -> str:
        """What was held back, once no token follows."""
        return self._fresh(text(self._tokenizer, self._ids, self._stops))

    def _fresh(self, known: str) -> str:
        if not known.startswith(self._sent):
            return ""
        fresh = known[len(self._sent) :]
        self._sent += fresh
        return fresh

    def _settled(self, known: str) -> str:
        """The text without an end that the next token may change."""
        settled = known.rstrip(UNFINISHED)
        if self._tidies:
            space = settled.rfind(" ", max(0, len(settled) - TIDIED))
            settled = settled[:space] if space >= 0 else settled
        return settled[: len(settled) - max((_begun(settled, stop) for stop in self._stops), default=0)]


def text(tokenizer: Any, ids: Sequence[int], stops: Sequence[str] = ()) -> str:
    """The tokens as text, up to the first of the stops."""
    whole: str = tokenizer.decode(list(ids), skip_special_tokens=True)
    ends = [place for stop in stops if (place := whole.find(stop)) >= 0]
    return whole[: min(ends, default=len(whole))]


def _begun(settled: str, stop: str) -> int:
    """How many characters at the end of the text may be the beginning of a stop."""
    return next((size for size in range(min(len(stop) - 1, len(settled)), 0, -1) if settled.endswith(stop[:size])), 0)
