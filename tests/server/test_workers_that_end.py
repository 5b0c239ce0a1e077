"""What callers see of a worker that dies or hangs while it owes them answers: an error of their own, and soon a new worker."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from running import RunningServer, descendants

TIMEOUT_S = 6
TEXTS = ["some words that keep a processor busy for a while " * 20] * 2_000
CALLS = 3


@pytest.fixture
def server(encoder: Path) -> Iterator[RunningServer]:
    """The encoder with a short response timeout."""
    with RunningServer(encoder, {"SAGEMAKER_TS_RESPONSE_TIMEOUT": str(TIMEOUT_S)}) as running:
        yield running


def worker(server: RunningServer) -> int:
    return next(pid for pid, command in descendants(server.pid) if "model_service_worker" in command)


def begun(server: RunningServer, pool: ThreadPoolExecutor, texts: list[str] = TEXTS) -> list[Future[httpx.Response]]:
    """Calls that the worker has taken and will need long for."""
    calls = [pool.submit(server.invoke, texts) for _ in range(CALLS)]
    deadline = time.monotonic() + 30
    while server.metrics()["byoc_inflight_requests"] < CALLS:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1.0)
    assert not any(call.done() for call in calls)
    return calls


def kind(answer: httpx.Response) -> tuple[int, str]:
    name: str = answer.json()["error"]["type"]
    return answer.status_code, name


def recovers(server: RunningServer) -> None:
    deadline = time.monotonic() + 60
    while server.invoke('"short"').status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert server.ping() == 200
    assert server.metrics()["byoc_inflight_requests"] == 0


def test_what_a_killed_worker_left_is_answered_by_the_next(encoder: Path) -> None:
    texts = TEXTS[:60]
    with RunningServer(encoder) as server:
        alone = server.invoke(texts[:1]).json()[0]
        before = worker(server)
        with ThreadPoolExecutor(CALLS) as pool:
            calls = begun(server, pool, texts)
            os.kill(before, signal.SIGKILL)
            answers = [call.result() for call in calls]
        for answer in answers:
            assert answer.status_code == 200, answer.text[:300]
            assert answer.json() == [pytest.approx(alone, abs=1e-5)] * len(texts)
        recovers(server)
        assert worker(server) != before


def test_a_worker_that_hangs_is_replaced_and_its_callers_are_told_the_timeout(server: RunningServer) -> None:
    before = worker(server)
    with ThreadPoolExecutor(CALLS) as pool:
        calls = begun(server, pool)
        os.kill(before, signal.SIGSTOP)
        answers = [call.result() for call in calls]
    assert (504, "Timeout") in {kind(answer) for answer in answers}
    assert {answer.status_code for answer in answers} <= {503, 504}
    recovers(server)
    assert worker(server) != before


def test_what_takes_too_long_is_told_so_and_the_worker_lives(server: RunningServer) -> None:
    before = worker(server)
    with ThreadPoolExecutor(CALLS) as pool:
        answers = list(pool.map(lambda _: server.invoke(TEXTS), range(CALLS)))
        short = server.invoke('"short"')
    assert {kind(answer) for answer in answers} == {(504, "Timeout")}
    assert short.status_code == 200
    assert worker(server) == before
