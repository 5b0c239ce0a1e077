"""The encoder side that embeddings, token vectors and classification share: check, tokenise, and choose an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from batch_handler.errors import ServiceError, invalid_record
from batch_handler.request import Record
from batch_handler.tasks import Encoded
from batch_handler.tasks.parameters import Parameter, checked
from batch_handler.tasks.tokenisation import Text, Tokeniser, refuse_truncation

ReadText = Callable[[Record, Mapping[str, Any]], Text]


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
