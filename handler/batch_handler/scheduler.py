"""The lanes and what waits for them: a lane that is free takes the micro-batch that is due next, from whatever requests.

Nothing waits for a batch to be complete: a request is finished when its own last forward pass is, and what arrives
meanwhile joins the next pass. Owns threads, order and patience; what may share a pass is `microbatch.plan`'s to say.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any

from batch_handler.jobs import Job
from batch_handler.microbatch import MicroBatch, Report, guarded, out_of_memory, plan
from batch_handler.stages import note_pass

log = logging.getLogger(__name__)

HEAVY_ROUNDS = 8
"""Full forward passes of every lane, beyond which a request does not keep others from being taken in."""
HEAVY_AT_ONCE = 8
"""Such requests that are held at once: their tokens are in memory, and a hundred would fill it."""
WINDOW_RECORDS = 512
"""Records that are looked at for one micro-batch: enough to find neighbours in length, few enough to plan in no time."""
PATIENCE = 0.1
"""Of its last pass's time, for which a lane waits for its share of the requests that were here a moment ago."""
TEAM_PATIENCE = 0.3
"""The same where all cores run one pass: who comes too late for it waits for all of the next."""
LONGEST_PATIENCE_S = 0.01
TEAM_LANE = 0
"""The one lane whose kernels may use all cores (``team_tokens``). OpenMP counts the threads of every team that was ever formed,
and once they outnumber the cores it lets them sleep instead of spin, which costs a short pass more than a second core brings."""
LONE = 1.5
"""Requests here at once, below which a caller is alone and gets all cores."""
NEWEST_SHARE = 0.05
"""Weight of the newest request in the mean of how many tokens one has."""
CROWD_S = 0.1
"""Time constant in which requests that do not come back are forgotten."""
LEAST_BUDGET = 64
"""Tokens below which the budget is never halved: what does not fit then is a single record's fault, or somebody else's."""
FIRST_PACE_S = 0.0002
"""Seconds per token before any was measured; it only weighs long requests against waiting ones."""


@dataclass(slots=True)
class Taken:
    """A micro-batch on its lane. ``threads`` is how many cores it may use: all for a caller who is alone, or for few."""

    places: list[tuple[Job, int]]
    microbatch: MicroBatch
    threads: int


class Scheduler:
    """As many threads as there are engines; each runs one micro-batch at a time with single-threaded kernels."""

    def __init__(
        self,
        run: Callable[[Sequence[Any]], Sequence[Any]],
        finished: Callable[[Sequence[Job]], None],
        lanes: int,
        token_budget: int,
        padded: bool,
        use_threads: Callable[[int], None] = lambda _: None,
        called: Callable[[Any], str] = str,
        noted: Callable[[Sequence[tuple[Job, int]]], AbstractContextManager[None]] = lambda _: nullcontext(),
        team_tokens: int = 0,
        stepwise: bool = False,
    ) -> None:
        """`run` takes passes and gives as many outputs; `finished` is called, on a lane, with the jobs that are complete.

        `use_threads` sets the number of threads of the calling lane's kernels. `called` names a job's owner in the log.
        `noted` gives the context within which passes, each a job and an index, are being run. While all requests here at
        once have fewer than `team_tokens`, they share one pass on all cores. `stepwise`: a pass generates, step by step.
        """
        self.lanes = lanes
        self._run = run
        self._finished = finished
        self._budget = self._round = token_budget
        self._padded = padded
        self._stepwise = stepwise
        self._team_tokens = team_tokens
        self._use_threads = use_threads
        self._called = called
        self._passes = 0
        self._noted_running = noted
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._beds = [threading.Condition(self._lock) for _ in range(lanes)]
        self._idle: set[int] = set()
        self._jobs: list[Job] = []
        self._running: dict[int, MicroBatch] = {}
        self._exclusive = False
        self._present = 0
        self._crowd = 0.0
        self._mean_tokens = 0.0
        self._noted = time.monotonic()
        self._light = 0
        self._heavy = 0
        self._pace = FIRST_PACE_S
        self._report = Report()
        for number in range(lanes):
            threading.Thread(target=self._lane_or_end, args=(number,), name=f"lane-{number}", daemon=True).start()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs, none of them without passes. A job is due when it would be done if it had the machine to itself.

        So a short request overtakes a long one, but no request is overtaken for ever.
        """
        now = time.monotonic()
        with self._lock:
            for job in jobs:
                job.due = now + job.tokens * self._pace
                self._mean_tokens += NEWEST_SHARE * (job.tokens - self._mean_tokens)
                insort(self._jobs, job, key=lambda other: other.due)
                self._count(job, 1)
                if job.stages is not None:
                    job.stages.submitted(job.tokens)
            self._note_crowd(len(jobs))
            self._wake(max(len(self._jobs), sum(len(job.passes) for job in jobs)))

    def await_room(self) -> None:
        """Return once less than a round of every lane is waiting, so that the next batch finds the lanes at work."""
        with self._room:
            self._room.wait_for(lambda: self._light <= self._round * self.lanes and self._heavy < HEAVY_AT_ONCE)

    def report(self) -> Report:
        """What was run since the last report."""
        with self._lock:
            report, self._report = self._report, Report()
        return report

    def _count(self, job: Job, sign: int) -> None:
        """Room that a waiting job takes or gives back."""
        if job.tokens > HEAVY_ROUNDS * self._round * self.lanes:
            self._heavy += sign
        else:
            self._light += sign * job.tokens

    def _wake(self, count: int) -> None:
        """Wake as many idle lanes, the lowest first: a lone caller always gets the lane that may use all cores."""
        for lane in [lane for lane in sorted(self._idle) if self._may_take(lane)][:count]:
            self._idle.remove(lane)
            self._beds[lane].notify()

    def _rest(self, lane: int, seconds: float | None = None) -> None:
        """Sleep until there is work, or for so long."""
        self._idle.add(lane)
        self._beds[lane].wait(seconds)
        self._idle.discard(lane)

    def _lane_or_end(self, number: int) -> None:
        """A lane that is lost would leave its requests without an answer; a worker that is lost is replaced."""
        try:
            self._lane(number)
        except BaseException:
            log.critical("lane %d failed; the worker ends and is replaced", number, exc_info=True)
            os._exit(1)

    def _lane(self, number: int) -> None:
        returning, until, sharing = 0, 0.0, self.lanes
        while True:
            taken, late = self._take(number, returning, until)
            done = late
            began = time.monotonic()
            if taken is not None:
                self._use_threads(taken.threads)
                with self._noted_running(taken.places):
                    outputs = self._run_all(taken.places)
                seconds = time.monotonic() - began
                done = late + self._settle(number, taken, outputs, began, seconds)
                sharing, patience = (1, TEAM_PATIENCE) if self._are_few() else (self.lanes, PATIENCE)
                until = time.monotonic() + min(LONGEST_PATIENCE_S, patience * seconds)
            returning = -(-round(self._crowd) // sharing) if done else 0
            try:
                if done:
                    self._finished(done)
            except Exception:
                log.exception("%d finished requests could not be answered", len(done))

    def _run_all(self, places: Sequence[tuple[Job, int]]) -> Sequence[Any]:
        """One output, or error, for each place."""
        passes = [job.passes[index] for job, index in places]

        def whose(indices: Sequence[int]) -> Sequence[str]:
            return list(dict.fromkeys(self._called(places[index][0].owner) for index in indices))

        return guarded(lambda indices: self._attempt([passes[index] for index in indices]), range(len(passes)), whose)

    def _attempt(self, passes: Sequence[Any]) -> Sequence[Any]:
        """Run passes together; what is too much for the memory is not tried again: half of it is the budget from then on."""
        try:
            return self._run(passes)
        except Exception as error:
            if out_of_memory(error) and len(passes) > 1:
                with self._lock:
                    self._budget = min(self._budget, max(LEAST_BUDGET, sum(one.length for one in passes) // 2))
                log.warning("out of memory: forward passes have at most %d tokens from now on", self._budget)
            raise

    def _note_crowd(self, change: int) -> None:
        """How many requests are here at once, as the largest number of late: callers who were answered ask again."""
        now = time.monotonic()
        self._present += change
        fading = math.exp((self._noted - now) / CROWD_S)
        self._crowd = max(self._present, self._present + (self._crowd - self._present) * fading)
        self._noted = now

    def _are_few(self) -> bool:
        """Whether those here at once are better served by one pass on all cores than by one on each.

        A lane by itself reads all weights for its share of so few tokens.
        """
        return self._crowd * self._mean_tokens < self._team_tokens

    def _may_take(self, lane: int) -> bool:
        return lane == TEAM_LANE or not self._are_few()

    def _take(self, lane: int, returning: int, until: float) -> tuple[Taken | None, list[Job]]:
        """Wait for work and take what is due; also the jobs that ended because their time is up."""
        with self._lock:
            while True:
                patience = until - time.monotonic()
                if not (self._runnable() and self._may_take(lane)):
                    self._rest(lane)
                elif patience > 0 and len(self._jobs) < returning and self._light < self._budget:
                    self._rest(lane, patience)
                else:
                    late = self._overdue()
                    return (self._next(lane) if self._runnable() else None), late

    def _runnable(self) -> bool:
        """Whether a lane may begin something. What is to run alone has all lanes to itself: what ends a worker then is known."""
        if self._exclusive or not self._jobs:
            return False
        return not (self._jobs[0].alone and self._running)

    def _overdue(self) -> list[Job]:
        """Give up what has not begun by its deadline."""
        now = time.monotonic()
        ended = []
        for job in [job for job in self._jobs if job.deadline < now]:
            job.left -= len(job.waiting)
            job.waiting.clear()
            self._leave(job)
            if not job.left:
                ended.append(job)
        self._note_crowd(-len(ended))
        return ended

    def _leave(self, job: Job) -> None:
        """A job has nothing waiting any more."""
        self._jobs.remove(job)
        self._count(job, -1)
        self._room.notify_all()

    def _next(self, lane: int) -> Taken:
        """The micro-batch that holds what is due first, planned together with what else waits."""
        window = list(islice(self._window(), WINDOW_RECORDS))
        passes = [job.passes[index] for job, index in window]
        few = self._are_few() and lane == TEAM_LANE and not self._running
        batches = plan(
            [one.length for one in passes],
            self._budget,
            1 if few else self.lanes,
            self._padded,
            [(id(job), index) if job.alone else job.passes[index].group for job, index in window],
            busy=self._running.values(),
            stepwise=self._stepwise,
        )
        chosen = next(batch for batch in batches if 0 in batch.indices)
        places = [window[index] for index in chosen.indices]
        self._remove(places, window)
        self._exclusive = places[0][0].alone
        alone = lane == TEAM_LANE and not self._running and not self._jobs and self._crowd < LONE
        self._running[lane] = chosen
        return Taken(places, chosen, self.lanes if alone or few else 1)

    def _window(self) -> Iterator[tuple[Job, int]]:
        """Waiting passes in the order in which they are due, up to a round of all lanes and one more."""
        tokens = 0
        for job in self._jobs:
            if job.alone:
                if not tokens:
                    yield job, job.waiting[0]
                return
            for index in job.waiting:
                if tokens > 2 * self.lanes * self._budget:
                    return
                tokens += job.passes[index].length
                yield job, index

    def _remove(self, places: Sequence[tuple[Job, int]], window: Sequence[tuple[Job, int]]) -> None:
        """Take places out of what waits. The window is the beginning of each of its jobs' queues."""
        gone = {(id(job), index) for job, index in places}
        kept: dict[int, list[int]] = {}
        for job, _ in window:
            index = job.waiting.popleft()
            kept.setdefault(id(job), [])
            if (id(job), index) not in gone:
                kept[id(job)].append(index)
        for job in {id(job): job for job, _ in window}.values():
            job.waiting.extendleft(reversed(kept[id(job)]))
            if not job.waiting:
                self._leave(job)

    def _settle(self, lane: int, taken: Taken, outputs: Sequence[Any], began: float, seconds: float) -> list[Job]:
        """Note a pass that ended; returns the jobs that are complete with it."""
        done = []
        with self._lock:
            del self._running[lane]
            self._exclusive = False
            if self._jobs:
                self._wake(self.lanes)  # this lane may not be the one that can take what waits
            self._passes += 1
            if any(job.stages for job, _ in taken.places):
                requests = len({id(job) for job, _ in taken.places})
                note_pass([job.stages for job, _ in taken.places], self._passes, began, began + seconds, requests)
            self._report.add(taken.microbatch, seconds)
            if taken.microbatch.tokens:
                self._pace = 0.8 * self._pace + 0.2 * seconds / taken.microbatch.tokens / self.lanes
            for (job, index), output in zip(taken.places, outputs, strict=True):
                job.outputs[index] = output
                job.left -= 1
                if not job.left:
                    done.append(job)
            self._note_crowd(-len(done))
        return done
