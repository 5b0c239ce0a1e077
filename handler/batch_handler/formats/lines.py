"""Bodies of lines: splitting bytes, decoding each line on its own, which lines count, and what one line of answer holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from batch_handler.errors import ErrorType, ServiceError, invalid_record, invalid_request
from batch_handler.formats.options import ReadOptions
from batch_handler.formats.values import Builder, separate, single, too_many
from batch_handler.request import Node, Payload, Record

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP_MAGIC = b"\x1f\x8b"
Line = TypeVar("Line")


@dataclass(frozen=True, slots=True)
class LinePayload(Payload):
    """A body of lines: every node is one physical line, whose number stands at the same place in ``numbers``.

    ``placeholders`` says that a line whose answer cannot be written costs only its place (transform jobs join by line).
    """

    numbers: Sequence[int] = ()
    placeholders: bool = False


def split(body: bytes, most: int, before_newline: bytes = b"\r") -> list[bytes]:
    """Physical lines without their ends (LF or CRLF). A newline at the end of the body starts no line.

    CSV keeps `before_newline`, since inside quotes it belongs to the text. Raises ServiceError (413) for more than `most`.
    """
    if body.count(b"\n") > most:
        raise too_many(most)
    lines = body.removeprefix(BYTE_ORDER_MARK).split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix(before_newline) for line in lines]


def decoded(line: bytes) -> str:
    """A line as text; raises ServiceError when it is not UTF-8."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise invalid_record(f"the line is not UTF-8 text (byte {error.start + 1} of it){compression_hint(line)}") from None


def compression_hint(body: bytes) -> str:
    """What to do about a body that is gzip but does not say so."""
    return "; it looks compressed: say so with 'Content-Encoding: gzip'" if body.startswith(GZIP_MAGIC) else ""


def numbered(lines: list[bytes], options: ReadOptions) -> Iterator[tuple[int, bytes | ServiceError]]:
    """Each line with its number from 1; blank ones are left out, or stand as errors where they count."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield number, line
        elif options.placeholders:
            yield number, blank(number)


def blank(number: int) -> ServiceError:
    """The error that stands for a blank line in a transform job."""
    return invalid_record("the line is blank: every line must hold a record", number)


def collected(
    builder: Builder,
    found: Iterable[tuple[int, Line]],
    node: Callable[[Builder, int, Line], Node],
    options: ReadOptions,
    nothing: str = "the body holds no record: every line is blank",
) -> LinePayload:
    """The payload of a body of lines, read up to the first bad one where that fails the request.

    Raises ServiceError (400), saying `nothing`, when there is no line.
    """
    numbers: list[int] = []
    nodes: list[Node] = []
    for number, line in found:
        numbers.append(number)
        nodes.append(node(builder, number, line))
        if builder.failed and not options.placeholders:
            break
    if not nodes:
        raise invalid_request(nothing)
    return LinePayload(builder.records, nodes, True, numbers, options.placeholders)


def written(
    payload: Payload,
    results: Sequence[Any],
    line: Callable[[Node], bytes],
    placeholder: Callable[[ServiceError], bytes],
) -> bytes:
    """An answer that has one result on each line: as many lines as a body of lines had, else one per record.

    Raises ServiceError (406) for a result that has no such line, outside jobs; in them it is that line's placeholder.
    """
    return b"\n".join(_line(payload, number, node, results, line, placeholder) for number, node in leaves(payload))


def leaves(payload: Payload) -> Iterator[tuple[int | None, Node | ServiceError]]:
    """The records that stand on lines of their own, with their numbers; an error for a line that has not exactly one."""
    if not isinstance(payload, LinePayload):
        for node in separate(payload):
            for leaf in single(node):
                record = payload.records[leaf.slot or 0]
                yield record.number if isinstance(record, Record) else record.record, leaf
        return
    for number, node in zip(payload.numbers, payload.nodes, strict=True):
        found = list(single(node))
        yield number, found[0] if len(found) == 1 else _not_one(len(found), number)


def _not_one(count: int, number: int) -> ServiceError:
    message = f"one line of the answer cannot hold {count} results: send one record per line, or accept JSON Lines"
    return ServiceError(ErrorType.NOT_ACCEPTABLE, message, number)


def _line(
    payload: Payload,
    number: int | None,
    node: Node | ServiceError,
    results: Sequence[Any],
    line: Callable[[Node], bytes],
    placeholder: Callable[[ServiceError], bytes],
) -> bytes:
    try:
        if isinstance(node, ServiceError):
            raise node
        result = results[node.slot or 0]
        return placeholder(result) if isinstance(result, ServiceError) else line(node)
    except ServiceError as error:
        placed = error if number is None else error.at(number)
        if isinstance(payload, LinePayload) and payload.placeholders:
            return placeholder(placed)
        raise placed from None
