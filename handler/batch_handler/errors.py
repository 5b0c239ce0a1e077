"""The one error family: what went wrong, with which status, in words that the caller can act on.

Errors travel as values in the place of the record or request they belong to; `body` is the only place that turns one into bytes.
"""

from __future__ import annotations

import json
import reprlib
from enum import Enum
from http import HTTPStatus
from typing import Any

import orjson

MESSAGE_LIMIT = 400
QUOTE_LIMIT = 80
_short = reprlib.Repr()  # repr() itself fails on values that are nested deeply
_short.maxother = _short.maxstring = QUOTE_LIMIT


class ErrorType(Enum):
    """The closed list of error types, each with its HTTP status (RFC 9110, section 15)."""

    INVALID_REQUEST = ("InvalidRequest", 400)
    INVALID_RECORD = ("InvalidRecord", 400)
    NOT_ACCEPTABLE = ("NotAcceptable", 406)
    PAYLOAD_TOO_LARGE = ("PayloadTooLarge", 413)
    RESPONSE_TOO_LARGE = ("ResponseTooLarge", 413)
    UNSUPPORTED_MEDIA_TYPE = ("UnsupportedMediaType", 415)
    POISON_INPUT = ("PoisonInput", 422)
    MODEL_ERROR = ("ModelError", 500)
    OUT_OF_MEMORY = ("OutOfMemory", 503)
    TIMEOUT = ("Timeout", 504)

    def __init__(self, label: str, status: int) -> None:
        self.label = label
        self.status = status


class ServiceError(Exception):
    """One fault of one request or record.

    ``message`` is one printable line without paths, tracebacks or more than 80 characters of input.
    ``record`` counts from 1; in line formats it is the physical line.
    ``headers`` are sent with the answer when the whole request fails.
    """

    def __init__(
        self,
        kind: ErrorType,
        message: str,
        record: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.type = kind
        self.message = one_line(message)
        self.record = record
        self.headers = headers or ({"Retry-After": "1"} if kind.status == HTTPStatus.SERVICE_UNAVAILABLE else {})

    @property
    def status(self) -> int:
        """The HTTP status of a request that fails with this error."""
        return self.type.status

    def at(self, record: int) -> ServiceError:
        """The same error, placed at a record unless it has its place already."""
        if self.record is not None:
            return self
        return ServiceError(self.type, self.message, record, self.headers)

    def as_object(self) -> dict[str, Any]:
        """``{"error": {"type", "message", "record"}}``, for a body or as a placeholder in a record's place."""
        inner: dict[str, Any] = {"type": self.type.label, "message": self.message}
        if self.record is not None:
            inner["record"] = self.record
        return {"error": inner}

    def body(self) -> bytes:
        """The error as a JSON document in UTF-8."""
        return orjson.dumps(self.as_object())


def invalid_request(message: str) -> ServiceError:
    """A 400 about the request as a whole."""
    return ServiceError(ErrorType.INVALID_REQUEST, message)


def invalid_record(message: str, record: int | None = None) -> ServiceError:
    """A 400 about one record."""
    return ServiceError(ErrorType.INVALID_RECORD, message, record)


def quote(value: object) -> str:
    """A piece of the caller's input, short enough and safe to stand in a message: a text in quotes, other values as JSON."""
    text = value if isinstance(value, str) else _json(value)
    short = text if len(text) <= QUOTE_LIMIT else f"{text[: QUOTE_LIMIT - 1]}…"
    return f"'{short}'" if isinstance(value, str) else short


def _json(value: object) -> str:
    """At least the beginning of a value as compact JSON, whatever its size and depth; what JSON has no word for as Python's."""
    encoder = json.JSONEncoder(ensure_ascii=False, skipkeys=True, separators=(",", ":"), default=_short.repr)
    written = ""
    for piece in encoder.iterencode(value):
        written += piece
        if len(written) > QUOTE_LIMIT:
            break
    return written


def one_line(text: str) -> str:
    """Printable, on one line, at most 400 characters, and encodable as UTF-8."""
    # Halves of surrogates are not printable either; most messages are, and a job may make one for every line.
    printable = text if text.isprintable() else "".join(character if character.isprintable() else " " for character in text)
    printable = " ".join(printable.split())
    return printable if len(printable) <= MESSAGE_LIMIT else printable[: MESSAGE_LIMIT - 1] + "…"
