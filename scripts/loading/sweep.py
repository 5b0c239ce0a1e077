"""One step after another: run by the generators, watched from the server's and the machine's side, shown as it goes."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import psutil

from . import server_metrics
from .arrivals import Step
from .caller import Plan
from .ceiling import ceiling
from .errors import LoadTestError
from .generators import CLOSED, OPENED, Generators, Seen
from .results import Run, StepResult
from .target import signer

TRIED_FIRST = 3
SHOWN = 200
OWN_CLIENTS = 32

Halted = Callable[[], bool]


class Screen(Protocol):
    """Where progress is shown."""

    def progress(self, step: Step, seen: Seen) -> None:
        """A step under way."""

    def finished(self, result: StepResult) -> None:
        """A step that is over."""


def first_call(plan: Plan) -> int:
    """The size of an answer in bytes. Made before anything is measured, so that a wrong address or body is said at once.

    Raises LoadTestError when nobody answers, or when the first payloads are all refused (4xx).
    """
    sign = signer(plan.target)
    refused = ""
    for payload in plan.payloads[:TRIED_FIRST]:
        headers = sign(payload.body, {"Content-Type": payload.content_type, **({"Accept": plan.accept} if plan.accept else {})})
        request = urllib.request.Request(plan.target.url, payload.body, dict(headers))  # noqa: S310 -- http(s) by construction
        try:
            with urllib.request.urlopen(request, timeout=plan.timeout) as answer:  # noqa: S310
                return len(answer.read())
        except urllib.error.HTTPError as error:
            if error.code >= 500:
                return len(error.read())
            said = " ".join(error.read()[:SHOWN].decode("utf-8", "replace").split())
            refused = refused or f"{plan.target.url} refuses payload {payload.name} with {error.code}: {said or error.reason}"
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise LoadTestError(f"{plan.target.url} does not answer ({reason}): start it, or correct the address") from None
    raise LoadTestError(refused)


def sweep(generators: Generators, run: Run, plan: Plan, steps: Sequence[Step], screen: Screen, halted: Halted) -> None:
    """Add a result per step to ``run``; a halt keeps what the step under way saw. Raises LoadTestError."""
    for step in steps:
        if halted():
            break
        result = measured(generators, plan, step, screen, halted)
        if result.good or result.errors:
            run.steps.append(result)
            screen.finished(result)
    run.stopped = run.stopped or halted()


def measure_ceiling(run: Run, plan: Plan, answer_bytes: int) -> None:
    """The generator's own limit, at the sweep's widest closed loop."""
    widest = max((one.step.clients for one in run.sweep), default=OWN_CLIENTS * run.processes)
    run.ceiling = ceiling(plan, run.processes, widest, answer_bytes)


def measured(generators: Generators, plan: Plan, step: Step, screen: Screen, halted: Halted) -> StepResult:
    """One step."""
    readings: dict[str, server_metrics.Samples | None] = {}
    times: dict[str, Any] = {}

    def mark(kind: str) -> None:
        times[kind] = psutil.cpu_times()
        readings[kind] = server_metrics.read(plan.target.metrics_url)

    seen = generators.run(step, mark, lambda so_far: screen.progress(step, so_far), halted)
    if OPENED in times and CLOSED not in times:
        mark(CLOSED)
    busy = _busy(times[OPENED], times[CLOSED]) if CLOSED in times else 0.0
    return StepResult.of(step, seen, busy, server_metrics.between(readings.get(OPENED), readings.get(CLOSED)))


def _busy(before: Any, after: Any) -> float:
    """The share of all CPUs that did something between two readings of psutil.cpu_times()."""
    passed = {name: getattr(after, name) - getattr(before, name) for name in after._fields}
    for counted_twice in ("guest", "guest_nice"):
        passed.pop(counted_twice, None)
    total = sum(passed.values())
    return 1.0 - (passed["idle"] + passed.get("iowait", 0.0)) / total if total > 0 else 0.0
