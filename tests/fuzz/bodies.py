"""What holds for any body in any format: our own errors or a whole payload, and answers whose shape follows from the bytes.

Where another reader of the same format exists, what ours accepts the other accepts too, with the same content.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy
import orjson
import torch

from batch_handler import formats
from batch_handler.errors import ErrorType, ServiceError
from batch_handler.formats import Format, Layout, ReadOptions, exact, npy
from batch_handler.formats.lines import BYTE_ORDER_MARK
from batch_handler.request import Payload, Record
from batch_handler.user_code import defaults

UNFOLDED = 1 << 20
"""The size limit of compressed containers here: far over any input, far under what an input can unfold to."""
OPTIONS: Sequence[ReadOptions] = (
    ReadOptions(limit=UNFOLDED),
    ReadOptions(limit=UNFOLDED, placeholders=True),
    ReadOptions(limit=UNFOLDED, csv_header=True),
    ReadOptions(limit=UNFOLDED, placeholders=True, csv_header=True),
    ReadOptions(limit=UNFOLDED, numbers=True),
    ReadOptions(limit=UNFOLDED, numbers=True, placeholders=True),
    ReadOptions(limit=UNFOLDED, fields={"text": "inputs", "k": "parameters.top_k"}, streams=True),
    ReadOptions(limit=UNFOLDED, max_records=3),
)
LAYOUT = Layout(columns=lambda result: [result], line=str)
LINE_FORMATS = ("json_lines", "csv", "text")
SCRIPT_TYPES = (defaults.JSON, "text/csv", "application/x-npy")

Same = Callable[[bytes, ReadOptions, Payload], None]


def refusal(error: ServiceError, kind: ErrorType | None = None) -> None:
    """A caller's fault has a status of a caller's fault, and a sentence that can be sent."""
    assert 400 <= error.status < 500, error
    assert kind is None or error.type is kind
    assert error.message.isprintable()
    assert 0 < len(error.message) <= 400
    orjson.loads(error.body())


def body(form: Format, same: Same | None = None) -> Callable[[bytes], None]:
    """A target: the first byte chooses the options, the others are the body."""

    def run(data: bytes) -> None:
        if len(data) < 2:
            return
        options, content = OPTIONS[data[0] % len(OPTIONS)], data[1:]
        try:
            payload = form.read(content, options)
        except ServiceError as error:
            refusal(error)
            return
        _whole(payload)
        _written(form, content, options, payload)
        if same is not None:
            same(content, options, payload)

    return run


def _whole(payload: Payload) -> None:
    """Every record has one place in the answer, in order, and numbers that rise."""
    for record in payload.records:
        if isinstance(record, ServiceError):
            refusal(record)
    slots = [slot for node in payload.nodes for slot in node.leaves()]
    assert slots == list(range(len(payload.records)))
    numbers = [record.number if isinstance(record, Record) else record.record for record in payload.records]
    assert all(number is not None and number >= 1 for number in numbers)
    assert numbers == sorted(numbers)


def _written(form: Format, content: bytes, options: ReadOptions, payload: Payload) -> None:
    """Every format that can hold the answer holds it whole; in a job, one line for every line of a line format."""
    results = [record if isinstance(record, ServiceError) else 0.5 for record in payload.records]
    for writer in formats.FORMATS:
        if writer.name not in ("json", *LINE_FORMATS):
            continue
        try:
            answer = writer.write(payload, results, LAYOUT)
        except ServiceError as error:
            refusal(error)
            assert not options.placeholders or form.name not in LINE_FORMATS, "a line of a job cost more than its place"
            continue
        if options.placeholders and form.name in LINE_FORMATS and writer.name in LINE_FORMATS:
            assert answer.count(b"\n") + 1 == _answer_lines(form, content, options)


def _answer_lines(form: Format, content: bytes, options: ReadOptions) -> int:
    physical = content.removeprefix(BYTE_ORDER_MARK).split(b"\n")
    if not physical[-1]:
        physical.pop()
    has_header = form.name == "csv" and options.csv_header and any(line.strip() for line in physical)
    return len(physical) - has_header


def same_json(content: bytes, options: ReadOptions, payload: Payload) -> None:
    """What is read as one document is what the standard library reads; what is written again is the same value."""
    try:
        value = exact.loads(content.removeprefix(BYTE_ORDER_MARK))
    except orjson.JSONDecodeError:
        return
    text = content.removeprefix(BYTE_ORDER_MARK).decode("utf-8")
    try:
        assert _equal(value, json.loads(text, parse_constant=_no_number))
    except RecursionError:  # the standard library's own limit lies below
        return
    try:
        again = exact.dumps(value)
    except orjson.JSONEncodeError:  # deeper than orjson writes, and than a record may be
        return
    assert _equal(exact.loads(again), value)


def _no_number(word: str) -> float:
    raise AssertionError(f"{word} is no JSON")


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    return type(one) is type(other) and bool(one == other)


def same_csv(content: bytes, options: ReadOptions, payload: Payload) -> None:
    """Texts that were read come back from the rows that any writer of RFC 4180 makes of them."""
    texts = [record.inputs for record in payload.records if isinstance(record, Record)]
    if options.numbers or options.placeholders or options.csv_header or not texts or len(texts) < len(payload.records):
        return
    buffer = io.StringIO(newline="")
    csv.writer(buffer, quoting=csv.QUOTE_ALL).writerows([text] for text in texts)
    # A newline inside quotes counts towards the limit, and the writer adds one at the end.
    again = formats.csv.read(buffer.getvalue().encode(), replace(options, max_records=len(content) + 1))
    assert [record.inputs for record in again.records if isinstance(record, Record)] == texts


def same_npy(content: bytes, options: ReadOptions, payload: Payload) -> None:
    """NumPy's own reader gives the same array."""
    _same_array(npy.load(content), numpy.load(io.BytesIO(content), allow_pickle=False))


def same_npz(content: bytes, options: ReadOptions, payload: Payload) -> None:
    """NumPy's own reader gives the same arrays."""
    first = payload.records[0]
    assert isinstance(first, Record)
    with numpy.load(io.BytesIO(content), allow_pickle=False) as archive:
        for name, entry in first.inputs.items():
            if name in archive.files:
                _same_array(numpy.asarray(entry), numpy.asarray(archive[name][0]))


def _same_array(one: numpy.ndarray[Any, Any], other: numpy.ndarray[Any, Any]) -> None:
    assert (one.shape, one.dtype) == (other.shape, other.dtype)
    assert one.tobytes() == other.tobytes()


def script_input(data: bytes) -> None:
    """A script without an input_fn: a tensor, or the caller's error."""
    if len(data) < 2:
        return
    kind, content = SCRIPT_TYPES[data[0] % len(SCRIPT_TYPES)], data[1:]
    try:
        value = content if kind == "application/x-npy" else content.decode("utf-8")
    except UnicodeDecodeError:  # refused before the script is asked
        return
    try:
        tensor = defaults.input_fn(value, kind)
    except ServiceError as error:
        refusal(error)
        return
    assert isinstance(tensor, torch.Tensor)


BODIES: Mapping[str, Callable[[bytes], None]] = {
    form.name: body(form, same)
    for form, same in zip(formats.FORMATS, (same_json, None, same_csv, None, same_npy, same_npz, None), strict=True)
    if form.name != "images"
}
