"""What a run may be failed for: ``p99>200ms``, ``errors>1%``, ``requests_per_s<100``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .errors import LoadTestError
from .latencies import PERCENTILES
from .results import StepResult

LATENCIES = (*PERCENTILES, "mean", "max")
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
FORM = re.compile(r"\s*([a-z0-9._]+)\s*(>=|<=|>|<)\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|us|%|)\s*")
TO_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}
ACCEPTED = f"use {', '.join(LATENCIES)} with us, ms or s, errors with %, or requests_per_s, such as p99>200ms"


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison that no step may fulfil. ``limit`` is in milliseconds, a share, or requests per second."""

    text: str
    figure: str
    comparison: str
    limit: float

    def met_by(self, one: StepResult) -> bool:
        """Whether the step fails the run."""
        values = {**one.latency_ms, "errors": one.error_share, "requests_per_s": one.requests_per_s}
        return COMPARISONS[self.comparison](values[self.figure], self.limit)


def parse(text: str) -> Condition:
    """Raises LoadTestError for what is no condition."""
    found = FORM.fullmatch(text)
    if not found:
        raise LoadTestError(f"{text!r} is no condition: {ACCEPTED}")
    figure, comparison, number, unit = found.groups()
    if figure in LATENCIES and unit in TO_MS:
        return Condition(text, figure, comparison, float(number) * TO_MS[unit])
    if figure == "errors" and unit == "%":
        return Condition(text, figure, comparison, float(number) / 100)
    if figure == "requests_per_s" and not unit:
        return Condition(text, figure, comparison, float(number))
    raise LoadTestError(f"{text!r} is no condition: {ACCEPTED}")


def duration_ms(text: str) -> float:
    """``200ms`` or ``1.5s`` in milliseconds. Raises LoadTestError."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s)\s*", text)
    if not found or float(found[1]) <= 0:
        raise LoadTestError(f"{text!r} is no duration: write it like 200ms or 1.5s")
    return float(found[1]) * TO_MS[found[2]]


def share(text: str) -> float:
    """``1%`` or ``0.01`` as a share. Raises LoadTestError."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(%?)\s*", text)
    value = float(found[1]) / (100 if found[2] else 1) if found else 2.0
    if value > 1:
        raise LoadTestError(f"{text!r} is no share: write it like 1% or 0.01")
    return value


def verdicts(steps: Sequence[StepResult], conditions: Sequence[Condition], error_share: float) -> list[str]:
    """One sentence for everything that fails the run; none when it passes."""
    found: list[str] = []
    for one in steps:
        load = f"at {one.step.label}" if one.step.open else f"with {one.step.label} client{'s' if one.step.clients != 1 else ''}"
        met = (condition for condition in conditions if condition.met_by(one))
        found += [f"{condition.text}: {load} it was {_shown(condition.figure, one)}" for condition in met]
        if one.error_share > error_share:
            found.append(f"errors: {load} {one.error_share:.2%} of the calls failed, more than the {error_share:.2%} allowed")
    return found


def _shown(figure: str, one: StepResult) -> str:
    if figure == "errors":
        return f"{one.error_share:.2%}"
    return f"{one.requests_per_s:,.1f}" if figure == "requests_per_s" else f"{one.latency_ms[figure]:,.1f} ms"
