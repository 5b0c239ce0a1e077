"""One process's part of a step: calls made, timed and judged on one event loop.

A latency counts from the moment at which the call was due: in an open loop that is its arrival, even when no connection was
free then, so that a slow server cannot hide the callers it kept waiting (coordinated omission).
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import aiohttp

from .arrivals import Step, poisson
from .latencies import Latencies
from .payloads import Payload, matches, mix
from .target import Target, signer

OK = 200
TIMEOUT, CONNECTION, WRONG = "timeout", "connection", "wrong content"
SAMPLE = 300
PAUSE_S = 0.05
"""After a failed connection, so that a server that is gone is not asked ten thousand times a second."""
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Plan:
    """What all steps have in common. ``most_in_flight`` bounds the calls of an open loop that wait at once."""

    target: Target
    payloads: tuple[Payload, ...]
    timeout: float = 60.0
    accept: str | None = None
    expected: str | None = None
    most_in_flight: int = 2_000
    seed: int = 1


@dataclass(slots=True)
class Tally:
    """What was seen in the measured part of a step.

    Throughput counts good answers that came within it (``finished``); latencies and errors are of the calls due within it,
    whenever they ended. A call that timed out counts in the latencies with the time it waited, other failures do not.
    """

    finished: int = 0
    good: int = 0
    received: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    samples: dict[str, str] = field(default_factory=dict)
    latencies: Latencies = field(default_factory=Latencies)
    delays: Latencies = field(default_factory=Latencies)


class Caller:
    """Runs one step. ``tally`` may be read while it does; ``stop`` ends it early and lets calls in flight go."""

    def __init__(self, plan: Plan, step: Step, number: int = 0) -> None:
        self.tally = Tally()
        self._plan, self._step, self._number = plan, step, number
        self._mixed: Iterator[Payload] = mix(plan.payloads, plan.seed * 1_000 + number)
        self._sign = signer(plan.target)
        self._pattern = re.compile(plan.expected.encode()) if plan.expected else None
        self._accept = {"Accept": plan.accept} if plan.accept else {}
        self._stopped = asyncio.Event()
        self._from = self._until = 0.0

    async def run(self, opened: Callable[[], None], closed: Callable[[], None]) -> None:
        """Warm up, measure, and wait for what is in flight. The callbacks mark the measured part's ends."""
        loop = asyncio.get_running_loop()
        started = time.perf_counter()
        self._from = started + self._step.warm_up
        self._until = self._from + self._step.seconds
        marks = [loop.call_later(self._step.warm_up, opened)]
        marks.append(loop.call_later(self._step.warm_up + self._step.seconds, closed))
        connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=60)
        timeout = aiohttp.ClientTimeout(total=self._plan.timeout)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
            calls = asyncio.ensure_future(self._arrive(session, started) if self._step.open else self._take_turns(session))
            halted = asyncio.ensure_future(self._stopped.wait())
            try:
                await asyncio.wait({calls, halted}, return_when=asyncio.FIRST_COMPLETED)
                if calls.done():
                    calls.result()
            finally:
                for task in (calls, halted):
                    task.cancel()
                await asyncio.gather(calls, halted, return_exceptions=True)
        for mark in marks:
            mark.cancel()
        if self._stopped.is_set():
            return
        await asyncio.sleep(max(0.0, self._until - time.perf_counter()))

    def stop(self) -> None:
        """End now; calls in flight count for nothing."""
        self._stopped.set()

    async def _take_turns(self, session: aiohttp.ClientSession) -> None:
        """The closed loop: each client calls when its last call is answered."""

        async def client() -> None:
            while (now := time.perf_counter()) < self._until:
                if await self._call(session, now) == CONNECTION:
                    await asyncio.sleep(PAUSE_S)

        async with asyncio.TaskGroup() as group:
            for _ in range(self._step.clients):
                group.create_task(client())

    async def _arrive(self, session: aiohttp.ClientSession, started: float) -> None:
        """The open loop. A thread keeps the time: an event loop's clock ticks in whole milliseconds."""
        loop = asyncio.get_running_loop()
        room = threading.Semaphore(self._plan.most_in_flight)
        over = threading.Event()
        calls: set[asyncio.Task[str]] = set()

        def start(due: float) -> None:
            self._tally_delay(due)
            task = loop.create_task(self._call(session, due))
            calls.add(task)
            task.add_done_callback(ended)

        def ended(task: asyncio.Task[str]) -> None:
            calls.discard(task)
            room.release()

        def keep_time() -> None:
            for at in poisson(self._step.rate, self._step.warm_up + self._step.seconds, self._plan.seed + self._number):
                due = started + at
                time.sleep(max(0.0, due - time.perf_counter()))
                while not room.acquire(timeout=POLL_S):
                    if over.is_set():
                        return
                if over.is_set():
                    return
                loop.call_soon_threadsafe(start, due)

        try:
            await loop.run_in_executor(None, keep_time)
            while calls:
                await asyncio.wait(set(calls))
        finally:
            over.set()
            for task in calls:
                task.cancel()

    async def _call(self, session: aiohttp.ClientSession, due: float) -> str:
        """One call, counted; what became of it."""
        payload = next(self._mixed)
        headers = self._sign(payload.body, {"Content-Type": payload.content_type, **self._accept})
        sample = ""
        try:
            async with session.post(self._plan.target.url, data=payload.body, headers=headers, allow_redirects=False) as response:
                answer = await response.read()
                verdict = self._judge(response.status, answer, payload)
                if verdict:
                    sample = f"{payload.name}: {answer[:SAMPLE].decode('utf-8', 'replace')}"
        except TimeoutError:
            verdict, answer, sample = TIMEOUT, b"", f"{payload.name}: no answer within {self._plan.timeout:g} s"
        except (aiohttp.ClientError, OSError) as error:
            verdict, answer, sample = CONNECTION, b"", f"{payload.name}: {error or type(error).__name__}"
        self._count(verdict, due, len(answer), sample)
        return verdict

    def _judge(self, status: int, answer: bytes, payload: Payload) -> str:
        """Nothing for a good answer, otherwise the kind of error."""
        if status != OK:
            return f"status {status}"
        wrong = payload.expected is not None and not matches(answer, payload.expected)
        return WRONG if wrong or (self._pattern and not self._pattern.search(answer)) else ""

    def _count(self, verdict: str, due: float, received: int, sample: str) -> None:
        now = time.perf_counter()
        tally = self.tally
        if not verdict and self._from <= now < self._until:
            tally.finished += 1
            tally.received += received
        if not self._from <= due < self._until:
            return
        if verdict:
            tally.errors[verdict] += 1
            tally.samples.setdefault(verdict, sample)
        else:
            tally.good += 1
        if not verdict or verdict == TIMEOUT:
            tally.latencies.record(now - due)

    def _tally_delay(self, due: float) -> None:
        """How late a call of the open loop was sent."""
        if self._from <= due < self._until:
            self.tally.delays.record(time.perf_counter() - due)
