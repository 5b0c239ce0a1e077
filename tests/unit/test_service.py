"""TorchServe's door: entries of a batch in, bodies and headers out, and a start that fails in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from batch_handler import service as door
from batch_handler.errors import ErrorType
from batch_handler.internal import FAILURE_FILE
from batch_handler.settings import SettingError, Settings

Make = Callable[..., Settings]


class Context:
    """What TorchServe hands a handler, as far as ours asks for it: the real one is made by its worker alone."""

    def __init__(self, directory: Path, headers: Sequence[dict[str, Any]] = ()) -> None:
        self.system_properties = {"model_dir": str(directory)}
        self.metrics: Any = None
        self._headers = headers
        self.statuses: dict[int, tuple[int, str]] = {}
        self.types: dict[int, str] = {}
        self.sent: dict[int, dict[str, str]] = {}

    def get_all_request_header(self, index: int) -> dict[str, Any]:
        return self._headers[index]

    def get_request_id(self, index: int) -> str:
        return f"request-{index}"

    def set_response_status(self, code: int, phrase: str, idx: int) -> None:
        self.statuses[idx] = (code, phrase)

    def set_response_content_type(self, idx: int, value: str) -> None:
        self.types[idx] = value

    def set_response_header(self, idx: int, key: str, value: str) -> None:
        self.sent.setdefault(idx, {})[key] = value


@pytest.fixture
def loaded(artefact: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The handler of a worker that has loaded its model."""
    for name, value in {"BYOC_DEVICE": "cpu", "BYOC_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(door, "_application", None)
    assert door.handle(None, Context(artefact("trained"))) == []
    return artefact("trained")


def test_the_handler_answers_each_entry_of_torchserves_batch(loaded: Path) -> None:
    headers: list[dict[str, Any]] = [{"content-type": "application/json"}, {"Content-Type": "text/csv"}, {"Accept": b"odd"}, {}]
    context = Context(loaded, headers)
    data: list[dict[str, Any]] = [{"body": bytearray(b'"kami"')}, {"body": b'kami\n"a"b'}, {"body": b'["kami"]'}, {"body": b"{"}]
    bodies = door.handle(data, context)
    good, bad = (200, "OK"), (400, "Bad Request")
    assert [context.statuses[index] for index in range(4)] == [good, bad, good, bad]
    assert all(isinstance(body, bytes) for body in bodies)
    assert context.types == dict.fromkeys(range(4), "application/json")
    assert [(sent["x-byoc-records"], sent["x-byoc-bad-records"]) for sent in context.sent.values()] == [
        ("1", "0"), ("0", "2"), ("1", "0"), ("0", "1"),
    ]  # fmt: skip
    assert context.sent[0]["x-byoc-batch"].startswith("requests=4;")
    assert [sent.get("x-byoc-error") for sent in context.sent.values()] == [None, "InvalidRecord", None, "InvalidRequest"]
    assert not any("x-byoc-stages" in sent for sent in context.sent.values())  # nobody asked


def test_every_status_of_ours_has_its_phrase() -> None:
    assert all(HTTPStatus(kind.status).phrase.isascii() for kind in ErrorType)


def test_a_model_that_cannot_be_loaded_is_told_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(FAILURE_FILE, str(tmp_path / "failure"))
    monkeypatch.setenv("HF_TASK", "poetry")
    monkeypatch.setattr(door, "_application", None)
    with pytest.raises(SettingError):
        door.handle(None, Context(tmp_path))
    sentence = (tmp_path / "failure").read_text("utf-8")
    assert sentence.startswith("HF_TASK=poetry is not a task of this image")
    assert caplog.messages == [sentence]
