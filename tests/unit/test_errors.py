"""Errors: one printable line, short, with their place."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batch_handler.errors import MESSAGE_LIMIT, QUOTE_LIMIT, ErrorType, ServiceError, invalid_record, invalid_request, quote

ANYTHING = st.text(max_size=600) | st.text(st.characters(categories=["Cs", "Cc", "Zl", "Zp", "Lo"]), max_size=600)


@given(ANYTHING)
def test_every_message_is_one_short_line_that_utf8_can_hold(text: str) -> None:
    message = invalid_record(f"the text {quote(text)} is bad: {text}").message
    assert len(message) <= MESSAGE_LIMIT
    assert message.isprintable()
    assert len(message.splitlines()) == 1
    assert orjson.loads(invalid_record(text).body())["error"]["type"] == "InvalidRecord"


def test_a_long_message_is_cut_and_shows_that_it_was() -> None:
    assert invalid_request("x" * 1_000).message == "x" * (MESSAGE_LIMIT - 1) + "…"
    assert invalid_request("x" * MESSAGE_LIMIT).message == "x" * MESSAGE_LIMIT


@given(st.recursive(st.none() | st.integers() | st.floats() | ANYTHING, st.lists, max_leaves=20))
def test_a_quotation_never_shows_more_than_eighty_characters(value: object) -> None:
    assert len(quote(value)) <= QUOTE_LIMIT + 2


def test_a_value_of_any_depth_and_size_can_be_quoted() -> None:
    deep: object = "a"
    for _ in range(5_000):
        deep = [deep]
    assert quote(deep) == "[" * (QUOTE_LIMIT - 1) + "…"
    assert len(quote([{"a": "x" * 10_000}] * 10_000)) <= QUOTE_LIMIT + 2


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        (2**70, "1180591620717411303424"),
        ({"a": [1, None, "ä"]}, '{"a":[1,null,"ä"]}'),
        ({}, "{}"),
        ("null", "'null'"),
        ({"a": {1}}, '{"a":"{1}"}'),
    ],
)
def test_values_are_quoted_in_the_words_of_json(value: object, words: str) -> None:
    assert quote(value) == words


def test_an_error_takes_its_place_once() -> None:
    assert invalid_record("bad").at(3).record == 3
    assert invalid_record("bad", 2).at(3).record == 2
    error = ServiceError(ErrorType.NOT_ACCEPTABLE, "bad", headers={"a": "b"}).at(1)
    assert (error.headers, error.status) == ({"a": "b"}, 406)


def test_the_body_has_the_documented_shape() -> None:
    assert orjson.loads(invalid_record("bad", 3).body()) == {"error": {"type": "InvalidRecord", "message": "bad", "record": 3}}
    assert orjson.loads(invalid_request("bad").body()) == {"error": {"type": "InvalidRequest", "message": "bad"}}


def test_every_type_has_a_label_of_its_own_and_an_error_status() -> None:
    assert len({kind.label for kind in ErrorType}) == len(ErrorType)
    assert all(400 <= kind.status < 600 and kind.status != 429 for kind in ErrorType)
