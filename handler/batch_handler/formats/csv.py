"""text/csv (RFC 4180): one record per row. The header is a setting, never a guess; nothing is cast to numbers.

In a transform job every physical line is a row: the platform cuts bodies and joins answers at newlines, whatever they
stand in.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain, islice
from typing import Any

import numpy
import orjson

from batch_handler.errors import ErrorType, ServiceError, invalid_record, invalid_request, quote
from batch_handler.formats import lines
from batch_handler.formats.options import Layout, ReadOptions
from batch_handler.formats.values import Builder
from batch_handler.request import Node, Payload

FIELD_LIMIT = 128 * 1024 * 1024
csv.field_size_limit(FIELD_LIMIT)

FILLED = re.compile(rb"\S")
QUOTED = re.compile(rb'(?:[^"]++|"")*+')
"""What a field in quotes goes on with up to the quote that closes it; two are a quote of its text (RFC 4180, section 2)."""

Cells = list[str] | ServiceError
Row = tuple[int, Cells]
ANNOUNCED = "as BYOC_CSV_HEADER or the Content-Type's header=present says"


def read(body: bytes, options: ReadOptions) -> Payload:
    """Rows of one column are texts; with ``csv_header`` rows are objects with the header's keys. Rows of numbers are lists.

    The header is the first row that is not blank, and of each body its own: when a platform cuts one file into several
    bodies, only the first has a header, and nothing in the others tells that their first row is none. No row of the answer
    stands for a header, so that lines are joined rightly only where there is none.
    Raises ServiceError (400) for a body without rows and for a header that cannot be used.
    """
    builder = Builder(options)
    physical = lines.split(body, options.max_records, b"") if options.placeholders else []
    rows = _lines(physical) if options.placeholders else _rows(body.removeprefix(lines.BYTE_ORDER_MARK))
    if not options.csv_header:
        return lines.collected(builder, rows, _reader(None, options), options)
    filled = next((place for place, line in enumerate(physical) if line.strip()), len(physical))
    leading = list(islice(rows, filled))
    first = next(rows, None)
    header = [] if first is None and leading else _header(first)
    nothing = f"the body holds a header, {ANNOUNCED}, and no row below it: send at least one record"
    return lines.collected(builder, chain(leading, rows), _reader(header, options), options, nothing)


def write(payload: Payload, results: Sequence[Any], layout: Layout) -> bytes:
    """One row per record, the caller's own keys first, in the order of the first row; no header, no newline at the end.

    Raises ServiceError (406) for a record whose own keys do not make the same columns and for a line of input that has
    not exactly one result, except where they get placeholders.
    """
    nodes = (node for _, node in lines.leaves(payload) if isinstance(node, Node))
    first = next((node for node in nodes if not isinstance(results[node.slot or 0], ServiceError)), Node())
    columns = first.extras.keys()
    return lines.written(payload, results, lambda node: _row(node, results[node.slot or 0], layout, columns), _placeholder)


def _lines(physical: list[bytes]) -> Iterator[Row]:
    """Each line with its number, as a row of its own."""
    for number, line in enumerate(physical, 1):
        yield number, _parsed(map(_decoded, (line,)), number) if line.strip() else lines.blank(number)


def _rows(body: bytes) -> Iterator[Row]:
    """Each row with the number of the line it begins on; blank lines between rows are nothing."""
    text = _Text(body)
    while line := text.filled_line():
        number = text.number
        yield number, _parsed(text.pieces(line), number)


def _parsed(pieces: Iterator[str], number: int) -> Cells:
    try:
        return next(csv.reader(pieces, strict=True))
    except ServiceError as error:
        return error.at(number)
    except csv.Error as error:
        return invalid_record(f"the row is not valid CSV: {error}", number)


class _Text:
    """A body that is read row by row, since its lines may be far more than its rows. ``number`` counts the lines so far."""

    def __init__(self, body: bytes) -> None:
        self.number = 0
        self._body = body
        self._place = 0

    def filled_line(self) -> bytes:
        """The next line that is not blank, with its end; nothing at the end of the body."""
        filled = FILLED.search(self._body, self._place)
        if filled is None:
            return b""
        start = self._body.rfind(b"\n", self._place, filled.start()) + 1 or self._place
        self.number += self._body.count(b"\n", self._place, start)
        self._place = start
        return self._taken(start)

    def pieces(self, line: bytes) -> Iterator[str]:
        """The line, and whatever a field in quotes goes on with: up to the end of the line where it is closed."""
        yield _decoded(line)
        while self._place < len(self._body) and (quoted := QUOTED.match(self._body, self._place)):
            yield _decoded(self._taken(quoted.end()))

    def _taken(self, place: int) -> bytes:
        """All up to the end of the line that is at this place."""
        end = self._body.find(b"\n", place) + 1 or len(self._body)
        piece = self._body[self._place : end]
        self._place = end
        self.number += piece.count(b"\n") + (not piece.endswith(b"\n"))
        return piece


def _decoded(piece: bytes) -> str:
    """Raises ServiceError, naming the byte of the line that is at fault."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError as error:
        return lines.decoded(piece[piece.rfind(b"\n", 0, error.start) + 1 :])


def _header(first: Row | None) -> list[str]:
    if first is None:
        raise invalid_request("the body holds no record: every line is blank")
    names = first[1]
    if isinstance(names, ServiceError):
        raise names
    if len(set(names)) < len(names):
        raise invalid_request(f"the first row must name the columns, each differently, {ANNOUNCED}")
    return names


def _reader(header: list[str] | None, options: ReadOptions) -> Callable[[Builder, int, Cells], Node]:
    node = _numeric_node if options.numbers else _node
    return lambda builder, number, row: node(builder, number, row, header)


def _node(builder: Builder, number: int, row: Cells, header: list[str] | None) -> Node:
    if isinstance(row, ServiceError):
        return builder.failure(row, number)
    if header is not None:
        if len(row) != len(header):
            return builder.failure(invalid_record(f"the row has {len(row)} columns, the header {len(header)}"), number)
        return builder.value(dict(zip(header, row, strict=True)), number)
    if len(row) != 1:
        message = f"row {number} has {len(row)} columns where one text belongs: put the text in double quotes"
        return builder.failure(invalid_record(message), number)
    return builder.leaf(row[0], number)


def _numeric_node(builder: Builder, number: int, row: Cells, header: list[str] | None) -> Node:
    """A row of numbers, whatever the header calls them."""
    if isinstance(row, ServiceError):
        return builder.failure(row, number)
    if header is not None and len(row) != len(header):
        return builder.failure(invalid_record(f"the row has {len(row)} columns, the header {len(header)}"), number)
    try:
        return builder.leaf([float(cell) for cell in row], number)
    except ValueError:
        wrong = next(cell for cell in row if not _is_number(cell))
        return builder.failure(invalid_record(f"the row must hold numbers, and {quote(wrong)} is none"), number)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _row(node: Node, result: Any, layout: Layout, columns: AbstractSet[str]) -> bytes:
    if node.extras.keys() != columns:
        message = "text/csv needs the same keys beside 'inputs' in every record as in the first"
        raise ServiceError(ErrorType.NOT_ACCEPTABLE, message)
    own = [_cell(key, node.extras[key]) for key in columns]
    cells = layout.columns(result)
    if isinstance(cells, numpy.ndarray):
        numbers = orjson.dumps(cells, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].replace(b"null", b"")
        return _cells(own) + b"," + numbers if own else numbers
    return _cells([*own, *map(_plain, cells)])


def _placeholder(error: ServiceError) -> bytes:
    return _cells([orjson.dumps(error.as_object()).decode()])


def _plain(cell: Any) -> Any:
    """One line for a text, and nothing for a number that is none."""
    if isinstance(cell, str):
        return cell.replace("\r", " ").replace("\n", " ")
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def _cell(key: str, value: Any) -> Any:
    if isinstance(value, dict | list):
        raise ServiceError(ErrorType.NOT_ACCEPTABLE, f"text/csv cannot hold the key {quote(key)}: it is a list or an object")
    return " ".join(value.splitlines()) if isinstance(value, str) else value


def _cells(cells: list[Any]) -> bytes:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="").writerow(cells)
    return buffer.getvalue().encode("utf-8", "replace")
