"""HTTP as it comes over the wire: where a request ends, what is refused for it, and answers of many megabytes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from raw_http import BODY, CHUNKED, CHUNKED_BODY, HOST, LENGTH, MEGABYTE, PING, Wire, call
from running import RunningServer, at_once

ECHO = """
def input_fn(body, content_type): return body
def model_fn(directory): return None
def predict_fn(data, model): return data
def output_fn(prediction, accept): return prediction, "application/octet-stream"
"""


# What is wrong → the request, the status that says so, and a word of the sentence.
CLOSED: dict[str, tuple[bytes, int, str]] = {
    "a coding that ends like chunked": (call(b"Transfer-Encoding: xchunked", body=CHUNKED_BODY), 400, "Transfer-Encoding"),
    "another coding": (call(b"Transfer-Encoding: gzip", body=CHUNKED_BODY), 400, "Transfer-Encoding"),
    "another coding before chunked": (call(b"Transfer-Encoding: gzip, chunked", body=CHUNKED_BODY), 400, "Transfer-Encoding"),
    "another coding after chunked": (call(b"Transfer-Encoding: chunked, identity", body=CHUNKED_BODY), 400, "Transfer-Encoding"),
    "chunked twice": (call(CHUNKED, CHUNKED, body=CHUNKED_BODY), 400, "Transfer-Encoding"),
    "a folded coding": (call(b"Transfer-Encoding: gzip,\r\n chunked", body=CHUNKED_BODY), 400, "several lines"),
    "a coding on the next line": (call(b"Transfer-Encoding:\r\n chunked", body=CHUNKED_BODY), 400, "several lines"),
    "no coding at all": (call(b"Transfer-Encoding:", body=CHUNKED_BODY), 400, "Transfer-Encoding"),
    "a coding in HTTP/1.0": (call(CHUNKED, body=CHUNKED_BODY, version=b"HTTP/1.0"), 400, "Transfer-Encoding"),
    "a length and a coding": (call(LENGTH, CHUNKED, body=CHUNKED_BODY), 400, "Content-Length"),
    "a coding and a length": (call(CHUNKED, LENGTH, body=CHUNKED_BODY), 400, "Content-Length"),
    "two lengths": (call(LENGTH, b"Content-Length: 3", body=BODY), 400, "readable"),
    "a negative length": (call(b"Content-Length: -1", body=BODY), 400, "Content-Length"),
    "a length in words": (call(b"Content-Length: many", body=BODY), 400, "readable"),
    "a negative chunk": (call(CHUNKED, body=b"-1\r\n" + BODY), 400, "chunks"),
    "a chunk of no number": (call(CHUNKED, body=b"xyz\r\n" + BODY), 400, "chunks"),
    "an endless chunk extension": (call(CHUNKED, body=b"f;" + b"e" * 9000 + b"\r\n" + BODY), 400, "chunks"),
    "no host": (call(LENGTH, body=BODY, host=b""), 400, "Host"),
    "two hosts": (call(LENGTH, body=BODY, host=HOST + HOST), 400, "Host"),
    "an unknown expectation": (call(LENGTH, b"Expect: a-miracle", body=BODY), 417, "100-continue"),
    "HTTP/2 on the wire": (call(LENGTH, body=BODY, version=b"HTTP/2.0"), 505, "HTTP/1.1"),
    "HTTP/1.2": (call(LENGTH, body=BODY, version=b"HTTP/1.2"), 505, "HTTP/1.1"),
    "HTTP/0.9": (call(LENGTH, body=BODY, version=b"HTTP/0.9"), 505, "HTTP/1.1"),
}


@pytest.mark.parametrize("fault", CLOSED)
def test_what_cannot_be_framed_is_refused_and_ends_the_connection(server: RunningServer, fault: str) -> None:
    request, status, word = CLOSED[fault]
    printed = len(server.lines)
    with Wire(server) as wire:
        answer = wire.send(request + PING).answer()
        assert answer.status == status
        assert answer.headers["connection"] == "close"
        assert word in answer.message
        assert wire.rest() == b"", "what followed the refused request was read as another"
    assert server.ping() == 200
    assert not [line for line in server.lines[printed:] if "Exception" in line or "\tat " in line]


@pytest.mark.parametrize(
    "request_",
    [
        call(LENGTH, body=BODY),
        call(CHUNKED, body=CHUNKED_BODY),
        call(b"Transfer-Encoding: Chunked", body=b"F;why=not\r\n" + BODY + b"\r\n0\r\nTrailer: x\r\n\r\n"),
        call(LENGTH, b"Connection: keep-alive", body=BODY, version=b"HTTP/1.0", host=b""),
    ],
    ids=["length", "chunked", "extension and trailer", "HTTP/1.0 without a host"],
)
def test_well_framed_requests_share_a_connection(server: RunningServer, request_: bytes) -> None:
    with Wire(server) as wire:
        for _ in range(2):
            assert wire.send(request_).answer().status == 200


def test_leave_to_send_is_given_when_asked_for(server: RunningServer) -> None:
    with Wire(server) as wire:
        assert wire.send(call(LENGTH, b"Expect: 100-Continue")).answer(bodyless=True).status == 100
        assert wire.send(BODY).answer().status == 200


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"/ping", 200),
        (b"/ping?x=http://y/z", 200),
        (b"http://x/ping", 200),
        (b"HTTPS://x:80/ping?y", 200),
        (b"/foo://x/ping", 404),
        (b"://x/ping", 404),
        (b"1a://x/ping", 404),
        (b"http://x", 404),
        (b"*", 404),
    ],
)
def test_only_a_scheme_begins_an_absolute_target(server: RunningServer, target: bytes, status: int) -> None:
    with Wire(server) as wire:
        assert wire.send(b"GET " + target + b" HTTP/1.1\r\n" + HOST + b"\r\n").answer().status == status


def test_an_error_keeps_the_connection(server: RunningServer) -> None:
    with Wire(server) as wire:
        assert wire.send(call(b"Content-Length: 1", body=b"{")).answer().status == 400
        assert wire.send(b"GET /nothing HTTP/1.1\r\n" + HOST + b"\r\n").answer().status == 404
        assert wire.send(b"GET /invocations HTTP/1.1\r\n" + HOST + b"\r\n").answer().status == 405
        assert wire.send(call(LENGTH, body=BODY)).answer().status == 200


def test_an_answer_to_head_has_no_body(server: RunningServer) -> None:
    with Wire(server) as wire:
        answer = wire.send(b"HEAD /ping HTTP/1.1\r\n" + HOST + b"\r\n").answer(bodyless=True)
        assert answer.status == 405
        assert int(answer.headers["content-length"]) > 0
        assert wire.send(PING).answer().status == 200


def test_pipelined_requests_are_answered_in_their_order(server: RunningServer) -> None:
    names = [b"call-%d" % number for number in range(12)]
    calls = [call(LENGTH, b"X-Request-Id: " + name, body=BODY) for name in names]
    with Wire(server) as wire:
        wire.send(PING.join(calls))
        for name in names[:-1]:
            assert wire.answer().headers["x-request-id"] == name.decode()
            assert "x-request-id" not in wire.answer().headers
        assert wire.answer().headers["x-request-id"] == names[-1].decode()


def test_one_byte_at_a_time_is_a_request_too(server: RunningServer) -> None:
    with Wire(server) as wire:
        for byte in call(CHUNKED, body=CHUNKED_BODY):
            wire.send(bytes([byte]))
        assert wire.answer().status == 200


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A script that answers with what it was sent."""
    model = tmp_path_factory.mktemp("echo")
    (model / "code").mkdir()
    (model / "code" / "inference.py").write_text(ECHO)
    settings = {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "25", "SAGEMAKER_TS_BATCH_SIZE": "8", "SAGEMAKER_TS_MAX_BATCH_DELAY": "500"}
    with RunningServer(model, settings) as running:
        yield running


def test_large_answers_at_once_take_the_time_of_their_bytes(echo: RunningServer) -> None:
    bodies = [bytes([number]) * (20 * MEGABYTE) for number in range(8)]
    begun = time.monotonic()
    answers = at_once([lambda body=body: echo.invoke(body, "application/octet-stream") for body in bodies])
    assert time.monotonic() - begun < 60
    assert [answer.status_code for answer in answers] == [200] * 8
    assert all(answer.content == body for answer, body in zip(answers, bodies, strict=True))
    assert echo.ping() == 200


def test_half_sent_bodies_share_one_budget(echo: RunningServer) -> None:
    head = call(b"Content-Length: %d" % (20 * MEGABYTE))
    half = b" " * (19 * MEGABYTE)
    with ExitStack() as stack:
        refused = 0
        for _ in range(100):
            wire = stack.enter_context(Wire(echo)).send(head)
            if not wire.send_until_refused(half):
                refused += 1
                assert wire.answer().status == 503
                break
        assert refused == 1
        assert echo.ping() == 200
    deadline = time.monotonic() + 10
    while echo.invoke(b"x" * MEGABYTE, "application/octet-stream").status_code != 200:
        assert time.monotonic() < deadline, "the budget was not given back"
        time.sleep(0.2)
