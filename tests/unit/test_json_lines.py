"""JSON Lines: every physical line on its own."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from batch_handler.errors import ServiceError, invalid_record
from batch_handler.formats.json import read as read_json
from batch_handler.formats.json_lines import read, write
from batch_handler.formats.options import Layout, ReadOptions
from batch_handler.request import Payload, Record

LAYOUT = Layout(columns=lambda result: [result], line=str)
JOB = ReadOptions(placeholders=True)


def shown(payload: Payload) -> list[Any]:
    """Texts by their lines, errors as their lines alone."""
    return [(record.number, record.inputs) if isinstance(record, Record) else record.record for record in payload.records]


def test_each_line_is_a_record_numbered_by_its_physical_line() -> None:
    assert shown(read(b'"a"\n{"inputs": "b"}\n', ReadOptions())) == [(1, "a"), (2, "b")]


def test_a_bad_line_keeps_its_place_and_spares_its_neighbours() -> None:
    payload = read(b'"a"\n{"inputs": \n"c"\nnull\n"e"', JOB)
    assert shown(payload) == [(1, "a"), 2, (3, "c"), 4, (5, "e")]


def test_bytes_that_are_not_utf8_cost_only_their_line() -> None:
    payload = read(b'"a"\n"\xff\xfe"\n"c"', JOB)
    assert shown(payload) == [(1, "a"), 2, (3, "c")]
    error = payload.first_error()
    assert error is not None
    assert "not UTF-8" in error.message


def test_blank_lines_are_skipped_at_an_endpoint_but_still_counted() -> None:
    assert shown(read(b'\n"a"\n \t\r\n"b"\n\n', ReadOptions())) == [(2, "a"), (4, "b")]


def test_blank_lines_of_a_job_are_records_with_their_error() -> None:
    payload = read(b'\n"a"\n  \n"b"\n\n', ReadOptions(placeholders=True))
    assert shown(payload) == [1, (2, "a"), 3, (4, "b"), 5]
    error = payload.first_error()
    assert error is not None
    assert "blank" in error.message


def test_a_newline_at_the_end_starts_no_line() -> None:
    options = ReadOptions(placeholders=True)
    assert len(read(b'"a"', options).records) == len(read(b'"a"\n', options).records) == 1
    assert len(read(b'"a"\r\n', options).records) == 1


@pytest.mark.parametrize("body", [b"\n", b"\n\n \n", b"\r\n", b"\xef\xbb\xbf\n"])
def test_a_body_of_blank_lines_only_is_refused_at_an_endpoint(body: bytes) -> None:
    with pytest.raises(ServiceError) as caught:
        read(body, ReadOptions())
    assert caught.value.status == 400


def test_byte_order_mark_and_crlf_are_no_part_of_a_line() -> None:
    assert shown(read(b'\xef\xbb\xbf"a"\r\n"b"\r\n', ReadOptions())) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e"])
def test_only_the_newline_ends_a_line(character: str) -> None:
    body = orjson.dumps(f"one{character}line") + b"\n" + f'"b{character}c"'.encode()
    payload = read(body, ReadOptions())
    assert len(payload.records) == 2
    assert shown(payload)[0] == (1, f"one{character}line")


def test_a_line_that_is_a_list_is_answered_by_a_list_on_one_line() -> None:
    payload = read(b'["a","b"]\n"c"', ReadOptions())
    assert write(payload, [1, 2, 3], LAYOUT) == b"[1,2]\n3"


def test_the_answer_has_one_physical_line_per_line_whatever_the_results_hold() -> None:
    payload = read(b'"a"\n"b"\n"c"\n"d"', ReadOptions())
    body = write(payload, ["x\ny\r\n\u2028z", float("nan"), invalid_record("bad\nline", 3), {"a": [1.5]}], LAYOUT)
    assert not body.endswith(b"\n")
    parsed = [orjson.loads(line) for line in body.split(b"\n")]
    assert parsed[0] == "x\ny\r\n\u2028z"
    assert parsed[1] is None
    assert parsed[2]["error"]["message"] == "bad line"
    assert parsed[3] == {"a": [1.5]}


def test_a_json_document_with_several_inputs_is_answered_by_as_many_lines() -> None:
    assert write(read_json(b'{"inputs": ["a", "b"]}', ReadOptions()), [1, 2], LAYOUT) == b"1\n2"
    assert write(read_json(b'["a", "b"]', ReadOptions()), [1, 2], LAYOUT) == b"1\n2"
    assert write(read_json(b'"a"', ReadOptions()), [1], LAYOUT) == b"1"
    assert write(read_json(b'{"inputs": ["a", "b"], "id": 3}', ReadOptions()), [1, 2], LAYOUT) == b'{"id":3,"output":[1,2]}'


@pytest.mark.parametrize("bad", [b"{oops", b"null", b'"\xff"', b'["x", null]'])
def test_at_an_endpoint_reading_ends_at_the_first_bad_line(bad: bytes) -> None:
    payload = read(b'"a"\n' + bad + b'\n"c"\n{oops', ReadOptions())
    assert shown(payload)[-1] == 2


def test_large_integers_come_back_as_they_were_beside_lines_without_any() -> None:
    payload = read(b'{"inputs": "a", "id": 18446744073709551616}\n{"inputs": "b", "id": 1.5}', ReadOptions())
    assert write(payload, [{"s": 1}, {"s": float("nan")}], LAYOUT) == b'{"id":18446744073709551616,"s":1}\n{"id":1.5,"s":null}'


def test_a_line_nested_deeper_than_python_can_read_costs_only_itself() -> None:
    deep = b"[" * 1_000 + b"1" * 25 + b"]" * 1_000
    payload = read(b'"a"\n' + deep + b'\n"c"', JOB)
    assert shown(payload) == [(1, "a"), 2, (3, "c")]
