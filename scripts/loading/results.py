"""What was measured: one result per step, all of them together, and how they are written."""

from __future__ import annotations

import json
import math
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from .arrivals import Step
from .errors import LoadTestError
from .generators import Seen
from .server_metrics import ServerView

VERSION = 1


@dataclass(frozen=True, slots=True)
class StepResult:
    """One step. ``machine_cpu`` is the share of all CPUs here that was busy, ``client_cpu`` the generator's of one CPU."""

    step: Step
    seconds: float
    requests_per_s: float
    good: int
    errors: Mapping[str, int]
    samples: Mapping[str, str]
    latency_ms: Mapping[str, float]
    late_ms: float
    bars: Sequence[Mapping[str, float]]
    bytes_per_s: float
    client_cpu: float
    machine_cpu: float
    server: ServerView | None = None

    @classmethod
    def of(cls, step: Step, seen: Seen, machine_cpu: float, server: ServerView | None) -> StepResult:
        """From what the generators saw."""
        seconds = max(seen.measured_s, 1e-9)
        return cls(
            step=step,
            seconds=seen.measured_s,
            requests_per_s=seen.finished / seconds,
            good=seen.good,
            errors=dict(seen.errors),
            samples=dict(seen.samples),
            latency_ms=seen.latencies.summary(),
            late_ms=seen.delays.milliseconds(99.0),
            bars=seen.latencies.bars(),
            bytes_per_s=seen.received / seconds,
            client_cpu=seen.cpu,
            machine_cpu=machine_cpu,
            server=server,
        )

    @property
    def failed(self) -> int:
        """Calls that got no good answer."""
        return sum(self.errors.values())

    @property
    def error_share(self) -> float:
        """Failed calls among all; 1 where nothing at all came back."""
        return self.failed / (self.good + self.failed) if self.good + self.failed else 1.0

    def as_json(self) -> dict[str, Any]:
        """For the result file."""
        load = {"rate": self.step.rate} if self.step.open else {"clients": self.step.clients}
        return {
            **load,
            "requests_per_s": round(self.requests_per_s, 3),
            "requests": self.good + self.failed,
            "errors": self.failed,
            "errors_by_kind": dict(self.errors),
            "error_samples": dict(self.samples),
            "latency_ms": dict(self.latency_ms),
            "sent_late_ms_p99": round(self.late_ms, 3),
            "seconds": round(self.seconds, 3),
            "bytes_per_s": round(self.bytes_per_s),
            "generator_cpu": round(self.client_cpu, 3),
            "machine_cpu": round(self.machine_cpu, 3),
            "histogram": [dict(bar) for bar in self.bars],
            "server": self.server.as_json() if self.server else None,
        }


@dataclass(slots=True)
class Run:
    """A whole test: what was asked, and the results so far."""

    target: str
    local: bool
    payloads: Mapping[str, Any]
    processes: int
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    steps: list[StepResult] = field(default_factory=list)
    ceiling: float | None = None
    stopped: bool = False

    @property
    def sweep(self) -> list[StepResult]:
        """The closed loops, in order of clients."""
        return sorted((one for one in self.steps if not one.step.open), key=lambda one: one.step.clients)

    @property
    def rates(self) -> list[StepResult]:
        """The open loops, in order of rate."""
        return sorted((one for one in self.steps if one.step.open), key=lambda one: one.step.rate)

    def best(self, error_share: float, longest_p99_ms: float = math.inf) -> float:
        """The highest throughput, in requests per second, of a step that kept both limits; 0 when none did."""
        kept = (
            one.requests_per_s
            for one in self.steps
            if one.good and one.error_share <= error_share and one.latency_ms["p99"] <= longest_p99_ms
        )
        return max(kept, default=0.0)


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "cpus": psutil.cpu_count() or 1,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": sys.version.split()[0],
    }


def as_json(run: Run, sentence: str, best: float, limits: Mapping[str, Any], verdicts: Sequence[str]) -> dict[str, Any]:
    """The result file's content; its form is load_test.schema.json."""
    return {
        "version": VERSION,
        "target": run.target,
        "started": run.started.isoformat(timespec="seconds"),
        "stopped_early": run.stopped,
        "machine": machine(),
        "payloads": dict(run.payloads),
        "limits": dict(limits),
        "sweep": [one.as_json() for one in run.sweep],
        "open_loop": [one.as_json() for one in run.rates],
        "max_requests_per_s": round(best, 3),
        "generator": {
            "processes": run.processes,
            "ceiling_requests_per_s": None if run.ceiling is None else round(run.ceiling, 1),
        },
        "saturation": sentence,
        "failed_conditions": list(verdicts),
    }


def write(path: Path, content: str) -> None:
    """A file that is there whole or not at all. Raises LoadTestError."""
    beside = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(content, "utf-8")
        beside.replace(path)
    except OSError as error:
        raise LoadTestError(f"{path} cannot be written: {error.strerror}") from None


def write_json(path: Path, result: Mapping[str, Any]) -> None:
    """The result file."""
    write(path, json.dumps(result, indent=2, ensure_ascii=False) + "\n")
