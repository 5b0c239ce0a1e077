"""A stand-in for a container, for faults and speeds that no real one shows on demand: one short answer for each line.

It answers ``{"size": n}`` where n is the length of the line in bytes, and counts what it was asked.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Fault = Callable[[int, bytes], tuple[int, Mapping[str, str]] | str | float | None]
"""Called with the number of the request, from 1, and its body: a status with headers, `cut`, seconds to wait, or nothing."""


def answer_lines(body: bytes) -> bytes:
    """One line for each line."""
    lines = body.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return b"\n".join(b'{"size":%d}' % len(line) for line in lines)


class StandIn:
    """Use it as a context manager. ``bodies`` are the requests that were answered with 200, in the order of their ends."""

    def __init__(
        self,
        fault: Fault = lambda number, body: None,
        answer: Callable[[bytes], bytes] = answer_lines,
        parameters: Mapping[str, Any] | None = None,
        keep: bool = True,
        media_type: str = "application/jsonlines",
    ) -> None:
        self.fault, self.answer, self.parameters, self.keep, self.media_type = fault, answer, parameters, keep, media_type
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.asked = self.in_flight = self.most_in_flight = 0
        self.lock = threading.Lock()
        self._open: set[socket.socket] = set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                outer._open.add(self.connection)

            def finish(self) -> None:
                outer._open.discard(self.connection)
                super().finish()

            def do_GET(self) -> None:
                known = {"/ping": b"", "/execution-parameters": json.dumps(outer.parameters).encode()}
                found = known.get(self.path)
                missing = found is None or (self.path != "/ping" and outer.parameters is None)
                self._send(404 if missing else 200, b"" if missing else found or b"", {})

            def do_POST(self) -> None:
                with outer.lock:
                    outer.asked += 1
                    number = outer.asked
                    outer.in_flight += 1
                    outer.most_in_flight = max(outer.most_in_flight, outer.in_flight)
                try:
                    self._post(number)
                finally:
                    with outer.lock:
                        outer.in_flight -= 1

            def _post(self, number: int) -> None:
                body = self._body()
                fault = outer.fault(number, body)
                if isinstance(fault, float):
                    time.sleep(fault)
                if fault == "cut":
                    self.send_response(200)
                    self.send_header("Content-Length", "1000")
                    self.end_headers()
                    self.wfile.write(b'{"size":')
                    self.close_connection = True
                    return
                if isinstance(fault, tuple):
                    error = {"error": {"type": "InvalidRequest", "message": f"made up, with status {fault[0]}"}}
                    self._send(fault[0], json.dumps(error).encode(), fault[1])
                    return
                answer = outer.answer(body)
                with outer.lock:
                    outer.bodies.append(body if outer.keep else b"")
                    outer.headers.append({name.lower(): value for name, value in self.headers.items()} if outer.keep else {})
                self._send(200, answer, {"Content-Type": outer.media_type})

            def _body(self) -> bytes:
                if self.headers.get("Transfer-Encoding") != "chunked":
                    return self.rfile.read(int(self.headers["Content-Length"]))
                body = b""
                while size := int(self.rfile.readline(), 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return body

            def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *call: None  # type: ignore[method-assign]  # callers that hang up are expected
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.die()

    def die(self) -> None:
        """End as a killed container does: no more connections, and those that are open are reset."""
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
