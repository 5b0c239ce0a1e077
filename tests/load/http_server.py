"""A real HTTP server whose answers a test decides: one asyncio loop in a thread, with keep-alive, on loopback."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self


@dataclass(frozen=True, slots=True)
class Request:
    """What came in; header names in lower case, ``number`` counts from 1."""

    number: int
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes out. ``hang_up`` closes the connection instead."""

    status: int = 200
    body: bytes = b"{}"
    hang_up: bool = False


Handler = Callable[[Request], Awaitable[Answer]]


class ScriptedServer:
    """Answers every call with what ``handler`` says. Use it as a context manager; ``requests`` is all that came in."""

    def __init__(self, handler: Handler) -> None:
        self.requests: list[Request] = []
        self._handler = handler
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.port}"

    def invocations(self) -> list[Request]:
        """The calls of /invocations."""
        return [request for request in self.requests if request.path.endswith("/invocations")]

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode("latin-1").strip().split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                method, path, _ = first.split(" ")
                request = Request(len(self.requests) + 1, method, path, headers, body)
                self.requests.append(request)
                answer = await self._handler(request)
                if answer.hang_up:
                    return
                writer.write(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n" % (answer.status, len(answer.body)) + answer.body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


def always(status: int = 200, body: bytes = b"{}", seconds: float = 0.0) -> Handler:
    """The same answer to every call, after so long; 404 for everything but /invocations."""

    async def handle(request: Request) -> Answer:
        if not request.path.endswith("/invocations"):
            return Answer(404)
        await asyncio.sleep(seconds)
        return Answer(status, body)

    return handle
