"""``stream`` beside ``inputs`` is a parameter of tasks that can stream, and of all others the caller's own key."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from batch_handler.errors import ServiceError
from batch_handler.formats import BY_MEDIA_TYPE, ReadOptions
from batch_handler.request import Payload, Record


def payload(value: Any, streams: bool = True, media_type: str = "application/json") -> Payload:
    return BY_MEDIA_TYPE[media_type].read(orjson.dumps(value), ReadOptions(streams=streams))


@pytest.mark.parametrize("media_type", ["application/json", "application/jsonlines"])
@pytest.mark.parametrize(
    ("value", "parameters"),
    [
        ({"inputs": "a", "stream": True}, {"stream": True}),
        ({"inputs": "a", "stream": True, "parameters": None}, {"stream": True}),
        ({"inputs": "a", "stream": True, "parameters": {"seed": 1}}, {"stream": True, "seed": 1}),
        ({"inputs": "a", "stream": True, "parameters": {"stream": False}}, {"stream": False}),
        ({"inputs": "a", "parameters": {"stream": True}}, {"stream": True}),
        ({"inputs": [{"role": "user", "content": "a"}], "stream": True}, {"stream": True}),
        ({"inputs": "a", "stream": "yes"}, {"stream": "yes"}),
    ],
)
def test_a_streaming_task_reads_it_as_a_parameter(media_type: str, value: Any, parameters: dict[str, Any]) -> None:
    read = payload(value, media_type=media_type)
    (record,) = read.records
    assert isinstance(record, Record)
    assert record.parameters == parameters
    assert not any(node.extras for top in read.nodes for node in top.walk())


def test_it_holds_for_every_record_of_a_list() -> None:
    for value in ({"inputs": ["a", "b"], "stream": True}, {"instances": ["a", "b"], "stream": True}):
        assert [record.parameters for record in payload(value).records] == [{"stream": True}] * 2  # type: ignore[union-attr]


def test_other_keys_still_go_back_with_the_answer() -> None:
    (node,) = payload({"inputs": "a", "stream": True, "id": 7}).nodes
    assert node.extras == {"id": 7}


def test_bad_parameters_stay_the_records_error() -> None:
    (error,) = payload({"inputs": "a", "stream": True, "parameters": 5}).records
    assert isinstance(error, ServiceError)
    assert "'parameters' must be an object" in error.message


def test_elsewhere_it_is_the_callers_own_key() -> None:
    read = payload({"inputs": "a", "stream": True}, streams=False)
    (record,) = read.records
    assert isinstance(record, Record)
    assert (record.parameters, read.nodes[0].extras) == ({}, {"stream": True})
