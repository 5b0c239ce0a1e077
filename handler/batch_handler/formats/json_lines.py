"""JSON Lines (jsonlines.org): one value on every line, one line of answer for every line that holds one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from batch_handler.errors import ServiceError, invalid_record
from batch_handler.formats import exact, json, lines
from batch_handler.formats.options import Layout, ReadOptions
from batch_handler.formats.values import Builder, check_values, render, separate
from batch_handler.request import Node, Payload


def read(body: bytes, options: ReadOptions) -> Payload:
    """Each line on its own: a bad one is an error in its place. Raises ServiceError (400) when no line holds anything."""
    builder = Builder(options)
    check_values(body, options)
    return lines.collected(builder, lines.numbered(lines.split(body, options.max_records), options), _node, options)


def write(payload: Payload, results: Sequence[Any], layout: Layout) -> bytes:
    """One line per value, without a newline at the end."""
    return b"\n".join(json.dump(render(node, results)) for node in separate(payload))


def _node(builder: Builder, number: int, line: bytes | ServiceError) -> Node:
    if isinstance(line, ServiceError):
        return builder.failure(line, number)
    try:
        return builder.value(exact.loads(line, builder.numbers), number)
    except orjson.JSONDecodeError as error:
        return builder.failure(_fault(line, error), number)


def _fault(line: bytes, error: orjson.JSONDecodeError) -> ServiceError:
    try:
        lines.decoded(line)
    except ServiceError as undecodable:
        return undecodable
    return invalid_record(f"the line is not valid JSON: {error.msg} at column {error.colno}")
