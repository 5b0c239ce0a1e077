"""The conversation with the frontend: TorchServe's own reader and writer say the same of the same bytes."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ts.protocol import otf_message_handler

from batch_handler import service
from batch_handler.application import load
from batch_handler.request import Headers, Request, Response
from batch_handler.settings import Settings
from batch_handler.worker_protocol import READ_AHEAD, Conversation, DisconnectedError

Make = Callable[..., Settings]


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The frontend's end and the worker's end of a connection."""
    one, other = socket.socketpair()
    one.settimeout(30)
    yield one, other
    one.close()
    other.close()


def number(value: int) -> bytes:
    return struct.pack("!i", value)


def field(value: bytes) -> bytes:
    return number(len(value)) + value


def message(requests: list[tuple[str, dict[str, str], bytes]]) -> bytes:
    """A batch as TorchServe's frontend writes it."""
    written = b"I"
    for identifier, headers, body in requests:
        written += field(identifier.encode())
        written += b"".join(field(name.encode()) + field(value.encode()) for name, value in headers.items()) + number(-1)
        written += field(b"body") + field(b"application/json") + field(body) + number(-1)
    return written + number(-1)


def batches(seed: int) -> list[list[tuple[str, dict[str, str], bytes]]]:
    chooser = random.Random(seed)
    sizes = [0, 1, 77, 5_000, READ_AHEAD - 1, READ_AHEAD, READ_AHEAD + 1, 3 * READ_AHEAD]
    return [
        [
            (
                f"id-{index}-ü",
                {f"name-{place}": "v" * chooser.randint(0, 300) for place in range(chooser.randint(0, 12))},
                chooser.randbytes(chooser.choice(sizes)),
            )
            for index in range(chooser.randint(1, 9))
        ]
        for _ in range(12)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_batches_of_any_size_arrive_as_they_were_sent(pair: tuple[socket.socket, socket.socket], seed: int) -> None:
    frontend, worker = pair
    sent = batches(seed)
    writer = threading.Thread(target=frontend.sendall, args=(b"".join(message(batch) for batch in sent),))
    writer.start()
    conversation = Conversation(worker)
    for expected in sent:
        received = conversation.batch()
        assert [(one.id, dict(one.headers.as_mapping()), bytes(one.body)) for one in received] == expected
    writer.join()


def test_torchserves_own_reader_sees_the_same_batch(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TS_DECODE_INPUT_REQUEST", "false")
    frontend, worker = pair
    batch = [("one", {"content-type": "application/json"}, b"{}"), ("two", {}, b"")]
    frontend.sendall(message(batch))
    command, theirs = otf_message_handler.retrieve_msg(worker)
    assert command == b"I"
    assert [(entry["requestId"].decode(), bytes(entry["parameters"][0]["value"])) for entry in theirs] == [
        ("one", b"{}"), ("two", b""),
    ]  # fmt: skip


def test_a_frontend_that_is_gone_is_told_at_once(pair: tuple[socket.socket, socket.socket]) -> None:
    frontend, worker = pair
    frontend.sendall(message([("one", {}, b"x")])[:-20])
    frontend.close()
    with pytest.raises(DisconnectedError):
        Conversation(worker).batch()


def test_any_other_command_is_refused(pair: tuple[socket.socket, socket.socket]) -> None:
    frontend, worker = pair
    frontend.sendall(b"L")
    with pytest.raises(ValueError, match="command b'L'"):
        Conversation(worker).batch()


@pytest.mark.parametrize("length", [-2, -5, 2**31 - 1])
def test_a_length_that_nothing_has_is_refused_and_not_waited_for(pair: tuple[socket.socket, socket.socket], length: int) -> None:
    frontend, worker = pair
    frontend.sendall(b"I" + field(b"id") + field(b"name") + number(length) + b"x" * 64)
    with pytest.raises(ValueError, match=f"the length {length}"):
        Conversation(worker).batch()


class Context:
    """The part of TorchServe's context that its writer reads."""

    stopping_criteria: Any = None

    def __init__(self, response: Response, notes: dict[str, str]) -> None:
        self._response = response
        self._headers = {**response.headers, **notes}

    def get_response_content_type(self, _: int) -> str:
        return self._response.content_type

    def get_response_status(self, _: int) -> tuple[int, str]:
        return self._response.status, {200: "OK", 404: "Not Found"}[self._response.status]

    def get_response_headers(self, _: int) -> dict[str, str]:
        return self._headers


@pytest.mark.parametrize("size", [0, 5, 70_000])
def test_answers_are_written_as_torchserve_writes_them(pair: tuple[socket.socket, socket.socket], size: int) -> None:
    frontend, worker = pair
    response = Response(200 if size else 404, "application/json", b"x" * size, {"X-One": "1"})
    notes = {"x-byoc-records": "1"}
    expected = otf_message_handler.create_predict_response(
        [response.body], {0: "id"}, "answers", 200, context=Context(response, notes)
    )
    writer = threading.Thread(target=Conversation(worker).answer, args=([("id", response, notes)],))
    writer.start()
    received = b""
    while len(received) < len(expected):
        received += frontend.recv(1 << 20)
    writer.join()
    assert received == bytes(expected)


def test_answers_of_many_threads_never_mix(pair: tuple[socket.socket, socket.socket]) -> None:
    frontend, worker = pair
    conversation = Conversation(worker)
    size, threads, each = 100_000, 4, 10

    def answer(number: int) -> None:
        for _ in range(each):
            conversation.answer([(str(number), Response(200, "text/plain", bytes([number]) * size), {})])

    senders = [threading.Thread(target=answer, args=(number,)) for number in range(threads)]
    for sender in senders:
        sender.start()
    conversation_length = threads * each * (len(_one_answer(b"0" * size)))
    received = bytearray()
    while len(received) < conversation_length:
        received += frontend.recv(1 << 20)
    for sender in senders:
        sender.join()
    step = len(received) // (threads * each)
    for start in range(0, len(received), step):
        assert len(set(received[start + step - 4 - size : start + step - 4])) == 1


def _one_answer(body: bytes) -> bytes:
    response = Response(200, "text/plain", body)
    written: bytes = bytes(
        otf_message_handler.create_predict_response([body], {0: "0"}, "answers", 200, context=Context(response, {}))
    )
    return written


def test_a_loaded_model_serves_batch_after_batch_until_the_frontend_is_gone(
    pair: tuple[socket.socket, socket.socket], artefact: Callable[..., Path], settings: Make
) -> None:
    frontend, worker = pair
    application = load(artefact("trained"), settings(BYOC_THREADS="2"))
    headers = {"content-type": "application/json"}
    first = [Request(f"0-{index}", one.headers, b'"kami"') for index, one in enumerate(_requests(headers, 3))]
    ended: list[SystemExit] = []

    def serve() -> None:
        try:
            service.converse(Conversation(worker), application, first)
        except SystemExit as end:
            ended.append(end)

    server = threading.Thread(target=serve)
    server.start()
    expected = {f"0-{index}" for index in range(3)}
    for number_of_batch in (1, 2):
        batch = [(f"{number_of_batch}-{index}", headers, b'["kami","ro"]') for index in range(4)]
        expected |= {identifier for identifier, _, _ in batch}
        frontend.sendall(message(batch))
    received = b""
    while sum(identifier.encode() in received for identifier in expected) < len(expected) or received.count(b"x-byoc-batch") < 3:
        received += frontend.recv(1 << 16)
    assert received.count(b"answers") >= 3
    frontend.close()
    server.join(30)
    assert [end.code for end in ended] == [0]


def _requests(headers: dict[str, str], count: int) -> list[Request]:
    return [Request(str(index), Headers(headers.items()), b"") for index in range(count)]
