"""What TorchServe's bundled libraries are known for does not happen on the serving port (docker/endpoints/BUNDLED.md)."""

from __future__ import annotations

import bz2
import gzip
import json
import re
import socket
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from models import many
from running import ROOT, RunningServer
from tripwire import Tripwire

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
UPGRADE = (
    b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
)
TLS_HELLO = bytes.fromhex("16030100a5010000a10303") + bytes(160)
CODINGS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "x-deflate": zlib.compress,
    "bzip2": bz2.compress,
    "snappy": lambda body: b"\xff\x06\0\0sNaPpY" + body[:50],
    "br": lambda body: b"\x0b\x02\x80" + body[:5] + b"\x03",
    "zstd": lambda body: b"\x28\xb5\x2f\xfd" + body[:50],
}
"""Those that Netty has decoders for, and newer ones."""
ECHO = """
def handle(data, context):
    return [bytes(row.get("body") or b"") for row in data or []]
"""
FIELD = b'--b\r\nContent-Disposition: form-data; name="f%d"\r\n\r\nx\r\n'
FIELDS = 200_000
ROUNDS = 3
GROWTH_LIMIT = 192 << 20


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


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A foreign handler that answers with the bytes that it got."""
    folder = many.save_archive(tmp_path_factory.mktemp("echo") / "model", "echo", handler=ECHO)
    with RunningServer(folder) as running:
        yield running


@pytest.mark.parametrize("coding", CODINGS)
def test_a_body_comes_to_the_worker_as_it_was_sent_and_goes_as_it_was_answered(echo: RunningServer, coding: str) -> None:
    body = CODINGS[coding](b'"a quiet kettle"' * 1_000)
    answer = echo.invoke(body, Content_Encoding=coding, Accept_Encoding="gzip, deflate, br, zstd")
    assert (answer.status_code, answer.content, answer.headers.get("content-encoding")) == (200, body, None)


@pytest.mark.parametrize("coding", sorted(set(CODINGS) - {"gzip", "x-gzip"}))
def test_our_own_worker_takes_no_other_compression_than_gzip(server: RunningServer, coding: str) -> None:
    answer = server.invoke(CODINGS[coding](b'"a quiet kettle"'), Content_Encoding=coding)
    assert (answer.status_code, answer.headers["accept-encoding"]) == (415, "gzip")


def constructors(port: int) -> str:
    """YAML that makes a loader which knows Java's types fetch a class."""
    url = f'!!java.net.URL ["http://127.0.0.1:{port}/"]'
    return f"handler: !!javax.script.ScriptEngineManager [!!java.net.URLClassLoader [[{url}]]]\n"


@pytest.mark.parametrize("save", [many.save_script, many.save_archive], ids=["directory", "archive"])
def test_a_models_yaml_of_java_types_stops_the_start_before_java_reads_it(tmp_path: Path, save: Callable[..., Path]) -> None:
    with Tripwire() as wire:
        model = save(tmp_path / "model", "word", config=constructors(wire.port))
        refused = RunningServer(model, wait=False)
        assert refused.wait(120) == 3
        assert "model-config.yaml is not valid YAML" in refused.lines[-1]
        assert wire.calls == 0


def test_a_yaml_body_and_yaml_in_a_text_are_nothing_but_bytes(server: RunningServer, tmp_path: Path) -> None:
    with Tripwire() as wire:
        assert server.invoke(constructors(wire.port), "application/yaml").status_code == 415
        quoted = f"note: {json.dumps(constructors(wire.port))}\nbatchSize: 5\n"
        with RunningServer(many.save_script(tmp_path / "model", "word", config=quoted)) as running:
            assert "batch_size=5 (model-config.yaml)" in running.output
            assert running.invoke({"inputs": "a"}).json()["word"] == "word"
        assert wire.calls == 0


def test_the_layouts_of_the_log_are_ours_and_the_message_alone() -> None:
    configuration = (ROOT / "config" / "log4j2.xml").read_text("utf-8")
    assert set(re.findall(r"<(\w+Layout)\b", configuration)) == {"LineLayout", "PatternLayout"}
    assert re.findall(r'pattern="([^"]*)"', configuration) == ["%message%n"]


def test_the_log_goes_to_the_console_and_nowhere_else() -> None:
    configuration = (ROOT / "config" / "log4j2.xml").read_text("utf-8")
    appenders = re.search(r"<Appenders>(.*)</Appenders>", configuration, re.DOTALL)
    assert appenders
    found = set(re.findall(r"<(\w+)", re.sub(r"<!--.*?-->", "", appenders[1], flags=re.DOTALL)))
    assert not {name for name in found if name.endswith(("Socket", "Syslog", "SMTP", "Http", "JMS", "Kafka", "File"))}
    assert "Console" in found
