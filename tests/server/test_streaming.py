"""Streamed answers on the real server: pieces as they are made, whole answers for the neighbours, no half answer unnoticed."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from models import decoders
from running import RunningServer

PROMPT = "kami ro"
NEW = 80


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A tiny language model that never ends by itself."""
    directory = decoders.save(tmp_path_factory.mktemp("writer") / "model", eos_token_id=None)
    with RunningServer(directory, {"HF_TASK": "text-generation"}) as running:
        yield running


def asked(stream: bool = True, **parameters: Any) -> dict[str, Any]:
    """A request for so many new tokens."""
    return {"inputs": PROMPT, "stream": stream, "parameters": {"max_new_tokens": NEW, "return_full_text": False, **parameters}}


def lines(server: RunningServer, body: Any, **headers: str) -> Iterator[tuple[float, dict[str, Any]]]:
    """When each line of a stream came, and what it holds."""
    with server.http.stream("POST", "/invocations", json=body, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["transfer-encoding"] == "chunked"
        assert answer.headers["content-type"] == "application/jsonlines"
        for line in answer.iter_lines():
            yield time.monotonic(), json.loads(line)


def joined(found: list[tuple[float, dict[str, Any]]]) -> str:
    return "".join(line["generated_text"] for _, line in found)


def whole(server: RunningServer, **parameters: Any) -> str:
    answer = server.invoke(asked(stream=False, **parameters))
    assert answer.status_code == 200, answer.text
    assert "transfer-encoding" not in answer.headers
    text: str = answer.json()["generated_text"]
    return text


def test_the_pieces_of_a_stream_are_the_answer(writer: RunningServer) -> None:
    found = list(lines(writer, asked()))
    assert len(found) > 5
    assert joined(found) == whole(writer)


def test_a_sampled_stream_is_the_answer_of_its_seed(writer: RunningServer) -> None:
    parameters: dict[str, Any] = {"do_sample": True, "seed": 7}
    assert joined(list(lines(writer, asked(**parameters)))) == whole(writer, **parameters)


def test_events_and_plain_text_carry_the_same_pieces(writer: RunningServer) -> None:
    expected = whole(writer)
    events = writer.invoke(asked(), Accept="text/event-stream")
    assert events.headers["content-type"] == "text/event-stream"
    data = [json.loads(event.removeprefix("data: ")) for event in events.text.split("\n\n") if event]
    assert "".join(event["generated_text"] for event in data) == expected
    plain = writer.invoke(asked(), Accept="text/plain")
    assert plain.headers["content-type"] == "text/plain"
    assert plain.text == expected


def test_events_are_for_streams_alone(writer: RunningServer) -> None:
    answer = writer.invoke(asked(stream=False), Accept="text/event-stream")
    assert answer.status_code == 406
    assert '"stream": true' in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ([asked(), asked()], "one record"),
        (asked(num_beams=2), "num_beams"),
        ({**asked(), "stream": "yes"}, "stream"),
    ],
)
def test_what_cannot_be_streamed_is_told_before_anything_is_sent(writer: RunningServer, body: Any, named: str) -> None:
    answer = writer.invoke(body)
    assert answer.status_code == 400
    assert named in answer.json()["error"]["message"]


def test_headers_come_with_a_stream_and_the_connection_serves_on(writer: RunningServer) -> None:
    attributes = {"X-Amzn-SageMaker-Custom-Attributes": "mine"}
    with writer.http.stream("POST", "/invocations", json=asked(), headers=attributes) as answer:
        answer.read()
        assert answer.headers["X-Amzn-SageMaker-Custom-Attributes"] == "mine"
        assert answer.headers["x-request-id"]
        assert not [name for name in answer.headers if name.startswith("x-byoc") or "ts_stream" in name]
    assert writer.invoke(asked(stream=False)).status_code == 200


def test_streams_and_whole_answers_at_once_each_get_their_own(writer: RunningServer) -> None:
    prompts = [f"kami {'ro ' * count}" for count in range(12)]
    expected = [writer.invoke({**asked(stream=False), "inputs": prompt}).json()["generated_text"] for prompt in prompts]
    found: dict[int, str] = {}

    def call(number: int) -> None:
        body = {**asked(stream=number % 2 == 0), "inputs": prompts[number % 12]}
        answer = writer.invoke(body)
        text = answer.text if number % 2 == 0 else None
        found[number] = (
            "".join(json.loads(line)["generated_text"] for line in text.splitlines())
            if text is not None
            else answer.json()["generated_text"]
        )

    callers = [threading.Thread(target=call, args=(number,)) for number in range(24)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert found == {number: expected[number % 12] for number in range(24)}


def test_an_old_client_gets_the_stream_until_the_connection_closes(writer: RunningServer) -> None:
    body = json.dumps(asked()).encode()
    answer = b""
    with socket.create_connection(("127.0.0.1", writer.port), timeout=60) as client:
        client.sendall(b"POST /invocations HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body))
        client.sendall(body)
        while piece := client.recv(1 << 16):
            answer += piece
    headers, _, content = answer.partition(b"\r\n\r\n")
    assert b"chunked" not in headers.lower()
    assert "".join(json.loads(line)["generated_text"] for line in content.splitlines()) == whole(writer)


def test_a_caller_who_leaves_ends_the_work_and_nothing_else(writer: RunningServer) -> None:
    before = writer.metrics()["byoc_inflight_requests"]
    for _ in range(20):
        with writer.http.stream("POST", "/invocations", json=asked()) as answer:
            next(answer.iter_lines())
    deadline = time.monotonic() + 20
    while writer.metrics()["byoc_inflight_requests"] != before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert joined(list(lines(writer, asked()))) == whole(writer)


def test_a_worker_that_dies_mid_stream_leaves_no_answer_that_looks_whole(tmp_path: Path) -> None:
    directory = decoders.save(tmp_path / "model", eos_token_id=None)
    with RunningServer(directory, {"HF_TASK": "text-generation"}) as server:
        (worker,) = server.workers()
        with pytest.raises(httpx.RemoteProtocolError):
            _read_and_kill(server, worker)
        server.wait_for_another_worker(worker)
        assert joined(list(lines(server, asked()))) == whole(server)
        assert server.metrics()["byoc_inflight_requests"] == 0


def _read_and_kill(server: RunningServer, pid: int) -> None:
    """Read a stream, and end the worker's process behind its first line."""
    for number, _ in enumerate(lines(server, asked(max_new_tokens=90))):
        if number == 0:
            os.kill(pid, signal.SIGKILL)


def test_a_transform_job_gets_whole_lines(tmp_path: Path) -> None:
    directory = decoders.save(tmp_path / "model", eos_token_id=None)
    with RunningServer(directory, {"HF_TASK": "text-generation", "SAGEMAKER_BATCH": "true"}) as server:
        body = "\n".join(json.dumps(asked()) for _ in range(3))
        answer = server.invoke(body, "application/jsonlines")
        assert answer.status_code == 200
        assert len(answer.text.splitlines()) == 3
        assert len({json.loads(line)["generated_text"] for line in answer.text.splitlines()}) == 1
