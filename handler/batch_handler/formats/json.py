"""application/json (RFC 8259): one document, read strictly and written compactly, never with NaN."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import islice
from typing import Any

import orjson

from batch_handler.errors import ErrorType, ServiceError, invalid_request
from batch_handler.formats import exact, json_lines, lines
from batch_handler.formats.options import Layout, ReadOptions
from batch_handler.formats.values import Builder, check_values, render
from batch_handler.request import Payload


def read(body: bytes, options: ReadOptions) -> Payload:
    """One document; a body of several values, one per line, is read as JSON Lines.

    Raises ServiceError (400) for a body that is neither.
    """
    body = body.removeprefix(lines.BYTE_ORDER_MARK)
    check_values(body, options)
    try:
        value = exact.loads(body, options.numbers)
    except orjson.JSONDecodeError as error:
        if _several_values(body):
            return json_lines.read(body, options)
        raise _unreadable(body, error) from None
    builder = Builder(options)
    if isinstance(value, list) and not builder.is_vector(value):
        return builder.payload(builder.members(value), many=True)
    return builder.payload([builder.value(value)], many=False)


def write(payload: Payload, results: Sequence[Any], layout: Layout) -> bytes:
    """A list for a list, else the one result."""
    if payload.many:
        return dump([render(node, results) for node in payload.nodes])
    return dump(render(payload.nodes[0], results))


def dump(value: Any) -> bytes:
    """Compact UTF-8; NumPy arrays as they are, integers whole, NaN and infinities as null.

    Raises ServiceError (500) for a result that JSON has no word for.
    """
    try:
        return exact.dumps(value)
    except orjson.JSONEncodeError:
        raise ServiceError(ErrorType.MODEL_ERROR, "the model's result cannot be written as JSON") from None


def _several_values(body: bytes) -> bool:
    filled = list(islice((line for line in io.BytesIO(body) if line.strip()), 2))
    if len(filled) < 2:
        return False
    try:
        orjson.loads(filled[0])
    except orjson.JSONDecodeError:
        return False
    return True


def _unreadable(body: bytes, error: orjson.JSONDecodeError) -> ServiceError:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as undecodable:
        hint = lines.compression_hint(body)
        return invalid_request(f"the body is not UTF-8 text (byte {undecodable.start + 1} of it){hint}")
    return invalid_request(f"the body is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}")
