"""W0: a handler that does nothing, asked by 128 connections of wrk. Requests per second, and what each costs in CPU time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.load import single_texts
from benchmarks.models import BENCH
from benchmarks.servers import Server
from benchmarks.systems import System
from benchmarks.workloads.servers import TRIVIAL, artefact

NAME = "trivial"
SYSTEMS: Mapping[str, System] = TRIVIAL
CLIENTS = 128
WARM_S = 2.0
BODY = b'{"inputs": "nothing"}'


def measure(system: System, seconds: float) -> dict[str, Any]:
    """``requests_per_s``, latencies in ms, ``cpu_s_per_1000`` over all processes. Raises StartError."""
    with Server(system, artefact(system, "nothing.py"), "", (BODY, "application/json")) as server:
        _load(server, WARM_S)
        before = server.cpu_seconds()
        load = _load(server, seconds)
        cpu = server.cpu_seconds() - before
    return {
        "requests_per_s": load.records_per_s,
        "p50_ms": load.p50_ms,
        "p99_ms": load.p99_ms,
        "failed": load.failed,
        "cpu_s_per_1000": cpu / load.records * 1_000 if load.records else None,
    }


def _load(server: Server, seconds: float) -> Any:
    return single_texts(server.port, server.system.path, [BODY], CLIENTS, seconds, BENCH / "run" / "wrk")


def line(entry: Mapping[str, Any]) -> str:
    """For the progress."""
    return f"{entry['requests_per_s']:>8.0f} requests/s  {entry['cpu_s_per_1000'] or 0.0:>6.3f} CPU s/1,000"
