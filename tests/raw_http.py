"""HTTP as bytes: requests written by hand, and answers read off the wire with nothing between the test and the bytes."""

from __future__ import annotations

import json
import select
import socket
from typing import BinaryIO, NamedTuple, Protocol, Self

MEGABYTE = 1_000_000
HOST = b"Host: localhost\r\n"
BODY = b'{"inputs": "a"}'
CHUNKED_BODY = b"f\r\n" + BODY + b"\r\n0\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked"
LENGTH = b"Content-Length: 15"
PING = b"GET /ping HTTP/1.1\r\n" + HOST + b"\r\n"


def call(*headers: bytes, body: bytes = b"", version: bytes = b"HTTP/1.1", host: bytes = HOST) -> bytes:
    """The bytes of a POST /invocations with exactly these headers."""
    head = b"".join(line + b"\r\n" for line in (b"Content-Type: application/json", *headers))
    return b"POST /invocations " + version + b"\r\n" + host + head + b"\r\n" + body


class HasPort(Protocol):
    """A server on loopback."""

    port: int


class Answer(NamedTuple):
    """One answer as it was read off the wire; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> str:
        """The sentence of an error."""
        return str(json.loads(self.body)["error"]["message"])


class Wire:
    """A connection to the server, with nothing between the test and the bytes."""

    def __init__(self, server: HasPort, timeout: float = 60) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=timeout)
        self._reader: BinaryIO = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self.socket.close()

    def send(self, data: bytes) -> Wire:
        """Send it all."""
        self.socket.sendall(data)
        return self

    def send_until_refused(self, data: bytes) -> bool:
        """Send it piece by piece; whether it all went before an answer came."""
        for start in range(0, len(data), MEGABYTE):
            if select.select([self.socket], [], [], 0)[0]:
                return False
            self.send(data[start : start + MEGABYTE])
        return not select.select([self.socket], [], [], 0.2)[0]

    def answer(self, bodyless: bool = False) -> Answer:
        """The next answer; fails where the connection ended instead."""
        line = self._reader.readline()
        assert line, "the connection ended without an answer"
        headers = {}
        while (field := self._reader.readline().decode("latin-1").strip()) != "":
            name, _, value = field.partition(":")
            headers[name.lower()] = value.strip()
        length = 0 if bodyless else int(headers["content-length"])
        return Answer(int(line.split()[1]), headers, self._reader.read(length))

    def rest(self) -> bytes:
        """What follows until the server ends the connection."""
        return self._reader.read()
