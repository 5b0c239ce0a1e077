"""1, 6, 25 and 100 MB out and in, as a transform job may send them, beside a plain HTTP server."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.answers import WrongAnswerError
from benchmarks.servers import Server
from benchmarks.systems import System
from benchmarks.workloads.handlers.large import LARGE as PIECE
from benchmarks.workloads.large import TYPE, calls
from benchmarks.workloads.servers import LARGE, PLAIN, SCRIPT, artefact

NAME = "sizes"
MEGABYTE = 1_000_000
SIZES_MB = (1, 6, 25, 100)
JOB = {"SAGEMAKER_BATCH": "true", "SAGEMAKER_MAX_PAYLOAD_IN_MB": "100", "BYOC_MAX_RESPONSE_MB": "128"}
SYSTEMS: Mapping[str, System] = {
    SCRIPT: replace(LARGE[SCRIPT], settings={**LARGE[SCRIPT].settings, **JOB}),
    PLAIN: LARGE[PLAIN],
}


def measure(system: System, seconds: float) -> dict[str, Any]:
    """``out_<MB>`` and ``in_<MB>`` in MB/s, medians over whole calls. Raises StartError or WrongAnswerError."""
    figures: dict[str, Any] = {}
    with Server(system, artefact(system, "large.py"), "", (b"large1", TYPE)) as server:
        for size in SIZES_MB:
            asked, sent = b"large%d" % size, (PIECE * -(-size // 25))[: size * MEGABYTE]
            for direction, body, expected in (("out", asked, sent), ("in", sent, str(len(sent)).encode())):
                status, answer = server.post(body, TYPE)
                if status != 200 or answer != expected:
                    raise WrongAnswerError(f"{system.name} answers {size} MB {direction} with {status} and {len(answer):,} bytes")
                times = calls(server, body, seconds / len(SIZES_MB))
                figures[f"{direction}_{size}"] = size / statistics.median(whole for _, whole in times)
    return figures


def line(entry: Mapping[str, Any]) -> str:
    """For the progress."""
    return "  ".join(f"{size} MB {entry[f'out_{size}']:.0f}/{entry[f'in_{size}']:.0f}" for size in SIZES_MB) + "  MB/s out/in"
