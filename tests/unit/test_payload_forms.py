"""The payload forms: which records a JSON value holds, and which shape the answer gets again."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from batch_handler.errors import ServiceError, invalid_record
from batch_handler.formats import BY_MEDIA_TYPE, Layout, ReadOptions
from batch_handler.formats.json import read, write
from batch_handler.formats.values import DEPTH_LIMIT
from batch_handler.request import Payload, Record

LAYOUT = Layout(columns=lambda result: [result], line=str)


def payload(value: Any, **options: Any) -> Payload:
    return read(orjson.dumps(value), ReadOptions(**options))


def inputs(read_payload: Payload) -> list[Any]:
    return [record.inputs for record in read_payload.records if isinstance(record, Record)]


def answer(value: Any, results: list[Any] | None = None, **options: Any) -> Any:
    read_payload = payload(value, **options)
    results = [f"r{i}" for i in range(len(read_payload.records))] if results is None else results
    return orjson.loads(write(read_payload, results, LAYOUT))


@pytest.mark.parametrize(
    ("value", "records", "expected"),
    [
        ("a", ["a"], "r0"),
        ("", [""], "r0"),
        (["a"], ["a"], ["r0"]),
        (["a", "b"], ["a", "b"], ["r0", "r1"]),
        ([], [], []),
        ({"inputs": "a"}, ["a"], "r0"),
        ({"inputs": ["a"]}, ["a"], ["r0"]),
        ({"inputs": ["a", "b"]}, ["a", "b"], ["r0", "r1"]),
        ({"inputs": []}, [], []),
        ({"inputs": "a", "parameters": None}, ["a"], "r0"),
        ([{"inputs": "a"}, {"inputs": "b"}], ["a", "b"], ["r0", "r1"]),
        ([{"inputs": ["a", "b"]}, "c"], ["a", "b", "c"], [["r0", "r1"], "r2"]),
        ({"instances": ["a", "b"]}, ["a", "b"], ["r0", "r1"]),
        ({"instances": [{"inputs": "a"}, "b"]}, ["a", "b"], ["r0", "r1"]),
        ([["a", "b"], [], "c"], ["a", "b", "c"], [["r0", "r1"], [], "r2"]),
        ([[["a"]], [["b", "c"]]], ["a", "b", "c"], [[["r0"]], [["r1", "r2"]]]),
        ({"inputs": {"text": "a", "text_pair": "b"}}, [{"text": "a", "text_pair": "b"}], "r0"),
        ({"inputs": ["a", {"text": "b"}]}, ["a", {"text": "b"}], ["r0", "r1"]),
    ],
)
def test_every_form_gives_its_records_in_order_and_its_own_shape_back(value: Any, records: list[Any], expected: Any) -> None:
    assert inputs(payload(value)) == records
    assert answer(value) == expected


def test_records_are_numbered_from_one_through_the_whole_body() -> None:
    numbers = [record.number for record in payload([["a", "b"], {"inputs": ["c"]}, "d"]).records if isinstance(record, Record)]
    assert numbers == [1, 2, 3, 4]


def test_parameters_reach_every_record_beside_them_and_none_other() -> None:
    read_payload = payload([{"inputs": ["a", "b"], "parameters": {"top_k": 2}}, "c"])
    assert [dict(record.parameters) for record in read_payload.records if isinstance(record, Record)] == [
        {"top_k": 2},
        {"top_k": 2},
        {},
    ]


def test_a_member_with_parameters_of_its_own_keeps_them() -> None:
    value = {"inputs": [{"inputs": "a", "parameters": {"top_k": 1}}, {"inputs": "b"}], "parameters": {"top_k": 3}}
    assert [dict(record.parameters) for record in payload(value).records if isinstance(record, Record)] == [
        {"top_k": 1},
        {"top_k": 3},
    ]


@pytest.mark.parametrize(
    ("value", "results", "expected"),
    [
        ({"inputs": "a", "id": 7}, [{"label": "x"}], {"id": 7, "label": "x"}),
        ({"inputs": "a", "id": 7}, [[1, 2]], {"id": 7, "output": [1, 2]}),
        ({"inputs": ["a", "b"], "id": 7}, [1, 2], {"id": 7, "output": [1, 2]}),
        ([{"inputs": "a", "id": 1}, {"inputs": "b", "id": 2}], [{"s": 1}, {"s": 2}], [{"id": 1, "s": 1}, {"id": 2, "s": 2}]),
        ({"instances": ["a"], "tag": None}, [5], {"tag": None, "output": [5]}),
        ({"inputs": [{"inputs": "a", "id": 1}, "b"]}, [{"s": 1}, {"s": 2}], [{"id": 1, "s": 1}, {"s": 2}]),
    ],
)
def test_the_callers_own_keys_come_back_with_the_result(value: Any, results: list[Any], expected: Any) -> None:
    assert answer(value, results) == expected


def test_an_error_stands_in_its_records_place_with_the_callers_keys() -> None:
    results = [invalid_record("no good", 1), {"s": 2}]
    assert answer([{"inputs": "a", "id": 1}, {"inputs": "b", "id": 2}], results) == [
        {"id": 1, "error": {"type": "InvalidRecord", "message": "no good", "record": 1}},
        {"id": 2, "s": 2},
    ]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "null"),
        (7, "a number"),
        (1.5, "a number"),
        (True, "true or false"),
        ({}, "an object without keys is no record"),
        ({"text": "a"}, "an object with the key 'text' is no record"),
        ({"text": "a", "id": 1}, "an object with the keys 'text, id' is no record"),
        ({"inputs": "a", "instances": ["b"]}, "an object with both 'inputs' and 'instances'"),
        ({"instances": "a"}, "'instances' must be a list"),
        ({"inputs": "a", "parameters": [1]}, "'parameters' must be an object, not a list"),
        ({"inputs": "a", "parameters": "x"}, "'parameters' must be an object, not a text"),
    ],
)
def test_a_value_that_is_no_record_is_an_error_in_its_place(value: Any, words: str) -> None:
    first, bad, last = payload(["a", value, "c"], placeholders=True).records
    assert isinstance(bad, ServiceError)
    assert words in bad.message
    assert bad.record == 2
    assert bad.status == 400
    assert isinstance(first, Record)
    assert isinstance(last, Record)
    assert last.number == 3


def test_fields_are_mapped_to_inputs_and_parameters_and_the_rest_comes_back() -> None:
    fields = {"sentence": "inputs", "k": "parameters.top_k"}
    (record,) = payload({"sentence": "a", "k": 2, "id": 9}, fields=fields).records
    assert isinstance(record, Record)
    assert (record.inputs, dict(record.parameters)) == ("a", {"top_k": 2})
    assert answer({"sentence": "a", "k": 2, "id": 9}, [{"s": 1}], fields=fields) == {"id": 9, "s": 1}


def test_fields_are_mapped_inside_instances_and_leave_plain_inputs_alone() -> None:
    fields = {"sentence": "inputs"}
    assert inputs(payload({"instances": [{"sentence": "a"}, "b"]}, fields=fields)) == ["a", "b"]
    assert answer({"inputs": "a", "sentence": "mine"}, [{"s": 1}], fields=fields) == {"sentence": "mine", "s": 1}


FIELDS = {"text": "inputs", "p": "parameters.prompt"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"text": "a", "p": "q", "parameters": {"top_k": 2}}, {"prompt": "q", "top_k": 2}),
        ({"text": "a", "p": "q", "parameters": {"prompt": "plain"}}, {"prompt": "q"}),
        ({"text": "a", "p": "q", "parameters": None}, {"prompt": "q"}),
        ({"text": "a", "parameters": {"top_k": 2}}, {"top_k": 2}),
        ({"inputs": "a", "p": "q"}, {"prompt": "q"}),
        ({"inputs": ["a"], "p": "q", "parameters": {"top_k": 2}}, {"prompt": "q", "top_k": 2}),
        ({"instances": ["a"], "p": "q"}, {"prompt": "q"}),
        ({"inputs": [{"text": "a", "p": "q"}], "parameters": {"top_k": 2}}, {"prompt": "q", "top_k": 2}),
        ({"inputs": [{"text": "a", "p": "own"}], "p": "all"}, {"prompt": "own"}),
    ],
)
def test_mapped_parameters_stand_beside_the_callers_own_and_win_over_them(value: Any, expected: dict[str, Any]) -> None:
    (record,) = payload(value, fields=FIELDS).records
    assert isinstance(record, Record)
    assert (record.inputs, dict(record.parameters)) == ("a", expected)
    assert b"prompt" not in write(payload(value, fields=FIELDS), ["r"], LAYOUT)
    assert b'"p"' not in write(payload(value, fields=FIELDS), ["r"], LAYOUT)


def test_mapped_parameters_do_not_hide_parameters_of_a_wrong_kind() -> None:
    (error,) = payload({"text": "a", "p": "q", "parameters": [1]}, fields=FIELDS).records
    assert isinstance(error, ServiceError)
    assert "'parameters' must be an object, not a list" in error.message


def test_a_field_that_is_called_inputs_already_stays_it() -> None:
    assert inputs(payload({"inputs": "a", "p": "q"}, fields={"inputs": "inputs", "p": "parameters.prompt"})) == ["a"]


def test_lists_may_lie_in_lists_up_to_a_limit_and_beyond_it_only_that_record_is_refused() -> None:
    def nested(levels: int) -> Any:
        value: Any = "a"
        for _ in range(levels):
            value = [value]
        return value

    assert inputs(payload(nested(DEPTH_LIMIT))) == ["a"]
    deep = nested(200)
    body = b"\n".join(orjson.dumps(value) for value in ("x", deep, {"inputs": deep}, {"inputs": "b", "id": deep}, "y"))
    records = BY_MEDIA_TYPE["application/jsonlines"].read(body, ReadOptions(placeholders=True)).records
    assert [isinstance(record, ServiceError) for record in records] == [False, True, True, True, False]
    assert all("nested" in record.message for record in records if isinstance(record, ServiceError))


def refusal(body: bytes) -> ServiceError:
    """The error of the body or of its only record."""
    try:
        (record,) = read(body, ReadOptions()).records
    except ServiceError as error:
        return error
    assert isinstance(record, ServiceError)
    return record


@pytest.mark.parametrize("levels", [300, 600, 990, 1_010, 1_500, 100_000])
def test_no_depth_of_nesting_breaks_the_reader(levels: int) -> None:
    for opening, inner, closing in ((b"[", b'"a"', b"]"), (b'{"inputs":', b'"a"', b"}"), (b'{"a":', b"1", b"}")):
        assert refusal(opening * levels + inner + closing * levels).status == 400
