"""Reading ahead gives TorchServe's message handler the very bytes that it would have read field by field."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from ts.protocol import otf_message_handler

from batch_handler.worker_protocol import READ_AHEAD, Reader, read_ahead


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The frontend's end and the worker's end of a connection."""
    one, other = socket.socketpair()
    yield one, other
    one.close()
    other.close()


def test_pieces_of_any_length_arrive_in_order(pair: tuple[socket.socket, socket.socket]) -> None:
    chooser = random.Random(1)
    lengths = [chooser.choice([0, 1, 4, 77, READ_AHEAD - 1, READ_AHEAD, READ_AHEAD + 1, 3 * READ_AHEAD]) for _ in range(200)]
    sent = chooser.randbytes(sum(lengths))
    frontend, worker = pair
    writer = threading.Thread(target=frontend.sendall, args=(sent,))
    writer.start()
    reader = Reader()
    received = [reader(worker, length) for length in lengths]
    writer.join()
    assert [len(piece) for piece in received] == lengths
    assert b"".join(received) == sent


def test_a_frontend_that_is_gone_ends_the_worker_quietly(pair: tuple[socket.socket, socket.socket]) -> None:
    frontend, worker = pair
    frontend.sendall(b"half")
    frontend.close()
    with pytest.raises(SystemExit) as ending:
        Reader()(worker, 8)
    assert ending.value.code == 0


def test_torchserve_understands_a_batch_that_was_read_ahead(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TS_DECODE_INPUT_REQUEST", "false")
    monkeypatch.setattr(otf_message_handler, "_retrieve_buffer", otf_message_handler._retrieve_buffer)
    read_ahead(otf_message_handler)
    frontend, worker = pair
    frontend.sendall(b"".join(message(number) for number in range(3)))
    for number in range(3):
        command, batch = otf_message_handler.retrieve_msg(worker)
        assert command == b"I"
        assert [bytes(entry["requestId"]) for entry in batch] == [b"one-%d" % number, b"two-%d" % number]
        assert batch[1]["headers"] == [{"name": b"Accept", "value": b"text/csv"}]
        assert batch[0]["parameters"][0]["value"] == b"body %d" % number


def message(number: int) -> bytes:
    """TorchServe's form of a batch of two requests."""

    def field(data: bytes) -> bytes:
        return struct.pack("!i", len(data)) + data

    end = struct.pack("!i", -1)

    def request(name: bytes) -> bytes:
        parameter = field(b"body") + field(b"text/plain") + field(b"body %d" % number)
        return field(name) + field(b"Accept") + field(b"text/csv") + end + parameter + end

    return b"I" + request(b"one-%d" % number) + request(b"two-%d" % number) + end
