"""Bodies of lines: splitting bytes, decoding each line on its own, and the policy on blank lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from batch_handler.errors import ServiceError, invalid_record, invalid_request
from batch_handler.formats.options import ReadOptions
from batch_handler.formats.values import Builder
from batch_handler.request import Node, Payload

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP_MAGIC = b"\x1f\x8b"


def split(body: bytes, before_newline: bytes = b"\r") -> list[bytes]:
    """Physical lines without their ends (LF or CRLF). A newline at the end of the body starts no line.

    CSV keeps `before_newline`, since inside quotes it belongs to the text.
    """
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
        elif options.blank_lines_count:
            yield number, blank(number)


def blank(number: int) -> ServiceError:
    """The error that stands for a blank line in a transform job."""
    return invalid_record("the line is blank: every line must hold a record", number)


def finished(builder: Builder, nodes: Sequence[Node]) -> Payload:
    """The payload of a body of lines; raises ServiceError when it holds no record."""
    if not nodes:
        raise invalid_request("the body holds no record: every line is blank")
    return builder.payload(nodes, many=True)
