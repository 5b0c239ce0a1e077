"""text/plain: a line in, a line out."""

from __future__ import annotations

import orjson
import pytest

from batch_handler.errors import ServiceError, invalid_record
from batch_handler.formats.json import read as read_json
from batch_handler.formats.json_lines import read as read_json_lines
from batch_handler.formats.options import Layout, ReadOptions
from batch_handler.formats.text import read, write
from batch_handler.request import Record

LAYOUT = Layout(columns=lambda result: [result], line=str)


def test_each_line_is_a_record_and_blank_ones_are_skipped_at_an_endpoint() -> None:
    records = read(b'one, "two"\r\n\n  three\xc2\xa0\n', ReadOptions()).records
    assert [(record.number, record.inputs) for record in records if isinstance(record, Record)] == [
        (1, 'one, "two"'),
        (3, "  three\u00a0"),
    ]


def test_a_line_that_is_not_utf8_costs_only_itself() -> None:
    records = read(b"a\n\xff\nc", ReadOptions(placeholders=True)).records
    assert [isinstance(record, ServiceError) for record in records] == [False, True, False]
    assert isinstance(records[1], ServiceError)
    assert records[1].record == 2


def test_blank_lines_of_a_job_are_errors_in_their_places() -> None:
    records = read(b"a\n\nc\n", ReadOptions(placeholders=True)).records
    assert [isinstance(record, ServiceError) for record in records] == [False, True, False]


@pytest.mark.parametrize("body", [b"\n", b" \n\t\n", b"\xef\xbb\xbf"])
def test_a_body_without_text_is_refused(body: bytes) -> None:
    with pytest.raises(ServiceError):
        read(body, ReadOptions())


def test_a_result_of_several_lines_is_written_on_one() -> None:
    payload = read(b"a\nb\nc", ReadOptions())
    body = write(payload, ["x\ny\r\nz", invalid_record("bad", 2), "last"], LAYOUT)
    lines = body.split(b"\n")
    assert lines[0] == b"x y z"
    assert orjson.loads(lines[1])["error"]["record"] == 2
    assert lines[2:] == [b"last"]


def test_at_an_endpoint_reading_ends_at_the_first_bad_line() -> None:
    records = read(b"a\n\xff\nc", ReadOptions()).records
    assert [isinstance(record, ServiceError) for record in records] == [False, True]


def test_each_line_of_a_job_is_one_line_of_text_whatever_it_holds() -> None:
    payload = read_json_lines(b'"a"\n["b", "c"]\n[]\n["d"]\n{"inputs": "e", "id": 1}', ReadOptions(placeholders=True))
    lines = write(payload, ["A", "B", "C", "D", "E"], LAYOUT).split(b"\n")
    assert [lines[0], *lines[3:]] == [b"A", b"D", b"E"]
    assert [orjson.loads(line)["error"]["record"] for line in lines[1:3]] == [2, 3]


def test_at_an_endpoint_a_line_of_several_results_makes_no_text() -> None:
    payload = read_json_lines(b'"a"\n["b", "c"]', ReadOptions())
    with pytest.raises(ServiceError) as caught:
        write(payload, ["A", "B", "C"], LAYOUT)
    assert (caught.value.status, caught.value.record) == (406, 2)


def test_a_json_document_of_several_texts_is_as_many_lines() -> None:
    assert write(read_json(b'{"inputs": ["a", "b"]}', ReadOptions()), ["A", "B"], LAYOUT) == b"A\nB"
