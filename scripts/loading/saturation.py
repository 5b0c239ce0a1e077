"""What gave out first, in one plain sentence."""

from __future__ import annotations

from collections.abc import Sequence

from .results import Run, StepResult

NEAR_CEILING = 0.7
"""Share of its own ceiling from which the generator may be what is measured."""
BUSY_CLIENT = 0.9
BUSY_MACHINE = 0.85
LATE_MS = 20.0
GAIN = 1.1
"""A step up that brings less than a tenth more throughput is on the plateau."""


def sentence(run: Run, error_share: float) -> str:
    """What stopped the throughput from growing, at which load, and how that is known."""
    if not run.steps:
        return "Nothing was measured."
    steps = run.sweep
    failing = next((one for one in [*steps, *run.rates] if one.error_share > error_share), None)
    knee = _knee(steps)
    if failing and (knee is None or failing.step.open or failing.step.clients <= knee.step.clients):
        return _errors(failing)
    if generator := _generator(run):
        return generator
    if knee is None:
        return _open_ended(run)
    return _why(run, knee, error_share) + (
        f" {_errors(failing).replace('Errors came first', 'Then came errors')}" if failing else ""
    )


def near_ceiling(run: Run) -> bool:
    """Whether the fastest step came near what the generator can do at all."""
    fastest = max((one.requests_per_s for one in run.steps), default=0.0)
    return run.ceiling is not None and fastest >= NEAR_CEILING * run.ceiling


def _errors(one: StepResult) -> str:
    kind, count = max(one.errors.items(), key=lambda item: item[1]) if one.errors else ("no answer", 0)
    load = f"{one.step.label} arriving" if one.step.open else _clients(one)
    return f"Errors came first: with {load}, {one.error_share:.1%} of the calls failed, most of them with {kind} ({count:,})."


def _generator(run: Run) -> str | None:
    fastest = max(run.steps, key=lambda one: one.requests_per_s)
    remedy = "raise --processes, or run it on another machine"
    if near_ceiling(run):
        return (
            f"The load generator came first: {fastest.requests_per_s:,.0f} calls/s is close to the {run.ceiling or 0.0:,.0f} "
            f"that it makes against a server that does nothing; {remedy}."
        )
    if fastest.client_cpu >= BUSY_CLIENT:
        return f"The load generator came first: its process kept a CPU {min(1.0, fastest.client_cpu):.0%} busy; {remedy}."
    late = next((one for one in run.rates if one.late_ms > LATE_MS), None)
    if late and late.client_cpu >= BUSY_CLIENT / 2:
        return f"The load generator came first: at {late.step.label} it sent calls up to {late.late_ms:,.0f} ms late; {remedy}."
    return None


def _knee(steps: Sequence[StepResult]) -> StepResult | None:
    """The first step after which no later one brings a tenth more."""
    for place, one in enumerate(steps[:-1]):
        if max(later.requests_per_s for later in steps[place + 1 :]) < GAIN * one.requests_per_s:
            return one
    return None


def _why(run: Run, knee: StepResult, error_share: float) -> str:
    best = max(run.sweep, key=lambda one: one.requests_per_s)
    beyond = [one for one in run.sweep if one.step.clients > knee.step.clients]
    later = max((one for one in beyond if one.error_share <= error_share), key=lambda one: one.machine_cpu, default=beyond[0])
    flat = f"throughput stopped growing at {_clients(knee)} ({best.requests_per_s:,.0f} calls/s)"
    if run.local and later.machine_cpu >= BUSY_MACHINE:
        return f"The CPUs came first: {flat}, and this machine's CPUs were {later.machine_cpu:.0%} busy."
    server = later.server
    if server and server.queue_ms > server.handler_ms:
        spare = (
            f", while this machine's CPUs were {later.machine_cpu:.0%} busy: more workers or threads may help"
            if run.local
            else ""
        )
        return (
            f"The queue came first: {flat}, and from there calls wait longer ({server.queue_ms:,.1f} ms on average) "
            f"than the {server.handler_ms:,.1f} ms that their batch takes{spare}."
        )
    seen = f" Its CPUs were {later.machine_cpu:.0%} busy." if run.local else " What it ran out of cannot be seen from here."
    return f"The server came first: {flat}, and more clients only waited longer.{seen}"


def _open_ended(run: Run) -> str:
    if run.sweep:
        last = run.sweep[-1]
        if len(run.sweep) == 1:
            return f"One step says nothing about limits: {_clients(last)} got {last.requests_per_s:,.0f} calls/s without trouble."
        return f"Nothing gave out: throughput still grew at {_clients(last)} ({last.requests_per_s:,.0f} calls/s); add more."
    last = run.rates[-1]
    return f"Nothing gave out up to {last.step.label}: {last.requests_per_s:,.0f} calls/s were answered."


def _clients(one: StepResult) -> str:
    return f"{one.step.clients:,} client{'s' if one.step.clients != 1 else ''}"
