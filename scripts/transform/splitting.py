"""Cutting an object's bytes into the bodies of requests, never inside a record, with at most one body in memory.

Records end where SplitType says: at newlines (Line), where RecordIO's and TFRecord's frames do, or with the object (None).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from transform.faults import FileError
from transform.rules import MIB

MULTI = "MultiRecord"
SINGLE = "SingleRecord"
RECORDIO_MAGIC = 0xCED7230A
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)


@dataclass(frozen=True, slots=True)
class Cut:
    """The ``body`` of one request, the ``records`` in it, and how many bytes of the object (``taken``) it stands for."""

    body: bytes
    records: int
    taken: int


@dataclass(frozen=True, slots=True)
class Frame:
    """One record: the bytes that it has in the object, and its content without the framing."""

    raw: bytes
    content: bytes


def cuts(stream: BinaryIO, split: str, strategy: str, limit: int, wanted: int | None = None) -> Iterator[Cut]:
    """Cut what is left of a stream into bodies of at most `limit` bytes, and of at most `wanted` where records allow it.

    MultiRecord packs as many whole records as fit, framing kept; SingleRecord sends each alone, without RecordIO's or
    TFRecord's framing but with its newline. Raises FileError for a record over the limit and for broken framing.
    """
    if split == "None":
        return _whole(stream, limit)
    if split == "Line":
        return _line_by_line(stream, limit) if strategy == SINGLE else _lines(stream, limit, wanted or limit)
    frames = FRAMES[split](stream)
    return _alone(frames, limit) if strategy == SINGLE else _packed(frames, limit, wanted or limit)


def _whole(stream: BinaryIO, limit: int) -> Iterator[Cut]:
    body = stream.read(limit + 1)
    if len(body) > limit:
        raise FileError(
            f"it is over the limit of {size(limit)} that one request has: split it (SplitType Line) or raise MaxPayloadInMB"
        )
    if body:
        yield Cut(body, 1, len(body))


def _lines(stream: BinaryIO, limit: int, wanted: int) -> Iterator[Cut]:
    """One read and one search per body: lines are counted, never looked at."""
    left = b""
    while True:
        body = left + stream.read(wanted + 1 - len(left))
        if len(body) <= wanted:
            if body:
                yield Cut(body, lines_in(body), len(body))
            return
        end = body.rfind(b"\n", 0, wanted) + 1
        if not end:
            if not body.endswith(b"\n"):
                body += stream.readline(limit + 1 - len(body))
            end = len(body)
        if end > limit:
            raise too_long(limit)
        left = body[end:]
        body = body[:end]
        yield Cut(body, body.count(b"\n"), end)


def _line_by_line(stream: BinaryIO, limit: int) -> Iterator[Cut]:
    while line := stream.readline(limit + 1):
        if len(line) > limit:
            raise too_long(limit)
        yield Cut(line, 1, len(line))


def _packed(frames: Iterator[Frame], limit: int, wanted: int) -> Iterator[Cut]:
    held: list[bytes] = []
    total = 0
    for frame in frames:
        if len(frame.raw) > limit:
            raise too_long(limit)
        if held and total + len(frame.raw) > wanted:
            yield Cut(b"".join(held), len(held), total)
            held, total = [], 0
        held.append(frame.raw)
        total += len(frame.raw)
    if held:
        yield Cut(b"".join(held), len(held), total)


def _alone(frames: Iterator[Frame], limit: int) -> Iterator[Cut]:
    for frame in frames:
        if len(frame.content) > limit:
            raise too_long(limit)
        yield Cut(frame.content, 1, len(frame.raw))


def line_frames(stream: BinaryIO) -> Iterator[Frame]:
    """Each line with its newline, as a record of its own."""
    for line in stream:
        yield Frame(line, line)


def recordio_frames(stream: BinaryIO) -> Iterator[Frame]:
    """MXNet's RecordIO: a magic number, three bits of part and 29 of length, content, zeros up to a multiple of four.

    A record whose content holds the magic number is written in parts, cut where it stood.
    """
    raw, parts = b"", [b""]
    while head := stream.read(8):
        magic, word = struct.unpack("<II", _all(head, 8))
        if magic != RECORDIO_MAGIC:
            raise FileError("it is no RecordIO file, or damaged: a record does not begin with RecordIO's magic number")
        part, length = word >> 29, word & 0x1FFFFFFF
        content = _exactly(stream, length)
        padding = _exactly(stream, -length % 4)
        if part in (_WHOLE, _FIRST):
            raw, parts = b"", []
        raw += head + content + padding
        parts.append(content)
        if part in (_WHOLE, _LAST):
            yield Frame(raw, struct.pack("<I", RECORDIO_MAGIC).join(parts))
            raw = b""
    if raw:
        raise _cut_short()


def tfrecord_frames(stream: BinaryIO) -> Iterator[Frame]:
    """TensorFlow's TFRecord: a length of eight bytes, its checksum of four, content, its checksum of four."""
    while head := stream.read(12):
        (length,) = struct.unpack_from("<Q", _all(head, 12))
        if length > 1 << 40:
            raise FileError("it is no TFRecord file, or damaged: a record claims to have more than 1 TiB")
        content = _exactly(stream, length)
        yield Frame(head + content + _exactly(stream, 4), content)


FRAMES: Mapping[str, Callable[[BinaryIO], Iterator[Frame]]] = {
    "Line": line_frames,
    "RecordIO": recordio_frames,
    "TFRecord": tfrecord_frames,
}
"""SplitType → its records."""


def lines_in(body: bytes) -> int:
    """Physical lines; the last may lack its newline."""
    return body.count(b"\n") + (not body.endswith(b"\n") if body else 0)


def size(limit: int) -> str:
    """Bytes for a reader."""
    return f"{limit / MIB:.3g} MiB" if limit >= MIB // 10 else f"{limit:,} bytes"


def too_long(limit: int) -> FileError:
    """A record that fits into no request."""
    return FileError(f"the next record is over the limit of {size(limit)} that one request has: raise MaxPayloadInMB")


def _exactly(stream: BinaryIO, length: int) -> bytes:
    return _all(stream.read(length), length)


def _all(data: bytes, length: int) -> bytes:
    if len(data) < length:
        raise _cut_short()
    return data


def _cut_short() -> FileError:
    return FileError("it ends in the middle of a record: it is damaged or incomplete")
