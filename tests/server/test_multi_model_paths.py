"""The paths of a multi-model endpoint: any name is taken, a list comes in pages, what cannot be is refused with a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from running import RunningServer
from shelf import Shelf, error, together

TEXT = {"inputs": "good day"}
ODD_NAMES = ("a" * 64, "ä b/c", "../../etc/passwd", "..", "100%", "a+b", 'quotes"\\', "模型", "invoke", "x/invoke", "?q=1#f")


def test_any_printable_name_is_a_name_and_none_is_a_path(shelf: Shelf, small_script: Path) -> None:
    names = list(ODD_NAMES)
    answers = together([lambda name=name: shelf.load(name, small_script) for name in names])
    assert [answer.status_code for answer in answers] == [200] * len(names)
    for name in names:
        assert shelf.describe(name).json()["modelName"] == name
        assert shelf.call(name, TEXT).status_code == 200
    assert shelf.names(limit=3) == sorted(names, key=lambda name: name.encode("utf-16-be"))


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\0b", "\x7f", "a" * 1_025])
def test_what_cannot_be_a_name_is_refused(shelf: Shelf, small_script: Path, name: str) -> None:
    assert error(shelf.load(name, small_script)) == (
        400,
        "BadRequest",
        "A model's name is 1 to 1024 printable characters in UTF-8.",
    )


@pytest.mark.parametrize("path", ["/models/%ff", "/models/%4", "/models//", "/models/a/b", "/models/a/b/invoke"])
def test_a_path_that_names_no_model_is_refused_with_a_sentence(shelf: Shelf, path: str) -> None:
    assert error(shelf.http.get(path))[:2] == (400, "BadRequest")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("nonsense", "JSON object with model_name and url"),
        ("[]", "JSON object with model_name and url"),
        ('{"model_name": "a"}', "no url"),
        ('{"url": "/opt"}', "no model_name"),
        ('{"model_name": "a", "url": {}}', "no url"),
        ('{"model_name": 5, "url": "/opt"}', "no model_name"),
        ('{"model_name": "a", "url": "s3://bucket/model"}', "is not accepted: use the absolute path"),
        ('{"model_name": "a", "url": "/opt/nothing/here"}', "there is nothing at the url"),
        ('{"model_name": "a", "url": "/' + "a" * 60_000 + '"}', "there is nothing at the url"),
        ('{"model_name": "a", "url": "http://["}', "the url 'http://[' is not accepted"),
    ],
)
def test_a_load_that_cannot_be_is_refused_with_what_is_wrong(shelf: Shelf, body: str, said: str) -> None:
    status, kind, message = error(shelf.http.post("/models", content=body))
    assert (status, kind) == (400, "BadRequest")
    assert said in message
    assert shelf.names() == []


def test_a_load_of_nothing_but_brackets_takes_no_memory(multi_model: RunningServer, shelf: Shelf) -> None:
    assert error(shelf.http.post("/models", content=b"[" * 20_000_000))[:2] == (413, "PayloadTooLarge")
    assert multi_model.ping() == 200


def test_a_long_name_makes_no_long_sentence(shelf: Shelf) -> None:
    status, kind, message = error(shelf.describe("ä" * 1_000))
    assert (status, kind) == (404, "NotFound")
    assert len(message) < 200


def test_the_list_comes_in_pages_that_hold_every_model_once(shelf: Shelf, small_script: Path) -> None:
    names = [f"m{number:02}" for number in range(5)]
    together([lambda name=name: shelf.load(name, small_script) for name in names])
    first = shelf.page(limit=2)
    assert [model["modelName"] for model in first["models"]] == names[:2]
    last = shelf.page(limit=3, nextPageToken=first["nextPageToken"])
    assert [model["modelName"] for model in last["models"]] == names[2:]
    assert "nextPageToken" not in last
    assert error(shelf.http.get("/models?limit=0"))[0] == 400
    assert error(shelf.http.get("/models?nextPageToken=***"))[0] == 400
    bad_query = error(shelf.http.get("/models?limit=%"))
    assert bad_query == (400, "BadRequest", "The query is not percent-encoded: a % needs two digits.")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("PUT", "/models", "GET, POST"), ("POST", "/models/a", "GET, DELETE"), ("GET", "/models/a/invoke", "POST")],
)
def test_a_wrong_method_is_told_the_right_ones(shelf: Shelf, method: str, path: str, allowed: str) -> None:
    answer = shelf.http.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


def test_a_call_without_a_model_is_told_where_models_are_called(multi_model: RunningServer) -> None:
    status, _, message = error(multi_model.invoke(TEXT, X_Amzn_SageMaker_Target_Model="one"))
    assert status == 404
    assert "/models/{name}/invoke" in message
    assert multi_model.http.get("/execution-parameters").status_code == 200
