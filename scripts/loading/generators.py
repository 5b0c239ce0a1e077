"""The processes that make the calls: started once, told one step after another, stopped together.

They are apart from the one that draws the table, so that drawing delays no call; more than one lifts the generator's ceiling.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Self

import uvloop

from .arrivals import Step
from .caller import Caller, Plan, Tally
from .errors import LoadTestError

REPORT_S = 0.5
SWITCH_S = 0.0005
"""How long the thread that keeps the time may wait for the interpreter."""
END_LIMIT_S = 5.0
POLL_S = 0.2
ENDED = "a process that makes the calls ended by itself: run again with fewer clients, or look for its last words above"
OPENED, CLOSED, SEEN, DONE = "opened", "closed", "seen", "done"


@dataclass(slots=True)
class Seen(Tally):
    """What one process, or all of them together, saw of a step so far. ``cpu`` is the busiest process's share of one CPU."""

    measured_s: float = 0.0
    cpu: float = 0.0

    @property
    def failed(self) -> int:
        """Calls that got no good answer."""
        return sum(self.errors.values())


@dataclass(frozen=True, slots=True)
class Message:
    """What a generator says: ``kind``, and its counts so far (histograms encoded)."""

    kind: str
    finished: int = 0
    good: int = 0
    received: int = 0
    errors: tuple[tuple[str, int], ...] = ()
    samples: tuple[tuple[str, str], ...] = ()
    latencies: bytes = b""
    delays: bytes = b""
    measured_s: float = 0.0
    cpu: float = 0.0


class Generators:
    """So many processes that run steps together. Use it as a context manager."""

    def __init__(self, plan: Plan, processes: int = 1) -> None:
        self._processes: list[multiprocessing.process.BaseProcess] = []
        self._pipes: list[Connection] = []
        for number in range(processes):
            ours, theirs = multiprocessing.Pipe()
            process = multiprocessing.Process(
                target=_generate, args=(plan, number, processes, theirs, (*self._pipes, ours)), daemon=True
            )
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(END_LIMIT_S)
            if process.is_alive():
                process.kill()
                process.join()

    def run(
        self, step: Step, on_mark: Callable[[str], None], on_progress: Callable[[Seen], None], halted: Callable[[], bool]
    ) -> Seen:
        """Run a step to its end, or until ``halted`` says so: then with what was seen by then.

        ``on_mark`` hears when the measured part opens and closes, ``on_progress`` twice a second. Raises LoadTestError.
        """
        self._order(step)
        said: dict[int, Message] = {}
        stopped = False
        while sum(message.kind == DONE for message in said.values()) < len(self._pipes):
            if halted() and not stopped:
                stopped = True
                self._order(None)
            for number, message in self._heard():
                if message.kind in (OPENED, CLOSED):
                    if number == 0:
                        on_mark(message.kind)
                else:
                    said[number] = message
            on_progress(_together(said))
        return _together(said)

    def _order(self, step: Step | None) -> None:
        """A step to run, or None to stop."""
        try:
            for pipe in self._pipes:
                pipe.send(step)
        except OSError:
            raise LoadTestError(ENDED) from None

    def _heard(self) -> list[tuple[int, Message]]:
        """What the processes said by now; empty after a while in which they said nothing."""
        try:
            return [(self._pipes.index(pipe), pipe.recv()) for pipe in wait(self._pipes, POLL_S) if isinstance(pipe, Connection)]
        except EOFError:
            raise LoadTestError(ENDED) from None


def _together(said: dict[int, Message]) -> Seen:
    seen = Seen()
    for message in said.values():
        seen.finished += message.finished
        seen.good += message.good
        seen.received += message.received
        seen.errors.update(dict(message.errors))
        seen.samples = {**dict(message.samples), **seen.samples}
        seen.latencies.add([message.latencies] if message.latencies else [])
        seen.delays.add([message.delays] if message.delays else [])
        seen.measured_s = max(seen.measured_s, message.measured_s)
        seen.cpu = max(seen.cpu, message.cpu)
    return seen


def _generate(plan: Plan, number: int, processes: int, pipe: Connection, others: Sequence[Connection]) -> None:
    """The life of one process: steps come in, counts go out; it ends when the pipe does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.setswitchinterval(SWITCH_S)
    for inherited in others:  # or the end of the parent would close no pipe
        inherited.close()
    try:
        while True:
            step = pipe.recv()
            if step is not None:
                uvloop.run(_Run(plan, step.share(number, processes), number, pipe).go())
    except (EOFError, OSError):
        return


class _Run:
    """One step in one process."""

    def __init__(self, plan: Plan, step: Step, number: int, pipe: Connection) -> None:
        self._caller = Caller(plan, step, number)
        self._pipe = pipe
        self._opened = self._closed = 0.0
        self._cpu = [0.0, 0.0]

    async def go(self) -> None:
        """Run it, and say so twice a second and at the end."""
        telling = asyncio.ensure_future(self._tell())
        try:
            await self._caller.run(self._open, self._close)
        finally:
            telling.cancel()
        if not self._closed:
            self._end()
        self._pipe.send(self._message(DONE))

    def _open(self) -> None:
        self._opened, self._cpu[0] = time.perf_counter(), time.process_time()
        self._pipe.send(Message(OPENED))

    def _close(self) -> None:
        self._end()
        self._pipe.send(Message(CLOSED))

    def _end(self) -> None:
        self._closed, self._cpu[1] = time.perf_counter(), time.process_time()
        if not self._opened:
            self._opened, self._cpu[0] = self._closed, self._cpu[1]

    async def _tell(self) -> None:
        """Report, and listen: the only order during a step is to stop, and a pipe that ended says the same."""
        told = time.perf_counter()
        while True:
            await asyncio.sleep(POLL_S)
            if self._pipe.poll():
                self._caller.stop()
                return
            if time.perf_counter() - told >= REPORT_S:
                told = time.perf_counter()
                self._pipe.send(self._message(SEEN))

    def _message(self, kind: str) -> Message:
        tally = self._caller.tally
        measured, cpu = 0.0, 0.0
        if self._opened:
            measured = (self._closed or time.perf_counter()) - self._opened
            cpu = (self._cpu[1] if self._closed else time.process_time()) - self._cpu[0]
        return Message(
            kind,
            tally.finished,
            tally.good,
            tally.received,
            tuple(tally.errors.items()),
            tuple(tally.samples.items()),
            tally.latencies.encode(),
            tally.delays.encode(),
            measured,
            cpu / measured if measured > 0 else 0.0,
        )
