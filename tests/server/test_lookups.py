"""Log4j resolves nothing that callers, scripts or settings wrote: ``${…}`` stands in the log as it came, and nobody is called."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from models import many, scripts
from running import RunningServer
from shelf import MULTI_MODEL, NO_MODEL, Shelf
from tripwire import Tripwire

BEGIN, END = "<look>", "<kool>"
LOOKUPS = (
    "${jndi:ldap://127.0.0.1:PORT/a}",
    "${java:version}",
    "${env:PATH}",
    "${sys:java.home}",
    "${date:yyyy}",
    "${lower:ABC}",
)
HEADERS = (
    "X-Request-Id",
    "X-Amzn-SageMaker-Inference-Id",
    "X-Amzn-SageMaker-Custom-Attributes",
    "X-Amzn-Trace-Id",
    "traceparent",
    "User-Agent",
    "Content-Type",
    "Content-Encoding",
    "Accept",
    "Expect",
)
SCRIPT = """
    import logging, sys
    def model_fn(model_dir): return None
    def input_fn(data, content_type): return data if isinstance(data, str) else data.decode()
    def predict_fn(data, model):
        print(data)
        print(data, file=sys.stderr)
        logging.getLogger(data).warning(data)
        raise ValueError(data)
    """


@pytest.fixture
def tripwire() -> Iterator[Tripwire]:
    """A port that nobody should call."""
    with Tripwire() as wire:
        yield wire


def word(lookup: str, wire: Tripwire) -> str:
    """A lookup between marks that show whether it is whole."""
    return f"{BEGIN}{lookup.replace('PORT', str(wire.port))}{END}"


def sent(server: RunningServer, line: str, headers: str, body: str) -> None:
    """A call as it would never leave a polite client."""
    head = f"{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n{headers}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall((head + body).encode())
        while connection.recv(65_536):
            pass


def assert_literal(server: RunningServer, words: list[str]) -> None:
    """Each mark in the log begins one of the words, whole, and each word is there."""
    log = "\n".join(json.loads(line)["message"] if line.startswith('{"time"') else line for line in server.lines)
    assert all(one in log for one in words)
    assert log.count(BEGIN) == sum(log.count(one) for one in words)


def test_what_callers_and_scripts_write_is_logged_as_it_is(tmp_path: Path, tripwire: Tripwire) -> None:
    words = [word(lookup, tripwire) for lookup in LOOKUPS]
    settings = {
        "SAGEMAKER_CONTAINER_LOG_LEVEL": "DEBUG",
        "BYOC_LOG_FORMAT": "json",
        "BYOC_EMF_NAMESPACE": "lookups",
        "BYOC_EMF_SECONDS": "1",
        "BYOC_EMF_DIMENSIONS": json.dumps({"Endpoint": words[0]}),
    }
    with RunningServer(scripts.save_script(tmp_path / "model", SCRIPT), settings) as server:
        worker = server.workers()
        for one in words:
            sent(server, "POST /invocations", "Content-Type: text/plain", one)
            for header in HEADERS:
                sent(server, "POST /invocations", f"{header}: {one}", one)
            sent(server, f"POST /invocations?model={one}", f"{one}: {one}", one)
            sent(server, f"GET /{one}", "Accept: */*", "")
            sent(server, f"{one} /ping", "Accept: */*", "")
        assert server.workers() == worker
        assert server.stop() == 0
        assert_literal(server, words)
    assert tripwire.calls == 0


def test_a_models_name_and_address_are_logged_as_they_are(tmp_path: Path, tripwire: Tripwire) -> None:
    words = [word(lookup, tripwire) for lookup in LOOKUPS]
    model = many.save_script(tmp_path / "model", "script")
    with RunningServer(NO_MODEL, {**MULTI_MODEL, "SAGEMAKER_CONTAINER_LOG_LEVEL": "DEBUG"}) as server:
        shelf = Shelf(server)
        for one in words:
            shelf.load(one, model)
            shelf.load("other", f"/{one}")
            shelf.call(one, {"inputs": one})
            shelf.unload(one)
        assert server.stop() == 0
        assert_literal(server, words)
    assert tripwire.calls == 0


def test_the_wire_notices_a_call(tripwire: Tripwire) -> None:
    with socket.create_connection(("127.0.0.1", tripwire.port), timeout=10) as connection:
        assert connection.recv(1) == b""
    assert tripwire.calls == 1
