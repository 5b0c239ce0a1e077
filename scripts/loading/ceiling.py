"""What the generator itself can do: the same calls against a server that does nothing.

A throughput near this ceiling says more about the generator than about the server.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import cast

import uvloop

from .arrivals import Step
from .caller import Plan
from .generators import Generators

SECONDS, WARM_UP_S = 1.0, 0.3
HEAD_END = b"\r\n\r\n"
LENGTH = b"content-length:"


def ceiling(plan: Plan, processes: int, clients: int, answer_bytes: int) -> float:
    """Calls per second that the generator makes with so many clients and answers of such a size."""
    with _trivial_server(answer_bytes) as address:
        target = replace(plan.target, url=f"http://{address}/invocations")
        free = replace(plan, target=target, expected=None, payloads=tuple(replace(one, expected=None) for one in plan.payloads))
        with Generators(free, processes) as generators:
            step = Step(clients=clients, seconds=SECONDS, warm_up=WARM_UP_S)
            seen = generators.run(step, lambda _: None, lambda _: None, lambda: False)
    return seen.finished / seen.measured_s if seen.measured_s else 0.0


@contextmanager
def _trivial_server(answer_bytes: int) -> Iterator[str]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_serve, args=(answer_bytes, theirs), daemon=True)
    process.start()
    try:
        yield str(ours.recv())
    finally:
        process.kill()
        process.join()


def _serve(answer_bytes: int, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % answer_bytes
    answer += b" " * answer_bytes

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Echo(answer), "127.0.0.1", 0)
        pipe.send(":".join(map(str, server.sockets[0].getsockname()[:2])))
        await server.serve_forever()

    uvloop.run(serve())


class _Echo(asyncio.Protocol):
    """Reads a request with a Content-Length, and answers."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._read = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._read += data
        while self._complete():
            self._transport.write(self._answer)

    def _complete(self) -> bool:
        """Whether a whole request was there; it is gone then."""
        head = self._read.find(HEAD_END)
        if head < 0:
            return False
        lines = bytes(self._read[:head]).lower().split(b"\r\n")
        length = next((int(line[len(LENGTH) :]) for line in lines if line.startswith(LENGTH)), 0)
        whole = head + len(HEAD_END) + length
        if len(self._read) < whole:
            return False
        del self._read[:whole]
        return True
