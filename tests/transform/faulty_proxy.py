"""A proxy that spoils some of what goes through it: answers with an error before or after the real server was asked, or cuts.

After, because an answer that is lost on its way is the case in which something could be done twice.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

BEFORE = "before"
AFTER = "after"
CUT = "cut"
Rule = Callable[[int, str, str], str | None]
"""Called with the number of the call from 1, its method and its path with query: how to spoil it, or None."""
Rewrite = Callable[[dict[str, str], bytes], bytes]
HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length")


class FaultyProxy:
    """Use it as a context manager; ``url`` is its address, ``spoilt`` counts the calls that it spoilt.

    ``rewrite`` gets the headers of a call and the answer to it, and says what the caller is told.
    """

    def __init__(self, target: str, rule: Rule, status: int = 500, rewrite: Rewrite = lambda headers, body: body) -> None:
        self.spoilt = self.calls = 0
        self.status = status
        lock = threading.Lock()
        outer = self
        place = urlsplit(target)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def _pass(self) -> None:
                body = self._body()
                with lock:
                    outer.calls += 1
                    how = rule(outer.calls, self.command, self.path)
                    outer.spoilt += how is not None
                if how == BEFORE:
                    self._answer(outer.status, b"", {})
                    return
                upstream = http.client.HTTPConnection(place.hostname or "", place.port, timeout=120)
                headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
                upstream.request(self.command, self.path, body, headers)
                reply = upstream.getresponse()
                content = rewrite(dict(self.headers.items()), reply.read())
                upstream.close()
                if how == AFTER:
                    self._answer(outer.status, b"", {})
                    return
                kept = {name: value for name, value in reply.getheaders() if name.lower() not in HOP_BY_HOP}
                if self.command == "HEAD":
                    kept["Content-Length"] = reply.getheader("Content-Length", "0")
                self._answer(reply.status, content, kept, cut=how == CUT)

            def _body(self) -> bytes:
                if self.headers.get("Transfer-Encoding") == "chunked":
                    body = b""
                    while size := int(self.rfile.readline().split(b";")[0], 16):
                        body += self.rfile.read(size)
                        self.rfile.readline()
                    while self.rfile.readline() not in (b"\r\n", b""):
                        pass
                    return body
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))

            def _answer(self, status: int, body: bytes, headers: dict[str, str], cut: bool = False) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if "Content-Length" not in headers:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if cut:
                    self.wfile.write(body[: len(body) // 2])
                    self.close_connection = True
                    return
                self.wfile.write(body)

            def log_message(self, *words: object) -> None:
                """Say nothing."""

        for method in ("GET", "POST", "PUT", "DELETE", "HEAD"):
            setattr(Handler, f"do_{method}", Handler._pass)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *call: None  # type: ignore[method-assign]  # callers that hang up are expected
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
