"""One HTTP GET over a plain socket, for loopback only: importing http.client would triple a health check's time."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"
EVERYWHERE = ("0.0.0.0", "")  # noqa: S104 -- recognised, not bound
LIMIT = 1 << 20


def get(host: str, port: int, path: str, timeout: float) -> tuple[int, bytes]:
    """The status and body of ``GET path``; ``timeout`` in seconds holds for each step.

    Raises OSError when nobody answers, ValueError when the answer is not HTTP.
    """
    with socket.create_connection((host, port), timeout) as connection:
        connection.settimeout(timeout)
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode("ascii"))
        answer = _read(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]) if head.startswith(b"HTTP/1.") else _refuse(), body


def reachable_address(bind_address: str) -> str:
    """Where a server bound to this address can be reached from the same machine."""
    return LOOPBACK if bind_address in EVERYWHERE else bind_address


def _read(connection: socket.socket) -> bytes:
    """Everything up to the end of the connection or of the announced length, whichever comes first."""
    answer = b""
    while len(answer) < LIMIT:
        piece = connection.recv(65_536)
        answer += piece
        if not piece or _is_complete(answer):
            break
    return answer


def _is_complete(answer: bytes) -> bool:
    head, separator, body = answer.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if separator and name == b"content-length":
            return len(body) >= int(value)
    return False


def _refuse() -> int:
    raise ValueError("the answer is not HTTP")
