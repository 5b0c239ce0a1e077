"""Streams: pieces in their form, errors before and behind the first piece, and callers who leave."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from batch_handler import streaming
from batch_handler.application import load
from batch_handler.errors import invalid_record
from batch_handler.microbatch import Report
from batch_handler.pipeline import Pipeline
from batch_handler.request import Headers, Part, Request, Response
from batch_handler.settings import Settings
from models import decoders

Make = Callable[..., Settings]
WAIT_S = 30.0


def run(pieces: Iterator[str], form: streaming.Form = streaming.LINES, left: threading.Event | None = None) -> list[Response]:
    """All that a stream emits."""
    emitted: list[Response] = []
    ended = threading.Event()

    def emit(response: Response) -> None:
        emitted.append(response)
        if response.part is not Part.MORE:
            ended.set()

    stream = streaming.Stream(Request("id", Headers(), b""), form, pieces, emit, left or threading.Event())
    streaming.Streams(1).begin(stream)
    assert ended.wait(WAIT_S)
    return emitted


def breaking(after: int) -> Iterator[str]:
    yield from ["piece"] * after
    raise invalid_record("no more")


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        (None, "application/jsonlines"),
        ("*/*", "application/jsonlines"),
        ("application/json", "application/jsonlines"),
        ("text/event-stream", "text/event-stream"),
        ("text/plain", "text/plain"),
        ("text/html, text/event-stream;q=0.5", "application/jsonlines"),
    ],
)
def test_the_form_follows_from_accept(accept: str | None, media_type: str) -> None:
    assert streaming.form(accept).media_type == media_type


@pytest.mark.parametrize("form", streaming.FORMS)
def test_pieces_and_their_end_are_told_apart(form: streaming.Form) -> None:
    emitted = run(iter(["one\n", "zwei \u2028"]), form)
    assert [response.part for response in emitted] == [Part.MORE, Part.MORE, Part.LAST]
    assert [response.records for response in emitted] == [0, 0, 1]
    assert {response.content_type for response in emitted} == {form.media_type}
    assert emitted[0].body == form.piece("one\n")
    if form is not streaming.FORMS[-1]:
        assert all(response.body.rstrip(b"\n").count(b"\n") == 0 for response in emitted)


def test_an_error_before_the_first_piece_is_an_answer_like_any_other() -> None:
    (answer,) = run(breaking(0))
    assert (answer.status, answer.part) == (400, None)
    assert orjson.loads(answer.body)["error"]["message"] == "no more"


@pytest.mark.parametrize("form", streaming.FORMS)
def test_an_error_behind_a_piece_breaks_the_stream_off(form: streaming.Form) -> None:
    emitted = run(breaking(2), form)
    assert [response.part for response in emitted] == [Part.MORE, Part.MORE, Part.BROKEN]
    assert emitted[-1].bad_records == 1
    assert (b"no more" in emitted[-1].body) == (form.media_type != "text/plain")


def test_nothing_is_computed_for_a_caller_who_left() -> None:
    left = threading.Event()
    made: list[int] = []

    def pieces() -> Iterator[str]:
        for number in range(1_000):
            made.append(number)
            if number == 3:
                left.set()
            yield "x"

    run(pieces(), left=left)
    assert made == [0, 1, 2, 3]


@pytest.fixture
def writer(tmp_path: Path, settings: Make) -> Pipeline:
    """A pipeline over a tiny language model that never ends by itself."""
    application = load(decoders.save(tmp_path, eos_token_id=None), settings(HF_TASK="text-generation"))
    assert isinstance(application, Pipeline)
    return application


def request(identifier: str, **extra: Any) -> Request:
    body = {"inputs": "kami", "parameters": {"max_new_tokens": 40, "return_full_text": False}, **extra}
    return Request(identifier, Headers([("Content-Type", "application/json")]), orjson.dumps(body))


def test_a_batch_that_is_waited_for_gets_its_streams_whole(writer: Pipeline) -> None:
    streamed, plain = writer([request("one", stream=True), request("two")]).responses
    text = "".join(orjson.loads(line)["generated_text"] for line in streamed.body.splitlines())
    assert text == orjson.loads(plain.body)["generated_text"]


def test_cancelling_ends_a_stream_and_drops_what_waits(writer: Pipeline) -> None:
    emitted: list[tuple[int, Response]] = []
    changed = threading.Condition()

    def reply(answers: Sequence[tuple[int, Response]], _: Report | None) -> None:
        with changed:
            emitted.extend(answers)
            changed.notify_all()

    writer.serve([request("one", stream=True)], reply)
    with changed:
        assert changed.wait_for(lambda: emitted, WAIT_S)
    writer.cancel(["one", "unknown"])
    with changed:
        assert changed.wait_for(lambda: emitted[-1][1].part is Part.LAST, WAIT_S)
    assert len(emitted) < 40
