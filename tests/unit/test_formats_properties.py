"""What holds for every format and every body: nothing is lost, nothing changes places, nothing but our own errors is raised."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_handler import formats
from batch_handler.errors import ServiceError
from batch_handler.formats import FORMATS, Layout, ReadOptions
from batch_handler.request import Payload, Record

LAYOUT = Layout(columns=lambda result: [result], line=str)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
TEXTS = st.lists(TEXT, min_size=1, max_size=20)
LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), min_size=1).filter(
    lambda line: bool(line.encode().strip()) and not line.startswith("\ufeff")
)
quick = settings(max_examples=300, deadline=2_000)


def inputs(payload: Payload) -> list[object]:
    return [record.inputs for record in payload.records if isinstance(record, Record)]


@quick
@given(TEXTS)
def test_json_keeps_count_order_and_content(texts: list[str]) -> None:
    payload = formats.json.read(orjson.dumps(texts), ReadOptions())
    assert inputs(payload) == texts
    assert orjson.loads(formats.json.write(payload, texts, LAYOUT)) == texts


@quick
@given(TEXTS)
def test_json_lines_keep_count_order_and_content(texts: list[str]) -> None:
    body = b"\n".join(orjson.dumps(text) for text in texts)
    payload = formats.json_lines.read(body, ReadOptions())
    assert inputs(payload) == texts
    assert formats.json_lines.write(payload, texts, LAYOUT) == body


@quick
@given(TEXTS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_quoted_csv_keeps_count_order_and_content(end: str, texts: list[str]) -> None:
    body = end.join('"' + text.replace('"', '""') + '"' for text in texts)
    payload = formats.csv.read(body.encode(), ReadOptions())
    assert inputs(payload) == texts
    written = formats.csv.write(payload, texts, LAYOUT)
    flat = [[text.replace("\r", " ").replace("\n", " ")] for text in texts]
    assert list(csv.reader(io.StringIO(written.decode(), newline=""))) == flat
    assert written.count(b"\n") == len(texts) - 1


@quick
@given(st.lists(LINE, min_size=1, max_size=20), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_text_keeps_count_order_and_content(texts: list[str], end: str, last: bool) -> None:
    payload = formats.text.read((end.join(texts) + (end if last else "")).encode(), ReadOptions())
    assert inputs(payload) == texts
    assert len(formats.text.write(payload, texts, LAYOUT).split(b"\n")) == len(texts)


LINES = [b"", b"  ", b'"a"', b"{", b"\xff", b'["a", "b"]', b"[]", b'{"inputs": "a", "id": 1}', b'"open', b'a","b', b'"a"\r']


@quick
@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=12))
@pytest.mark.parametrize("name", ["json_lines", "text", "csv"])
@pytest.mark.parametrize("answer", [formats.json_lines, formats.text, formats.csv], ids=lambda module: module.__name__[22:])
def test_a_job_gets_exactly_one_line_of_answer_for_each_physical_line(name: str, answer: Any, lines: list[bytes]) -> None:
    form = next(form for form in FORMATS if form.name == name)
    payload = form.read(b"\n".join(lines) + b"\n", ReadOptions(placeholders=True))
    numbers = [record.number if isinstance(record, Record) else record.record for record in payload.records]
    assert numbers == sorted(numbers)
    if name != "json_lines":
        assert numbers == list(range(1, len(lines) + 1))
    results = [record if isinstance(record, ServiceError) else "result" for record in payload.records]
    rows = answer.write(payload, results, LAYOUT).split(b"\n")
    assert len(rows) == len(lines)
    bad = {number for number, result in zip(numbers, results, strict=True) if isinstance(result, ServiceError)}
    assert all(b"error" in rows[number - 1] for number in bad)


FRAGMENTS = st.sampled_from(
    [b"\n", b"\r\n", b'"', b'""', b",", b"\\", b"{", b"}", b"[", b"]", b'{"inputs":', b'"a"', b"null", b"\xff", b"\xef\xbb\xbf",
     b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"1e999", b"\x00", "\u2028".encode(), b"\xed\xa0\x80"]
)  # fmt: skip
BODIES = st.one_of(st.binary(max_size=300), st.lists(FRAGMENTS, max_size=40).map(b"".join))


def read_or_refused(form: formats.Format, body: bytes, options: ReadOptions) -> Payload | ServiceError:
    try:
        return form.read(body, options)
    except ServiceError as error:
        return error


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@pytest.mark.parametrize("options", [ReadOptions(), ReadOptions(placeholders=True, csv_header=True, fields={"a": "inputs"})])
def test_any_bytes_give_a_payload_or_an_error_of_the_callers(form: formats.Format, options: ReadOptions) -> None:
    @quick
    @given(BODIES)
    def holds(body: bytes) -> None:
        payload = read_or_refused(form, body, options)
        if isinstance(payload, ServiceError):
            assert 400 <= payload.status < 500
            return
        assert all(isinstance(record, Record) or 400 <= record.status < 500 for record in payload.records)
        slots = [slot for node in payload.nodes for slot in node.leaves()]
        assert slots == list(range(len(payload.records)))

    run: Callable[[], None] = holds
    run()


KEYS = st.sampled_from(["inputs", "instances", "parameters", "id"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner),
    max_leaves=12,
)


@quick
@given(VALUES)
def test_any_json_value_gets_an_answer_of_its_own_shape(value: object) -> None:
    payload = formats.json.read(orjson.dumps(value), ReadOptions(placeholders=True))
    results = [record if isinstance(record, ServiceError) else 1 for record in payload.records]
    answer = orjson.loads(formats.json.write(payload, results, LAYOUT))
    if isinstance(value, list):
        assert isinstance(answer, list)
        assert len(answer) == len(value)
