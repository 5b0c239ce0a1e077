"""The encoder side that embeddings, token vectors, classification and ranking share: check, and tokenise in one call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from batch_handler.engines import Tokens
from batch_handler.errors import ServiceError, invalid_record
from batch_handler.request import Record
from batch_handler.tasks import Encoded
from batch_handler.tasks.parameters import Parameter, checked
from batch_handler.tasks.tokenisation import Text, Tokeniser, refuse_truncation

log = logging.getLogger(__name__)

ReadText = Callable[[Record, Mapping[str, Any]], Text]
ReadTexts = Callable[[Record, Mapping[str, Any]], Sequence[Text]]


def encode_texts(
    records: Sequence[Record],
    tokeniser: Tokeniser,
    known: Mapping[str, Parameter],
    truncation: bool,
    read: ReadText,
) -> list[Encoded | ServiceError]:
    """Tokenise all readable records in one call; the others keep their places with their errors."""
    texts: list[Text | ServiceError] = []
    for record in records:
        try:
            texts.append(read(record, checked(record.parameters, known)))
        except ServiceError as error:
            texts.append(error)
    tokens = iter(tokeniser([text for text in texts if not isinstance(text, ServiceError)]))
    encoded: list[Encoded | ServiceError] = []
    for record, text in zip(records, texts, strict=True):
        if isinstance(text, ServiceError):
            encoded.append(text)
            continue
        ids, truncated = next(tokens)
        try:
            if not ids.ids:
                raise invalid_record("the text holds no token that this model knows: send some text")
            refuse_truncation(record.parameters, truncation, truncated, tokeniser.limit)
        except ServiceError as error:
            encoded.append(error)
            continue
        encoded.append(Encoded(ids, len(ids.ids), truncated, None, record.parameters))
    return encoded


def encode_parts(
    records: Sequence[Record],
    tokeniser: Tokeniser,
    known: Mapping[str, Parameter],
    truncation: bool,
    read: ReadTexts,
) -> list[Encoded | ServiceError]:
    """Tokenise records that are several texts or pairs each, all in one call.

    Every text becomes a part; the record itself keeps ``inputs`` as its model input, for `decode`.
    """
    groups: list[Sequence[Text] | ServiceError] = []
    for record in records:
        try:
            groups.append(read(record, checked(record.parameters, known)))
        except ServiceError as error:
            groups.append(error)
    flat = [text for group in groups if not isinstance(group, ServiceError) for text in group]
    tokens = iter(_each(tokeniser, flat))
    return [
        group
        if isinstance(group, ServiceError)
        else _whole(record, list(islice(tokens, len(group))), truncation, tokeniser.limit)
        for record, group in zip(records, groups, strict=True)
    ]


def _each(tokeniser: Tokeniser, texts: Sequence[Text]) -> Sequence[tuple[Tokens, bool] | ServiceError]:
    """All at once; when one cannot be cut to the limit, one by one, so that it alone fails."""
    try:
        return tokeniser(texts)
    except Exception as error:
        if len(texts) == 1:
            log.debug("a text cannot be cut to %d tokens", tokeniser.limit, exc_info=error)
            return [invalid_record(f"the text that may not be cut leaves no room within the model's {tokeniser.limit} tokens")]
    return [one for text in texts for one in _each(tokeniser, [text])]


def _whole(
    record: Record, pieces: Sequence[tuple[Tokens, bool] | ServiceError], truncation: bool, limit: int
) -> Encoded | ServiceError:
    """The record with its parts, or its first error."""
    parts = []
    for piece in pieces:
        if isinstance(piece, ServiceError):
            return piece
        tokens, truncated = piece
        try:
            refuse_truncation(record.parameters, truncation, truncated, limit)
        except ServiceError as error:
            return error
        if not tokens.ids:
            return invalid_record("a text holds no token that this model knows: send some text")
        parts.append(Encoded(tokens, len(tokens.ids), truncated))
    return Encoded(
        record.inputs,
        sum(part.length for part in parts),
        any(part.truncated for part in parts),
        None,
        record.parameters,
        tuple(parts),
    )
