"""text/csv by RFC 4180: rows keep their places, quotes are honoured, nothing is guessed."""

from __future__ import annotations

import csv
import io
import time
from typing import Any

import numpy
import orjson
import pytest

from batch_handler.errors import ServiceError, invalid_record
from batch_handler.formats.csv import read, write
from batch_handler.formats.json import read as read_json
from batch_handler.formats.json_lines import read as read_json_lines
from batch_handler.formats.options import Layout, ReadOptions
from batch_handler.negotiation import request_choice
from batch_handler.request import Payload, Record

TEXT = Layout(columns=lambda result: [result], line=str)
JOB = ReadOptions(placeholders=True)
CELLS = Layout(columns=lambda result: result, line=str)
ROWS = 30_000
PATIENCE = 20
"""Seconds of the processor: linear time takes one, quadratic time minutes."""


def shown(payload: Payload) -> list[Any]:
    return [(record.number, record.inputs) if isinstance(record, Record) else record.record for record in payload.records]


def texts(body: bytes, **options: Any) -> list[Any]:
    return shown(read(body, ReadOptions(**options)))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"a\nb\n", [(1, "a"), (2, "b")]),
        (b"a\r\nb", [(1, "a"), (2, "b")]),
        (b'"a, b"\n', [(1, "a, b")]),
        (b'"say ""hello"""\n', [(1, 'say "hello"')]),
        (b'""\n"x"', [(1, ""), (2, "x")]),
        (b'"two\nlines"\nnext', [(1, "two\nlines"), (3, "next")]),
        (b'"two\r\nlines"\r\nnext\r\n', [(1, "two\r\nlines"), (3, "next")]),
        (b'"a\n\n\nb"\nc', [(1, "a\n\n\nb"), (5, "c")]),
        (b"\xef\xbb\xbfa\nb", [(1, "a"), (2, "b")]),
        ("ä\u2028ö\n日本".encode(), [(1, "ä\u2028ö"), (2, "日本")]),
        (b'5\n1e9\n" 7"', [(1, "5"), (2, "1e9"), (3, " 7")]),
        (b'6" pipe\n', [(1, '6" pipe')]),
        (b"\n\na\n \nb\n", [(3, "a"), (5, "b")]),
    ],
)
def test_rows_are_read_as_the_standard_says(body: bytes, expected: list[Any]) -> None:
    assert texts(body) == expected


@pytest.mark.parametrize("bad", [b"a,b", b'"a","b"', b'"a"b', b'"a" ', b"\xff\xfe", b'"a\xff"'])
def test_a_bad_row_keeps_its_place_and_spares_its_neighbours(bad: bytes) -> None:
    assert texts(b"one\n" + bad + b"\nthree", placeholders=True) == [(1, "one"), 2, (3, "three")]


@pytest.mark.parametrize("bad", [b"a,b", b'"a"b', b'"a\xff"', b'"open'])
def test_at_an_endpoint_reading_ends_at_the_first_bad_row(bad: bytes) -> None:
    assert texts(b"one\n" + bad + b"\nthree\na,b") == [(1, "one"), 2]


def test_an_unterminated_quote_does_not_swallow_the_rows_below_it() -> None:
    found = texts(b'one\n"open\nthree\nfour\n"five, quoted"\nsix', placeholders=True)
    assert found == [(1, "one"), 2, (3, "three"), (4, "four"), (5, "five, quoted"), (6, "six")]
    assert texts(b'one\n"open', placeholders=True) == texts(b'one\n"open') == [(1, "one"), 2]


def test_in_a_job_a_quoted_field_ends_with_its_line() -> None:
    assert texts(b'one\n"two\nlines"\n"x\ry"\r\nfour', placeholders=True) == [
        (1, "one"), 2, (3, 'lines"'), (4, "x\ry"), (5, "four"),
    ]  # fmt: skip


def test_a_row_that_is_not_utf8_inside_an_open_quote_costs_what_is_broken_and_no_more() -> None:
    assert texts(b'"open\nfine\n\xff\n"last"', placeholders=True) == [1, (2, "fine"), 3, (4, "last")]


def test_blank_rows_of_a_job_are_records_with_their_error() -> None:
    assert texts(b'a\n\n"x"\n \n', placeholders=True) == [(1, "a"), 2, (3, "x"), 4]


def test_a_body_of_blank_rows_is_refused() -> None:
    with pytest.raises(ServiceError) as caught:
        texts(b"\n\n")
    assert caught.value.status == 400


def test_with_a_header_rows_are_objects_and_other_columns_come_back() -> None:
    payload = read(b'id,inputs\n1,"a, b"\n2,c\n', ReadOptions(csv_header=True))
    assert shown(payload) == [(2, "a, b"), (3, "c")]
    assert write(payload, ["x", "y"], TEXT) == b"1,x\n2,y"


def test_with_a_header_fields_name_the_input_column() -> None:
    payload = read(b"sentence\nhello\n", ReadOptions(csv_header=True, fields={"sentence": "inputs"}))
    assert shown(payload) == [(2, "hello")]


def test_with_a_header_a_row_of_another_width_is_a_bad_row() -> None:
    payload = read(b"id,inputs\n1,a\n2\n3,c,d\n4,e", ReadOptions(csv_header=True, placeholders=True))
    assert shown(payload) == [(2, "a"), 3, 4, (5, "e")]


@pytest.mark.parametrize("body", [b"a,a\n1,2", b'"open\n1', b"inputs\n", b"\n\n"])
def test_a_header_that_cannot_be_used_refuses_the_body(body: bytes) -> None:
    with pytest.raises(ServiceError) as caught:
        read(body, ReadOptions(csv_header=True))
    assert caught.value.status == 400


def test_a_bad_header_is_named_by_its_own_line() -> None:
    with pytest.raises(ServiceError) as caught:
        read(b'\n\n"open\n1', ReadOptions(csv_header=True))
    assert caught.value.record == 3


def test_a_body_of_a_header_alone_is_refused_as_that() -> None:
    for options in (ReadOptions(csv_header=True), ReadOptions(csv_header=True, placeholders=True)):
        with pytest.raises(ServiceError, match=r"the body holds a header, .*, and no row below it"):
            read(b"id,inputs\n", options)


def test_blank_lines_before_the_header_are_not_it_and_count_in_a_job() -> None:
    body = b"\n \nid,inputs\n1,a\n"
    assert texts(body, csv_header=True) == [(4, "a")]
    assert texts(body, csv_header=True, placeholders=True) == [1, 2, (4, "a")]
    assert texts(b"\n\n", csv_header=True, placeholders=True) == [1, 2]


@pytest.mark.parametrize(
    ("content_type", "setting", "expected"),
    [
        ("text/csv; header=present", False, [(2, "a")]),
        ("text/csv; header=Present; charset=utf-8", False, [(2, "a")]),
        ("text/csv; header=absent", True, [(1, "inputs"), (2, "a")]),
        ("text/csv; header=perhaps", True, [(2, "a")]),
        ("text/csv", True, [(2, "a")]),
        ("text/csv", False, [(1, "inputs"), (2, "a")]),
        ("text/plain; header=present", False, [(1, "inputs"), (2, "a")]),
    ],
)
def test_the_content_type_tells_of_the_header_before_the_setting_does(content_type: str, setting: bool, expected: Any) -> None:
    choice, _ = request_choice(content_type, {"text"})
    assert shown(choice.format.read(b"inputs\na", ReadOptions(csv_header=setting))) == expected


def test_without_a_header_the_first_row_is_a_record() -> None:
    assert texts(b"text\nhello")[0] == (1, "text")


@pytest.mark.parametrize(
    "row",
    [
        b"plain text",
        b'"quoted, text"',
        b'"open',
        b'a","b',
        b'"a""',
        b'""a',
        b'","',
        b'"',
        b'x,"',
        b'"\xff',
        b'a","\xff',
    ],
)
@pytest.mark.parametrize("options", [ReadOptions(), JOB], ids=["endpoint", "job"])
def test_very_many_rows_take_linear_time(row: bytes, options: ReadOptions) -> None:
    started = time.process_time()
    payload = read((row + b"\n") * ROWS, options)
    assert time.process_time() - started < PATIENCE
    assert 0 < len(payload.records) <= ROWS


@pytest.mark.parametrize(("options", "records"), [(ReadOptions(), 1), (JOB, ROWS + 1)], ids=["endpoint", "job"])
def test_a_late_fault_under_many_open_quotes_takes_linear_time(options: ReadOptions, records: int) -> None:
    started = time.process_time()
    payload = read(b'a","b\n' * ROWS + b'c"d\n', options)
    assert time.process_time() - started < PATIENCE
    assert len(payload.records) == records


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        (b'"three\nlines\neach"\n', ReadOptions(max_records=3)),
        (b'"a ""word""\n\nand another"\n', ReadOptions(max_records=3)),
        (b"\n\n \na\n", ReadOptions(max_records=3)),
        (b"a\n", ReadOptions(max_records=3, placeholders=True)),
    ],
    ids=["quoted lines", "quotes in them", "blank lines", "lines of a job"],
)
def test_records_are_counted_and_not_lines(rows: bytes, options: ReadOptions) -> None:
    assert len(read(rows * 3, options).records) == 3
    with pytest.raises(ServiceError, match="more than 3 records") as caught:
        read(rows * 4, options)
    assert caught.value.status == 413


@pytest.mark.parametrize("piece", [b"\n", b'""\n', b'\n\n""\n', "ä\n".encode()])
def test_a_field_of_very_many_lines_is_one_record_in_linear_time(piece: bytes) -> None:
    started = time.process_time()
    field = piece * ROWS * 10
    payload = read(b'first\n"' + field + b'"\nlast', ReadOptions(max_records=3))
    assert time.process_time() - started < PATIENCE
    assert [record.number for record in payload.records if isinstance(record, Record)] == [1, 2, 3 + field.count(b"\n")]
    assert payload.records[1].inputs == field.replace(b'""', b'"').decode()  # type: ignore[union-attr]


def test_a_byte_that_is_not_utf8_is_told_by_its_place_in_its_own_line() -> None:
    (error,) = read(b'"first\nsecond\nthi\xffrd"', ReadOptions()).records
    assert isinstance(error, ServiceError)
    assert (error.record, error.message) == (1, "the line is not UTF-8 text (byte 4 of it)")


def test_vectors_are_rows_of_numbers_and_holes_where_there_is_none() -> None:
    payload = read(b"a\nb", ReadOptions())
    body = write(payload, [numpy.array([1.5, -2], numpy.float32), numpy.array([numpy.nan, 0.25], numpy.float32)], CELLS)
    assert body == b"1.5,-2.0\n,0.25"


@pytest.mark.parametrize("score", [float("nan"), float("inf"), float("-inf")])
def test_no_cell_holds_nan(score: float) -> None:
    assert write(read(b"a", ReadOptions()), [["label", score]], CELLS) == b"label,"


def test_every_record_is_one_physical_row_whatever_its_text_holds() -> None:
    payload = read(b"a\nb\nc\nd", ReadOptions())
    body = write(payload, ["one\ntwo\r\nthree", 'say "x", y', "", invalid_record("bad, row", 4)], TEXT)
    lines = body.split(b"\n")
    assert len(lines) == 4
    rows = list(csv.reader(io.StringIO(body.decode())))
    assert rows[0] == ["one two  three"]
    assert rows[1] == ['say "x", y']
    assert rows[2] == [""]
    assert orjson.loads(rows[3][0]) == {"error": {"type": "InvalidRecord", "message": "bad, row", "record": 4}}


def test_lone_carriage_returns_do_not_break_a_row() -> None:
    assert write(read(b"a", ReadOptions()), ["x\ry"], TEXT) == b"x y"


def test_columns_stand_in_one_order_whatever_the_order_of_a_records_keys() -> None:
    payload = read_json(b'[{"inputs": "a", "id": 1, "tag": "x"}, {"tag": "y", "id": 2, "inputs": "b"}]', ReadOptions())
    assert write(payload, ["r", "s"], TEXT) == b"1,x,r\n2,y,s"


def test_a_placeholder_needs_no_keys_of_the_other_rows() -> None:
    payload = read_json(b'{"inputs": "a", "id": 1}\n{oops\n{"inputs": "c", "id": 3}', JOB)
    first, error, last = write(payload, ["x", payload.records[1], "z"], TEXT).split(b"\n")
    assert (first, last) == (b"1,x", b"3,z")
    assert b"error" in error
    assert write(payload, [payload.records[1]] * 3, TEXT).count(b"error") == 3


def test_records_with_uneven_keys_make_no_csv() -> None:
    payload = read_json(b'[{"inputs": "a", "id": 1}, {"inputs": "b"}]', ReadOptions())
    with pytest.raises(ServiceError) as caught:
        write(payload, ["x", "y"], TEXT)
    assert caught.value.status == 406


def test_a_key_that_holds_a_list_makes_no_csv() -> None:
    payload = read_json(b'{"inputs": "a", "id": [1]}', ReadOptions())
    with pytest.raises(ServiceError) as caught:
        write(payload, ["x"], TEXT)
    assert caught.value.status == 406


def test_nested_lists_are_as_many_rows_as_records() -> None:
    payload = read_json(b'[["a", "b"], {"inputs": ["c"]}]', ReadOptions())
    assert write(payload, ["x", "y", "z"], TEXT) == b"x\ny\nz"


MIXED = [
    b'"a"',
    b'["b", "c"]',
    b"[]",
    b'{"inputs": ["d", "e"]}',
    b'["f"]',
    b'{"inputs": "g", "id": 1}',
    b'{"inputs": []}',
    b"{oops",
    b'"h"',
]


def test_each_line_of_a_job_is_one_row_whatever_it_holds() -> None:
    payload = read_json_lines(b"\n".join(MIXED), JOB)
    results = [record if isinstance(record, ServiceError) else record.inputs for record in payload.records]
    rows = [row[0] for row in csv.reader(io.StringIO(write(payload, results, TEXT).decode()))]
    assert [number for number, row in enumerate(rows, 1) if not row.startswith("{")] == [1, 5, 9]
    errors = [orjson.loads(row)["error"] for row in rows if row.startswith("{")]
    assert [error["record"] for error in errors] == [2, 3, 4, 6, 7, 8]
    assert [error["type"] for error in errors] == ["NotAcceptable"] * 5 + ["InvalidRecord"]


@pytest.mark.parametrize("line", [b'["b", "c"]', b"[]", b'{"inputs": "b", "id": 1}'])
def test_at_an_endpoint_a_line_that_is_not_one_row_is_406_and_named(line: bytes) -> None:
    payload = read_json_lines(b'"a"\n\n' + line + b'\n"z"', ReadOptions())
    with pytest.raises(ServiceError) as caught:
        write(payload, ["r"] * len(payload.records), TEXT)
    assert (caught.value.status, caught.value.record) == (406, 3)


def test_in_a_job_the_first_line_that_is_answered_decides_the_columns() -> None:
    body = b'{oops\n{"inputs": "a", "id": 1}\n"b"\n{"inputs": "c", "id": [3]}\n{"inputs": "d", "id": 18446744073709551616}'
    payload = read_json_lines(body, JOB)
    rows = write(payload, [payload.records[0], "A", "B", "C", "D"], TEXT).split(b"\n")
    assert (rows[1], rows[4]) == (b"1,A", b"18446744073709551616,D")
    assert all(b'""error""' in rows[place] for place in (0, 2, 3))
