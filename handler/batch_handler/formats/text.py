"""text/plain: one record per line, and one line of text per record where the task's result is a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from batch_handler.errors import ServiceError
from batch_handler.formats import lines
from batch_handler.formats.options import Layout, ReadOptions
from batch_handler.formats.values import Builder
from batch_handler.request import Node, Payload


def read(body: bytes, options: ReadOptions) -> Payload:
    """Each line is a record. Raises ServiceError (400) when every line is blank."""
    builder = Builder(options)
    return lines.collected(builder, lines.numbered(lines.split(body, options.max_records), options), _node, options)


def write(payload: Payload, results: Sequence[Any], layout: Layout) -> bytes:
    """One line per record, line breaks inside a result as spaces; an error is its JSON object on the record's line.

    Raises ServiceError (406) for a line of input that has not exactly one result, except where it gets a placeholder.
    """
    return lines.written(payload, results, lambda node: _line(results[node.slot or 0], layout), _placeholder)


def _node(builder: Builder, number: int, line: bytes | ServiceError) -> Node:
    try:
        if isinstance(line, ServiceError):
            raise line
        return builder.leaf(lines.decoded(line), number)
    except ServiceError as error:
        return builder.failure(error, number)


def _line(result: Any, layout: Layout) -> bytes:
    return " ".join(layout.line(result).splitlines()).encode("utf-8", "replace")


def _placeholder(error: ServiceError) -> bytes:
    return orjson.dumps(error.as_object())
