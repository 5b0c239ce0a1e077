"""Bytes that no honest client sends: each is refused or understood in one way only, and nobody else notices.

A request behind a broken one on the same connection must never be answered: a proxy in front may have taken it for a body.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from canary import Canary
from fuzz import http
from http_abuse import ANSWERED, CHUNK, REFUSED, head
from raw_http import BODY, CHUNKED, LENGTH, PING, Answer, Wire, call
from running import RunningServer


@pytest.fixture(scope="module")
def canary(server: RunningServer) -> Iterator[Canary]:
    """Somebody who is to notice nothing."""
    workers, printed = server.workers(), len(server.lines)
    with Canary(server) as singing:
        yield singing
    singing.assert_well()
    assert server.workers() == workers, "a worker died"
    assert not [line for line in server.lines[printed:] if "Exception" in line or "Traceback" in line or "\tat " in line]


@pytest.mark.parametrize("fault", REFUSED)
def test_what_has_no_single_meaning_is_refused_and_nothing_behind_it_is_answered(
    server: RunningServer, canary: Canary, fault: str
) -> None:
    request, status = REFUSED[fault]
    with Wire(server) as wire:
        answer = wire.send(PING + request + PING).answer()
        assert answer.status == 200, "what came before it was whole"
        refusal = wire.answer()
        assert (refusal.status, refusal.headers["connection"]) == (status, "close"), refusal
        assert refusal.message.endswith(".")
        assert wire.rest() == b"", "what followed was read as another request"


@pytest.mark.parametrize("fault", REFUSED)
def test_the_same_bytes_one_by_one_are_refused_alike(server: RunningServer, canary: Canary, fault: str) -> None:
    request, status = REFUSED[fault]
    if len(request) > 2_000:
        pytest.skip("its length is what is wrong with it")
    with Wire(server) as wire:
        answer = _sent_slowly(wire, request + PING)
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert wire.rest() == b""


@pytest.mark.parametrize("request_", ANSWERED)
def test_what_is_odd_but_whole_is_answered_and_the_connection_goes_on(
    server: RunningServer, canary: Canary, request_: str
) -> None:
    sent, status = ANSWERED[request_]
    with Wire(server) as wire:
        answer = wire.send(sent + PING).answer()
        assert answer.status == status, answer
        assert ("allow" in answer.headers) == (status == 405)
        assert wire.answer().status == 200


def test_an_answer_to_trace_repeats_nothing_of_the_request(server: RunningServer, canary: Canary) -> None:
    with Wire(server) as wire:
        answer = wire.send(head(b"TRACE /ping HTTP/1.1", b"Host: a", b"Cookie: secret")).answer()
        assert answer.status == 405
        assert b"secret" not in answer.body


def test_a_pipeline_of_a_thousand_is_answered_in_order(server: RunningServer, canary: Canary) -> None:
    with Wire(server) as wire:
        wire.send(b"".join(PING if number % 3 else head(b"GET /x HTTP/1.1", b"Host: a") for number in range(1_000)))
        assert [wire.answer().status for _ in range(1_000)] == [200 if number % 3 else 404 for number in range(1_000)]


@pytest.mark.parametrize(
    "parts", [(PING[:9],), (call(LENGTH), BODY[:4]), (call(CHUNKED), CHUNK[:7])], ids=["head", "body", "chunk"]
)
@pytest.mark.parametrize("how", ["close", "half close", "reset"])
def test_who_leaves_in_the_middle_leaves_nothing_behind(
    server: RunningServer, canary: Canary, parts: tuple[bytes, ...], how: str
) -> None:
    for _ in range(20):
        with Wire(server) as wire:
            for part in parts:
                wire.send(part)
            if how == "reset":
                wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            elif how == "half close":
                wire.socket.shutdown(socket.SHUT_WR)
                assert wire.rest() == b""
    deadline = time.monotonic() + 10
    while server.metrics()["byoc_inflight_requests"] > 2:
        assert time.monotonic() < deadline, "a call that nobody makes is still counted"
        time.sleep(0.1)


def _sent_slowly(wire: Wire, data: bytes) -> Answer:
    """Send byte by byte until the server has heard enough."""
    wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in data:
        try:
            wire.send(bytes([byte]))
        except OSError:
            break
    return wire.answer()


@pytest.fixture(scope="module")
def impatient(encoder: Path) -> Iterator[RunningServer]:
    """A server that gives a request two seconds to come."""
    with RunningServer(encoder, {"BYOC_CLIENT_TIMEOUT": "2"}) as running:
        yield running


@pytest.mark.parametrize(
    ("begun", "rest"),
    [(PING[:7], PING[7:]), (call(LENGTH), BODY), (call(CHUNKED), CHUNK), (call(CHUNKED) + CHUNK + b"\r\n0\r\n", b"a: b\r\n" * 9)],
    ids=["head", "body", "chunk", "trailer"],
)
def test_a_request_that_comes_a_byte_a_second_is_ended_and_the_others_are_not(
    impatient: RunningServer, begun: bytes, rest: bytes
) -> None:
    began = time.monotonic()
    with Canary(impatient) as canary, Wire(impatient) as idle, Wire(impatient) as wire:
        assert wire.send(PING).answer().status == 200
        wire.send(begun)
        for byte in rest:
            wire.send(bytes([byte]))
            if select.select([wire.socket], [], [], 1)[0]:
                break
        answer = wire.answer()
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        assert "BYOC_CLIENT_TIMEOUT" in answer.message
        assert wire.rest() == b""
        assert 2 <= time.monotonic() - began < 8
        assert idle.send(PING).answer().status == 200, "a connection without a request may be idle"
    canary.assert_well()


def test_a_slow_request_that_comes_steadily_has_its_time(impatient: RunningServer) -> None:
    body = b'{"inputs": "' + b"a" * 12_000 + b'"}'
    with Wire(impatient) as wire:
        wire.send(call(b"Content-Length: %d" % len(body)))
        for start in range(0, len(body), 1_000):
            wire.send(body[start : start + 1_000])
            time.sleep(0.3)
        assert wire.answer().status == 200


def test_a_body_over_the_limit_that_ends_badly_ends_the_connection(impatient: RunningServer) -> None:
    with Wire(impatient) as wire:
        wire.send(call(CHUNKED))
        for _ in range(27):
            wire.send(b"100000\r\n" + b" " * (1 << 20) + b"\r\n")
        wire.send(b"rubbish\r\n" + PING)
        assert wire.answer().status == 413
        assert wire.rest() == b"", "what followed was read as another request, or never"


def test_thousands_of_damaged_requests_are_nobody_elses_matter(server: RunningServer, canary: Canary) -> None:
    before = http.memory_mb(server)
    verdict = http.run(server, range(3_000), seed=20_260)
    assert verdict.faults == []
    assert verdict.statuses["200"] > 100, "the damage leaves too little to look at"
    assert server.ping() == 200
    assert http.memory_mb(server) < before + 300
