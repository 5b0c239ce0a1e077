"""Talks to the frontend over a worker's socket in TorchServe's message format. Used by `service` alone.

TorchServe's own loop asks the kernel for every field by itself, and sends nothing before a whole batch is answered: the
cores idle while messages travel, and a request that is done waits for its neighbours. Here messages are read in large
pieces, and answers leave one by one, from any thread, while the next batch is read. The frontend of this project takes
them so; any other gets TorchServe's loop.

Format: ts/protocol/otf_message_handler.py of TorchServe 0.12. Numbers are 4 bytes, big-endian; texts follow their length.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus

from batch_handler.request import Headers, Request, Response
from batch_handler.stages import Stages

READ_AHEAD = 256 * 1024
LONGEST = 1025 * 1024 * 1024
"""More than the largest body that SAGEMAKER_MAX_PAYLOAD_IN_MB allows."""
PREDICT = b"I"
END_OF_LIST = -1
OK = 200
ANSWERS = b"answers"
"""The message that marks answers given ahead of their batch's end; the frontend hands them straight to their callers."""
SMALL = 64 * 1024
NUMBER = struct.Struct("!i")


class DisconnectedError(Exception):
    """The frontend is gone; no answer can reach anybody."""


class Conversation:
    """Both directions of the socket. One thread reads; any thread may send."""

    def __init__(self, connection: socket.socket, timed: bool = False) -> None:
        """`timed` takes the time of every request's stages."""
        self._connection = connection
        self._timed = timed
        self._sending = threading.Lock()
        self._buffer = memoryview(bytearray(READ_AHEAD))
        self._start = 0
        self._end = 0

    def batch(self) -> list[Request]:
        """The next batch of requests. Raises DisconnectedError when the frontend is gone, ValueError for any other message."""
        command = self._bytes(1)
        if command != PREDICT:
            raise ValueError(f"the frontend sent the command {bytes(command)!r}, which a loaded worker does not know")
        return list(self._requests())

    def answer(self, answers: Sequence[tuple[str, Response, Mapping[str, str]]]) -> None:
        """Send answers by request id, with headers for the frontend itself beside the response's own."""
        pieces = [_number(OK), _text(ANSWERS)]
        for identifier, response, notes in answers:
            pieces += [_text(identifier.encode()), *_prediction(response, notes)]
        self._send([*pieces, _number(END_OF_LIST)])

    def ready(self) -> None:
        """Ask for the next batch: an answer without predictions ends the current one for TorchServe."""
        self._send([_number(OK), _text(b""), _number(END_OF_LIST)])

    def _requests(self) -> Iterator[Request]:
        while (length := self._int()) != END_OF_LIST:
            identifier = self._bytes(length).decode()
            headers = list(self._headers())
            body: bytes | bytearray = b""
            while (length := self._int()) != END_OF_LIST:
                name = self._bytes(length)
                self._bytes(self._int())  # the parameter's type, which the headers tell as well
                value = self._bytes(self._int())
                body = value if name == b"body" else body
            yield Request(identifier, Headers(headers), body, Stages() if self._timed else None)

    def _headers(self) -> Iterator[tuple[str, str]]:
        while (length := self._int()) != END_OF_LIST:
            name = self._bytes(length).decode()
            yield name, self._bytes(self._int()).decode()

    def _int(self) -> int:
        if self._end - self._start < NUMBER.size:
            value: int = NUMBER.unpack(self._bytes(NUMBER.size))[0]
            return value
        (value,) = NUMBER.unpack_from(self._buffer, self._start)
        self._start += NUMBER.size
        return value

    def _bytes(self, length: int) -> bytes | bytearray:
        """Exactly so many bytes: from what was read ahead, or, where they are many, straight into their place.

        Raises ValueError for a length that nothing has: a negative one would take back what was read already, perhaps for ever.
        """
        if not 0 <= length <= LONGEST:
            raise ValueError(f"the frontend sent the length {length}")
        if self._end - self._start >= length:
            taken = self._buffer[self._start : self._start + length].tobytes()
            self._start += length
            return taken
        whole = bytearray(length)
        view = memoryview(whole)
        filled = self._take(view)
        while filled < length:
            if length - filled >= READ_AHEAD:
                filled += self._receive(view[filled:])
            else:
                self._start, self._end = 0, self._receive(self._buffer)
                filled += self._take(view[filled:])
        return whole

    def _take(self, view: memoryview) -> int:
        """Move what was read ahead into `view`, as much as fits."""
        count = min(len(view), self._end - self._start)
        view[:count] = self._buffer[self._start : self._start + count]
        self._start += count
        return count

    def _receive(self, view: memoryview) -> int:
        count = self._connection.recv_into(view)
        if not count:
            raise DisconnectedError
        return count

    def _send(self, pieces: Sequence[bytes]) -> None:
        """One write for what is small; a large body is not copied to stand beside its headers."""
        with self._sending:
            gathered: list[bytes] = []
            for piece in pieces:
                if len(piece) < SMALL:
                    gathered.append(piece)
                else:
                    self._connection.sendall(b"".join(gathered))
                    self._connection.sendall(piece)
                    gathered = []
            self._connection.sendall(b"".join(gathered))


def _prediction(response: Response, notes: Mapping[str, str]) -> Iterator[bytes]:
    yield _text(response.content_type.encode())
    yield _number(response.status)
    yield _text(HTTPStatus(response.status).phrase.encode())
    headers = {**response.headers, **notes}
    yield _number(len(headers))
    for name, value in headers.items():
        yield _text(name.encode())
        yield _text(value.encode())
    yield _number(len(response.body))
    yield response.body


def _number(value: int) -> bytes:
    return NUMBER.pack(value)


def _text(value: bytes) -> bytes:
    return NUMBER.pack(len(value)) + value
