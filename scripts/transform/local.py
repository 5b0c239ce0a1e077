"""A job on this machine: requests cut from the input in order, sent N at a time, answers written in the same order.

One ordered window holds all that is in flight, across objects, so that small files keep the containers as busy as large
ones and memory is bounded by the window.
"""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from transform.answers import Answer
from transform.assembling import Assembly
from transform.description import Job
from transform.faults import FileError
from transform.joining import Processing, processing
from transform.journal import Journal
from transform.objects import InputObject, address
from transform.outputs import output
from transform.payloads import Limits, Payload, payloads
from transform.progress import Display, Tally, shown
from transform.sending import Sender, StoppedError

MOST_WAITING = 64
WAITING_BYTES = 16 * 1024 * 1024
"""Beside the requests that the containers work on, so many are cut ahead, of at most so many bytes in all."""


@dataclass(slots=True)
class Result:
    """How a run ended. ``failures`` names the objects without output; ``stopped``: it was asked to end before."""

    tally: Tally
    objects: int
    finished: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    all_failed: int = 0
    all_records: int = 0
    uneven: int = 0
    repeated: int = 0
    stopped: bool = False


@dataclass(slots=True)
class Step:
    """What the input yields next: a request, the fault that ends an object, or its good end (``last``)."""

    assembly: Assembly
    payload: Payload | None = None
    fault: str | None = None
    last: bool = False
    future: Future[Answer] | None = None


@dataclass(slots=True)
class LocalRun:
    """One run of a job over its objects. ``stopping`` ends it in order: what is in flight is still written."""

    job: Job
    objects: Sequence[InputObject]
    limits: Limits
    sender: Sender
    journal: Journal
    workers: int
    restart: bool = False
    stopping: threading.Event = field(default_factory=threading.Event)
    _open: dict[int, Assembly] = field(default_factory=dict)

    def run(self) -> Result:
        """Work through all objects. Raises JobError when the job cannot go on; what was done until then is kept."""
        result = Result(Tally(sum(found.size for found in self.objects)), len(self.objects))
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="send")
        try:
            with shown(result.tally) as display:
                self._work(pool, result, display)
        finally:
            self.stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for assembly in self._open.values():
                assembly.make_safe()
                assembly.close()
        result.repeated = self.sender.repeated
        return result

    def _work(self, pool: ThreadPoolExecutor, result: Result, display: Display) -> None:
        window: deque[Step] = deque()
        steps = self._steps(result)
        exhausted = False
        while True:
            while not exhausted and not self.stopping.is_set() and self._room(window):
                step = next(steps, None)
                if step is None:
                    exhausted = True
                    break
                if step.payload is not None:
                    step.future = pool.submit(self.sender.send, step.payload)
                window.append(step)
            if self.stopping.is_set():
                result.stopped = True
                for step in window:
                    if step.future is not None:
                        step.future.cancel()
            if not window or not self._settle(window.popleft(), result):
                return
            display.refresh()

    def _steps(self, result: Result) -> Iterator[Step]:
        compiled = processing(self.job)
        for found in self.objects:
            assembly = self._opened(found, compiled)
            result.tally.kept += assembly.start.records
            if assembly.complete:
                self._count(assembly, result)
                result.tally.done_bytes += found.size
                continue
            if self.job.compression == "None":
                result.tally.done_bytes += assembly.start.offset
            try:
                for payload in payloads(found, self.job, self.limits, compiled, assembly.start):
                    yield Step(assembly, payload)
                    if assembly.failure:
                        break
            except FileError as failure:
                yield Step(assembly, fault=str(failure))
            else:
                yield Step(assembly, last=True)

    def _opened(self, found: InputObject, compiled: Processing) -> Assembly:
        journal = self.journal.of(found)
        target = output(address(self.job.output_uri), found.name, self.job.kms_key, journal)
        assembly = Assembly(found, self.job, compiled, target, journal)
        assembly.open(self.restart)
        if assembly.complete:
            assembly.close()
        else:
            self._open[id(assembly)] = assembly
        return assembly

    def _room(self, window: deque[Step]) -> bool:
        """Always enough for every connection, twice; beyond that little, and few bytes."""
        if len(window) < 2 * self.workers:
            return True
        held = sum(step.payload.size for step in window if step.payload is not None)
        return len(window) < 2 * self.workers + MOST_WAITING and held < WAITING_BYTES

    def _settle(self, step: Step, result: Result) -> bool:
        """Deal with the oldest step; False when the run ends here."""
        assembly = step.assembly
        if assembly.failure is None and step.fault is not None:
            self._fail(assembly, step.fault, result)
        elif assembly.failure is None and step.last:
            assembly.finish()
            self._count(assembly, result)
            if self.job.compression != "None":
                result.tally.done_bytes += assembly.found.size
            self._open.pop(id(assembly))
        elif step.payload is not None and step.future is not None:
            return self._add(step.payload, step.future, assembly, result)
        return True

    def _add(self, payload: Payload, future: Future[Answer], assembly: Assembly, result: Result) -> bool:
        if future.cancelled():
            return False
        try:
            answer = future.result()
        except StoppedError:
            return False
        except FileError as failure:
            self._fail(assembly, str(failure), result)
            return True
        try:
            if assembly.failure is None:
                result.tally.failed += assembly.add(payload, answer)
                result.tally.records += payload.end.records - payload.start.records
                result.tally.received += answer.size
                if self.job.compression == "None":
                    result.tally.done_bytes += payload.end.offset - payload.start.offset
        except FileError as failure:
            self._fail(assembly, str(failure), result)
        finally:
            answer.close()
        return True

    def _fail(self, assembly: Assembly, reason: str, result: Result) -> None:
        """No output for this object; what it had is kept for another run."""
        if assembly.failure is not None:
            return
        assembly.failure = reason
        result.failures[assembly.found.address.text] = reason
        assembly.make_safe()
        assembly.close()
        self._open.pop(id(assembly))

    def _count(self, assembly: Assembly, result: Result) -> None:
        result.finished += 1
        result.all_records += assembly.place.records
        result.all_failed += assembly.failed
        result.uneven += assembly.uneven


@contextmanager
def stopped_by_signals(stopping: threading.Event) -> Iterator[None]:
    """The first SIGINT or SIGTERM lets what is in flight finish; the second ends at once, as if there had been no warning."""

    def stop(number: int, frame: FrameType | None) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
