"""The answer to one request: kept in memory while small, on disk when not, and read once: scanned for placeholders on the way."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from transform import media

MEMORY_BYTES = 1 << 20
CHUNK = 1 << 20
MARKS = {media.CSV: b'""error"":{""type"":'}
"""What every placeholder holds, by media type; elsewhere it is JSON. In a JSON text its quotes would be escaped."""
JSON_MARK = b'"error":{"type":'
_ANYWHERE = re.compile(rb'"error":(\{"type":"[^"]*","message":"(?:[^"\\]|\\.)*"(?:,"record":\d+)?\})')


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A record that failed. ``record`` is its number, from 1, within the request: in line formats that of its line."""

    record: int
    type: str
    message: str


@dataclass(slots=True)
class Answer:
    """``media_type`` as the container named it; ``seconds`` from sending to the last byte; ``attempts`` it took."""

    media_type: str
    file: IO[bytes] = field(default_factory=lambda: SpooledTemporaryFile(MEMORY_BYTES))  # noqa: SIM115 -- `close` closes it
    size: int = 0
    seconds: float = 0.0
    attempts: int = 1

    def write(self, data: bytes) -> None:
        """Add bytes to the end."""
        self.file.write(data)
        self.size += len(data)

    def close(self) -> None:
        """Give memory and disk back."""
        self.file.close()


@dataclass(slots=True)
class Scan:
    """Reads an answer in chunks. ``lines`` and ``placeholders`` are complete after the last chunk."""

    answer: Answer
    lines: int = 0
    placeholders: list[Placeholder] = field(default_factory=list)

    def chunks(self) -> Iterator[bytes]:
        """The answer's bytes, once, in pieces of about a mebibyte that end with a line where lines are of that size."""
        kind = media.kind(self.answer.media_type)
        mark = MARKS.get(kind, JSON_MARK)
        self.answer.file.seek(0)
        fresh = True
        chunk = b""
        while more := self.answer.file.read(CHUNK):
            chunk = more if more.endswith(b"\n") else more + self.answer.file.readline(CHUNK)
            if kind in (media.JSON, *media.LINES):
                self._look(chunk, mark, kind)
            fresh = chunk.endswith(b"\n")
            self.lines += chunk.count(b"\n")
            yield chunk
        self.lines += not fresh

    def _look(self, chunk: bytes, mark: bytes, kind: str) -> None:
        line, counted = self.lines, 0
        place = chunk.find(mark)
        while place >= 0:
            start, end = chunk.rfind(b"\n", 0, place) + 1, chunk.find(b"\n", place)
            end = end if end >= 0 else len(chunk)
            line += chunk.count(b"\n", counted, start)
            counted = start
            self.placeholders += failed(chunk[start:end], kind, line + 1)
            place = chunk.find(mark, end)


def failed(line: bytes, kind: str, number: int) -> list[Placeholder]:
    """The placeholders that a line of an answer holds, at its top or in a list; `number` is the line's own, from 1."""
    try:
        values = list(_values(line, kind))
    except (ValueError, csv.Error):
        # A piece of a line that is longer than a chunk.
        values = [{"error": json.loads(match[1])} for match in _ANYWHERE.finditer(line)]
    members = [one for value in values for one in (value if isinstance(value, list) else [value])]
    return [found for one in members for found in _placeholder(one, number)]


def _values(line: bytes, kind: str) -> Iterator[Any]:
    """The JSON values in which placeholders stand. Raises ValueError and csv.Error."""
    text = line.decode("utf-8")
    if kind != media.CSV:
        yield json.loads(text)
        return
    for cell in next(csv.reader([text])):
        if cell.startswith("{"):
            yield json.loads(cell)


def _placeholder(value: Any, number: int) -> list[Placeholder]:
    """None or one."""
    error = value.get("error") if isinstance(value, dict) else None
    if not isinstance(error, dict) or not {"type", "message"} <= error.keys():
        return []
    return [Placeholder(error.get("record") or number, str(error["type"]), str(error["message"]))]
