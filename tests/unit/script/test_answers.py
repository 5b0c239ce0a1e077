"""What a user's script returns, as bytes on the wire."""

from __future__ import annotations

import io

import numpy
import orjson

from scripting import ECHO, MakeScript, message, one


def test_a_tuple_names_its_type_and_bytes_go_out_as_they_are(script: MakeScript) -> None:
    answering = script(ECHO + "\ndef output_fn(prediction, accept): return b'\\x00\\xff', 'image/png'")
    response = one(answering, "x")
    assert (response.body, response.content_type) == (b"\x00\xff", "image/png")


def test_any_object_is_written_as_json(script: MakeScript) -> None:
    answering = script(
        ECHO
        + """
import numpy, torch, datetime, collections, decimal, enum, pathlib
class Colour(enum.Enum): RED = "red"
Point = collections.namedtuple("Point", "x y")
def predict_fn(data, model):
    return {
        "nan": float("nan"), "list": [1.5, float("inf")], numpy.int64(3): "three", 4: "four", None: 1, b"k": b"v\\xff",
        "float32": numpy.float32(1.5), "bool": numpy.bool_(True), "array": numpy.arange(4).reshape(2, 2)[:, 1],
        "tensor": torch.tensor([1.0, float("nan")]), "scalar": torch.tensor(2), "grad": torch.ones(1, requires_grad=True),
        "set": {1}, "point": Point(1, 2), "big": 2**70, "half": numpy.float16(0.5), "surrogate": "\\ud800",
        "decimal": decimal.Decimal("1.5"), "enum": Colour.RED, "path": pathlib.Path("a/b"), "bfloat": torch.ones(1).bfloat16(),
    }
def output_fn(prediction, accept): return prediction
"""
    )
    response = one(answering, "x", Accept="image/png")
    assert response.content_type == "application/json"
    assert orjson.loads(response.body.replace(str(2**70).encode(), b"0")) == {
        "nan": None, "list": [1.5, None], "3": "three", "4": "four", "null": 1, "k": "v\ufffd",
        "float32": 1.5, "bool": True, "array": [1, 3], "tensor": [1.0, None], "scalar": 2, "grad": [1.0],
        "set": [1], "point": [1, 2], "big": 0, "half": 0.5, "surrogate": "?",
        "decimal": 1.5, "enum": "red", "path": "a/b", "bfloat": [1.0],
    }  # fmt: skip


def test_what_json_has_no_word_for_is_an_error_of_its_request(script: MakeScript) -> None:
    answering = script(ECHO + "\ndef output_fn(prediction, accept): return object()")
    response = one(answering, "x")
    assert (response.status, message(response)) == (500, "the script's result (object) cannot be written as JSON")


def test_accepted_csv_npy_and_lines_are_written_from_objects(script: MakeScript) -> None:
    answering = script(ECHO + "\nimport numpy\ndef output_fn(prediction, accept): return numpy.array([[1.0, 2.5], [3.0, 4.0]])")
    assert one(answering, "x", Accept="text/csv").body == b"1.0,2.5\n3.0,4.0"
    array = numpy.load(io.BytesIO(one(answering, "x", Accept="application/x-npy").body))
    assert array.tolist() == [[1.0, 2.5], [3.0, 4.0]]
    lists = script(ECHO + "\ndef output_fn(prediction, accept): return [{'a': 1}, 2]")
    assert one(lists, "x", Accept="application/jsonlines").body == b'{"a":1}\n2'


def test_an_answer_over_the_limit_names_it(script: MakeScript) -> None:
    answering = script(ECHO + "\ndef output_fn(prediction, accept): return 'x' * 2_000_000", BYOC_MAX_RESPONSE_MB="1")
    response = one(answering, "x")
    assert response.status == 413
    assert "BYOC_MAX_RESPONSE_MB" in message(response)
