"""25 MB out and 25 MB in, one request at a time over one connection, timed until the last byte."""

from __future__ import annotations

import http.client
import statistics
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.answers import WrongAnswerError
from benchmarks.servers import Server
from benchmarks.systems import System
from benchmarks.workloads.handlers.large import LARGE as SENT
from benchmarks.workloads.servers import LARGE, artefact

NAME = "large"
SYSTEMS: Mapping[str, System] = LARGE
MEGABYTES = len(SENT) / 1e6
LEAST_CALLS = 5
PIECE = 1 << 20
TYPE = "application/octet-stream"
TIMEOUT_S = 60.0


def measure(system: System, seconds: float) -> dict[str, Any]:
    """``out_mb_s`` and ``in_mb_s`` (medians over calls, whole calls), ``out_first_ms`` until an answer begins.

    Raises StartError, or WrongAnswerError when bytes are not those that were sent.
    """
    with Server(system, artefact(system, "large.py"), "", (b"large", TYPE)) as server:
        status, answer = server.post(b"large", TYPE)
        if status != 200 or answer != SENT:
            raise WrongAnswerError(f"{system.name} answers {status} with {len(answer):,} bytes instead of {len(SENT):,}")
        status, answer = server.post(SENT, TYPE)
        if status != 200 or answer != str(len(SENT)).encode():
            raise WrongAnswerError(f"{system.name} answers a body of 25 MB with {status}: {answer[:100]!r}")
        before = server.cpu_seconds()
        out = calls(server, b"large", seconds)
        cpu = (server.cpu_seconds() - before) / len(out)
        taken = calls(server, SENT, seconds)
    return {
        "out_mb_s": MEGABYTES / statistics.median(whole for _, whole in out),
        "out_first_ms": statistics.median(first for first, _ in out) * 1e3,
        "out_cpu_ms": cpu * 1e3,
        "in_mb_s": MEGABYTES / statistics.median(whole for _, whole in taken),
        "calls": len(out),
    }


def line(entry: Mapping[str, Any]) -> str:
    """For the progress."""
    return f"{entry['out_mb_s']:>8.0f} MB/s out  {entry['in_mb_s']:>6.0f} MB/s in"


def calls(server: Server, body: bytes, seconds: float) -> list[tuple[float, float]]:
    """The same call again and again: seconds from the start of each call to the answer's head, and to its last byte."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
    piece = memoryview(bytearray(PIECE))
    times: list[tuple[float, float]] = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or len(times) < LEAST_CALLS:
        started = time.perf_counter()
        connection.request("POST", server.system.path, body, {"Content-Type": TYPE})
        response = connection.getresponse()
        first = time.perf_counter() - started
        while response.readinto(piece):
            pass
        times.append((first, time.perf_counter() - started))
    connection.close()
    return times
