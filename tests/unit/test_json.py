"""application/json: read strictly, written compactly, never NaN."""

from __future__ import annotations

from typing import Any

import numpy
import orjson
import pytest

from batch_handler.errors import ServiceError, invalid_record
from batch_handler.formats.json import dump, read, write
from batch_handler.formats.options import Layout, ReadOptions
from batch_handler.request import Record

LAYOUT = Layout(columns=lambda result: [result], line=str)
OPTIONS = ReadOptions()


def refused(body: bytes) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        read(body, OPTIONS)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    "body",
    [
        b"NaN",
        b'{"inputs": NaN}',
        b"[Infinity]",
        b"[-Infinity]",
        b"1e999",
        b'{"inputs": "a", "x": 1e999}',
        b'{"inputs": "a"',
        b'["a", "b"',
        b'"a',
        b"{'inputs': 'a'}",
        b'{"inputs": "a",}',
        b'["a" "b"]',
        b"// comment\n1",
        b'"a\tb"',
        b'"\\x41"',
        b'"\\ud800"',
        b"{a: 1}",
        b"tru",
        b"01",
        b"",
        b"   ",
    ],
)
def test_what_is_not_strict_json_is_refused_and_says_so(body: bytes) -> None:
    assert "not valid JSON" in refused(body).message


def test_a_syntax_error_names_line_and_column() -> None:
    assert "line 2, column 3" in refused(b'{"inputs":\n  oops}').message


def test_bytes_that_are_not_utf8_are_named_by_their_place() -> None:
    assert "not UTF-8 text (byte 3 of it)" in refused(b'"a\xff"').message


def test_a_gzip_body_without_its_header_gets_the_hint() -> None:
    assert "Content-Encoding: gzip" in refused(b"\x1f\x8b\x08\x00junk").message


def test_a_byte_order_mark_is_no_part_of_the_document() -> None:
    (record,) = read(b"\xef\xbb\xbf" + b'"a"', OPTIONS).records
    assert isinstance(record, Record)
    assert record.inputs == "a"


@pytest.mark.parametrize("digits", [b"1" * 25, b"1" * 300, b"-" + b"9" * 40])
def test_huge_integers_neither_hang_nor_crash(digits: bytes) -> None:
    (record,) = read(b'{"inputs": "a", "id": ' + digits + b"}", OPTIONS).records
    assert isinstance(record, Record)


def test_characters_of_every_plane_are_read_and_written() -> None:
    text = "ä \u2028 \u2029 日本 🫖 \U0010ffff \x7f \x00"
    payload = read(orjson.dumps([text]), OPTIONS)
    assert isinstance(payload.records[0], Record)
    assert payload.records[0].inputs == text
    assert orjson.loads(write(payload, [text], LAYOUT)) == [text]


def test_a_body_of_several_values_one_per_line_is_read_as_json_lines() -> None:
    payload = read(b'{"inputs": "a"}\n\n{"inputs": "b", "id": 4}\r\n', OPTIONS)
    assert [record.inputs for record in payload.records if isinstance(record, Record)] == ["a", "b"]
    assert orjson.loads(write(payload, [{"s": 1}, {"s": 2}], LAYOUT)) == [{"s": 1}, {"id": 4, "s": 2}]


def test_a_bad_line_among_several_is_named_by_its_line() -> None:
    payload = read(b'"a"\n{"inputs": \n"c"', ReadOptions(placeholders=True))
    assert [isinstance(record, ServiceError) for record in payload.records] == [False, True, False]
    error = payload.first_error()
    assert error is not None
    assert error.record == 2


def test_a_document_over_several_lines_stays_one_document() -> None:
    assert len(read(b'[\n"a",\n"b"\n]', OPTIONS).records) == 2
    assert "not valid JSON" in refused(b'[\n"a",\n"b"\n').message


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_no_answer_holds_nan(number: float) -> None:
    assert dump({"score": number}) == b'{"score":null}'
    assert dump(numpy.array([1.5, number], dtype=numpy.float32)) == b"[1.5,null]"
    assert dump([numpy.float32(number)]) == b"[null]"


def test_answers_are_compact_and_end_without_a_newline() -> None:
    payload = read(b'[ "a" , "b" ]', OPTIONS)
    assert write(payload, [{"label": "x", "score": 0.5}, [1, 2]], LAYOUT) == b'[{"label":"x","score":0.5},[1,2]]'


def test_placeholders_stand_in_the_answer_as_objects() -> None:
    payload = read(b'["a", "b"]', OPTIONS)
    assert orjson.loads(write(payload, ["x", invalid_record("bad", 2)], LAYOUT))[1]["error"]["record"] == 2


@pytest.mark.parametrize("result", [object(), {1, 2}, "\ud800", b"bytes"])
def test_a_result_that_json_has_no_word_for_is_the_models_error(result: Any) -> None:
    with pytest.raises(ServiceError) as caught:
        dump(result)
    assert caught.value.status == 500


@pytest.mark.parametrize(
    "number",
    [2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**18, 10**19, 10**100, -(10**300)],
)
def test_integers_of_any_size_come_back_as_they_were(number: int) -> None:
    extras = b'"id":%d,"more":{"ids":[%d,1.5,"%d",null]}' % (number, number, number)
    payload = read(b'{"inputs":"a",' + extras + b"}", OPTIONS)
    vector = numpy.array([0.5, numpy.nan], numpy.float32)
    assert write(payload, [vector], LAYOUT) == b"{" + extras + b',"output":[0.5,null]}'


@pytest.mark.parametrize("bad", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b'"\\ud800"', b"1" * 400, b"1" * 5_000, b"0" * 25])
def test_beside_a_large_integer_json_is_as_strict_as_ever(bad: bytes) -> None:
    assert "not valid JSON" in refused(b'{"inputs": "a", "id": 18446744073709551616, "x": ' + bad + b"}").message


def test_in_arrays_of_numbers_large_integers_are_floats_and_an_id_beside_them_is_exact() -> None:
    payload = read(b'{"inputs": [18446744073709551616, 2], "id": 18446744073709551617}', ReadOptions(numbers=True))
    (record,) = payload.records
    assert isinstance(record, Record)
    assert record.inputs == [18446744073709551616.0, 2]
    assert isinstance(record.inputs[0], float)
    assert payload.nodes[0].extras == {"id": 18446744073709551617}
