"""Made-up results of the benchmarks, small enough to reckon by hand."""

from __future__ import annotations

from typing import Any

from benchmarks.systems import FLASK, INT8, ONE_CORE, PRODUCT
from benchmarks.workloads.servers import SCRIPT, STOCK

PEER, ONNX = FLASK, "infinity, onnx"


def entry(number: int, system: str, pace: float, lines: int = 1, clients: int = 8) -> dict[str, Any]:
    seen = {"records_per_s": pace, "p50_ms": 1_000 / pace, "p99_ms": 3_000 / pace, "failed": 0}
    return {
        "round": number,
        "system": system,
        "lines": lines,
        "clients": clients,
        **seen,
        "cpu_s_per_1000": 5.0,
        "peak_mb": 800.0,
    }


def two_rounds() -> dict[str, Any]:
    """Two rounds; in the second the machine has half its speed."""
    return {
        "model": {"name": "minilm", "title": "A model"},
        "machine": {"cores": 2, "cpu": "a CPU"},
        "plan": {"rounds": 2, "seconds": 2.0, "systems": [PRODUCT, PEER]},
        "points": [entry(0, PRODUCT, 200.0), entry(0, PEER, 100.0), entry(1, PRODUCT, 110.0), entry(1, PEER, 50.0)],
        "starts": [{"round": 0, "system": PRODUCT, "cold_start_s": 4.0, "rest_mb": 500.0, "after_mb": 510.0}],
        "limits": [
            {"round": number, "kind": "packed", "when": when, "records_per_s": pace}
            for number, when, pace in ((0, "start", 220.0), (0, "end", 180.0), (1, "start", 110.0), (1, "end", 110.0))
        ],
        "absent": {"Ray Serve, batch 32": "could not be installed: no such version"},
    }


def complete() -> dict[str, Any]:
    """The same rounds with what the goals need beside throughput."""
    seen = two_rounds()
    seen["points"] += [entry(number, INT8, 500.0, clients=32) for number in (0, 1)]
    seen["points"] += [entry(number, PRODUCT, 230.0, clients=32) for number in (0, 1)]
    seen["points"] += [entry(number, PEER, 100.0, clients=32) for number in (0, 1)]
    seen["points"] += [entry(0, ONNX, 115.0, clients=32), {**entry(0, ONE_CORE, 120.0, clients=32), "cpu_s_per_1000": 4.0}]
    seen["starts"] += [{"round": 0, "system": PEER, "cold_start_s": 5.0, "rest_mb": 430.0, "after_mb": 430.0}]
    seen["bare"] = [{"round": 0, "script_s": 3.0, "container_s": None}]
    seen["trivial"] = [
        {"round": 0, "system": PRODUCT, "requests_per_s": 9_000.0, "p50_ms": 1.0, "p99_ms": 2.0, "cpu_s_per_1000": 0.1},
        {"round": 0, "system": STOCK, "requests_per_s": 900.0, "p50_ms": 9.0, "p99_ms": 20.0, "cpu_s_per_1000": 1.0},
    ]
    seen["large"] = [{"round": 0, "system": SCRIPT, "out_mb_s": 150.0, "out_first_ms": 9.0, "out_cpu_ms": 9.0, "in_mb_s": 99.0}]
    return seen
