"""The same bytes from Python's own HTTP server, a thread per connection: what the machine's loopback can carry."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.workloads.handlers.large import answer


class Answers(BaseHTTPRequestHandler):
    """Keeps connections open, logs nothing."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Healthy."""
        self._send(b"")

    def do_POST(self) -> None:
        """As the handler in large.py answers."""
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self._send(answer(body))

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(port: int) -> None:
    """Serve until the process is ended."""
    ThreadingHTTPServer(("127.0.0.1", port), Answers).serve_forever()


if __name__ == "__main__":
    import os

    main(int(os.environ["BENCH_PORT"]))
