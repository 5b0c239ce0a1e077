"""text/csv (RFC 4180): one record per row. The header is a setting, never a guess; nothing is cast to numbers.

Every physical line keeps its place: after a row that cannot be read, reading goes on at the line below the one it began on.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy
import orjson

from batch_handler.errors import ErrorType, ServiceError, invalid_record, invalid_request, quote
from batch_handler.formats import lines
from batch_handler.formats.options import Layout, ReadOptions
from batch_handler.formats.values import Builder, separate
from batch_handler.request import Node, Payload

FIELD_LIMIT = 128 * 1024 * 1024
csv.field_size_limit(FIELD_LIMIT)

Row = tuple[int, list[str] | ServiceError]


def read(body: bytes, options: ReadOptions) -> Payload:
    """Rows of one column are texts; with ``csv_header`` rows are objects with the header's keys. Rows of numbers are lists.

    Raises ServiceError (400) for a body without rows and for a header that cannot be used.
    """
    builder = Builder(options.fields)
    node = _numeric_node if options.numbers else _node
    rows = _rows(lines.split(body, b""), options)
    header = _header(next(rows, None)) if options.csv_header else None
    return lines.finished(builder, [node(builder, number, row, header) for number, row in rows])


def write(payload: Payload, results: Sequence[Any], layout: Layout) -> bytes:
    """One row per value, the caller's own keys first; no header and no newline at the end.

    Raises ServiceError (406) when the records' own keys do not make even columns.
    """
    nodes = [leaf for node in separate(payload) for leaf in _leaves(node)]
    keys = [node.extras.keys() for node in nodes if not isinstance(results[node.slot or 0], ServiceError)]
    if any(one != keys[0] for one in keys):
        raise ServiceError(ErrorType.NOT_ACCEPTABLE, "text/csv needs the same keys beside 'inputs' in every record")
    columns = list(keys[0]) if keys else []
    return b"\n".join(_row(node, results, layout, columns) for node in nodes)


def _rows(physical: list[bytes], options: ReadOptions) -> Iterator[Row]:
    start = 0
    doomed = 0  # a row that enters a line before this one inside quotes ends in a fault: no need to read it again
    while start < len(physical):
        if not physical[start].strip():
            if options.blank_lines_count:
                yield start + 1, lines.blank(start + 1)
            start += 1
            continue
        end = start + 1 if start + 1 < doomed else len(physical)
        reader = csv.reader((lines.decoded(physical[i]) + "\n" for i in range(start, end)), strict=True)
        try:
            row: list[str] | ServiceError = next(reader)
            taken = reader.line_num
        except (ServiceError, csv.Error) as error:
            row = error if isinstance(error, ServiceError) else invalid_record(f"the row is not valid CSV: {error}")
            doomed = max(doomed, start + reader.line_num)
            taken = 1
        yield start + 1, row.at(start + 1) if isinstance(row, ServiceError) else row
        start += taken


def _header(first: Row | None) -> list[str]:
    names = [] if first is None else first[1]
    if isinstance(names, ServiceError):
        raise names
    if not names or len(set(names)) < len(names):
        raise invalid_request("the first row must name the columns, each differently (BYOC_CSV_HEADER is true)")
    return names


def _node(builder: Builder, number: int, row: list[str] | ServiceError, header: list[str] | None) -> Node:
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


def _numeric_node(builder: Builder, number: int, row: list[str] | ServiceError, header: list[str] | None) -> Node:
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


def _leaves(node: Node) -> Iterator[Node]:
    if node.slot is not None:
        yield node
    for child in node.children:
        for leaf in _leaves(child):
            yield Node(slot=leaf.slot, extras={**node.extras, **leaf.extras})


def _row(node: Node, results: Sequence[Any], layout: Layout, columns: Sequence[str]) -> bytes:
    result = results[node.slot or 0]
    if isinstance(result, ServiceError):
        return _cells([orjson.dumps(result.as_object()).decode()])
    cells = layout.columns(result)
    own = [_cell(key, node.extras[key]) for key in columns]
    if isinstance(cells, numpy.ndarray):
        numbers = orjson.dumps(cells, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].replace(b"null", b"")
        return _cells(own) + b"," + numbers if own else numbers
    return _cells([*own, *map(_plain, cells)])


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
