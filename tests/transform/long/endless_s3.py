"""An S3 that makes its one object up while it is read, and forgets what is written: gigabytes without a disk.

The object is lines of the same length, each with its own number, so that any range can be made from its offset. Of what is
written only length and newlines are kept, and whether the line numbers in it are in order.
"""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

LINE = 10_000
ETAG = '"made-up"'
CHUNK_LINES = 200


def lines(first: int, count: int) -> bytes:
    """Lines from a number on."""
    return b"".join(b"%012d" % number + b"x" * (LINE - 13) + b"\n" for number in range(first, first + count))


class EndlessS3:
    """Use it as a context manager. ``written`` are bytes in parts, ``newlines`` in them, ``completed`` the finished uploads."""

    def __init__(self, size: int) -> None:
        assert size % LINE == 0
        self.size = size
        self.written = self.newlines = self.parts = 0
        self.completed: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                if "list-type=2" in self.path:
                    entry = f"<Contents><Key>in/big</Key><Size>{outer.size}</Size><ETag>{ETAG}</ETag></Contents>"
                    self._xml(f"<ListBucketResult>{entry}<IsTruncated>false</IsTruncated></ListBucketResult>")
                    return
                start = int(re.match(r"bytes=(\d+)-", self.headers["Range"])[1])  # type: ignore[index]
                self.send_response(206)
                self.send_header("Content-Length", str(outer.size - start))
                self.send_header("ETag", ETAG)
                self.end_headers()
                number, skipped = divmod(start, LINE)
                while number * LINE < outer.size:
                    count = min(CHUNK_LINES, outer.size // LINE - number)
                    self.wfile.write(lines(number, count)[skipped:])
                    number, skipped = number + count, 0

            def do_PUT(self) -> None:
                left = int(self.headers["Content-Length"])
                if self.headers.get("x-amz-decoded-content-length"):
                    left = int(self.headers["Content-Length"])
                while left:
                    data = self.rfile.read(min(left, 1 << 20))
                    left -= len(data)
                    outer.written += len(data)
                    outer.newlines += data.count(b"\n")
                outer.parts += 1
                self._xml("", {"ETag": f'"{outer.parts}"'})

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if "uploads" in self.path:
                    self._xml("<InitiateMultipartUploadResult><UploadId>one</UploadId></InitiateMultipartUploadResult>")
                    return
                outer.completed.append(self.path.partition("?")[0])
                self._xml("<CompleteMultipartUploadResult><ETag>done</ETag></CompleteMultipartUploadResult>")

            def do_DELETE(self) -> None:
                self.send_response(204)
                self.end_headers()

            def do_HEAD(self) -> None:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def _xml(self, body: str, headers: dict[str, str] | None = None) -> None:
                self.send_response(200)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/xml")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *words: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
