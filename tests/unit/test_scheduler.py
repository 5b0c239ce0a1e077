"""Lanes: what waits is taken as it is due, every request is finished once, and as soon as its own passes are."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from batch_handler.errors import ServiceError, invalid_record
from batch_handler.jobs import Job
from batch_handler.microbatch import LATE
from batch_handler.scheduler import HEAVY_AT_ONCE, HEAVY_ROUNDS, TEAM_LANE, Scheduler

BUDGET = 64
WAIT_S = 20.0


@dataclass(frozen=True)
class Pass:
    """Stands for an encoded record."""

    length: int
    name: Any = None
    group: Any = None


class Machine:
    """A scheduler over a model that notes what it ran and can be held at a gate."""

    def __init__(
        self, lanes: int = 2, padded: bool = False, fail: Callable[[Pass], bool] = lambda _: False, team_tokens: int = 0
    ) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.ran: list[list[Pass]] = []
        self.threads: list[int] = []
        self.lanes: list[str] = []
        self.finished: list[Any] = []
        self._fail = fail
        self._ended = threading.Condition()
        self.scheduler = Scheduler(self._run, self._note, lanes, BUDGET, padded, self._use_threads, team_tokens=team_tokens)

    def _use_threads(self, count: int) -> None:
        self.threads.append(count)
        self.lanes.append(threading.current_thread().name)

    def _run(self, passes: Sequence[Pass]) -> list[Any]:
        self.ran.append(list(passes))
        assert self.gate.wait(WAIT_S)
        if any(self._fail(one) for one in passes):
            raise invalid_record("poison")
        return [("done", one.name) for one in passes]

    def _note(self, jobs: Sequence[Job]) -> None:
        with self._ended:
            self.finished += [job.owner for job in jobs]
            self._ended.notify_all()

    def submit(self, *jobs: Job) -> None:
        self.scheduler.submit(jobs)

    def await_finished(self, count: int) -> None:
        with self._ended:
            assert self._ended.wait_for(lambda: len(self.finished) >= count, WAIT_S), self.finished

    def await_running(self, count: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while len(self.ran) < count:
            assert time.monotonic() < deadline
            time.sleep(0.001)


def job(owner: Any, *lengths: int, **options: Any) -> Job:
    return Job(owner, [Pass(length, (owner, index)) for index, length in enumerate(lengths)], **options)


@pytest.mark.parametrize("lanes", [1, 2, 5])
@pytest.mark.parametrize("padded", [True, False])
def test_every_pass_runs_once_and_its_output_is_in_its_place(lanes: int, padded: bool) -> None:
    chooser = random.Random(lanes)
    machine = Machine(lanes, padded)
    jobs = [job(owner, *[chooser.randint(1, 90) for _ in range(chooser.randint(1, 40))]) for owner in range(50)]
    for one in jobs:
        machine.submit(one)
    machine.await_finished(len(jobs))
    assert sorted(machine.finished) == list(range(50))
    for one in jobs:
        assert one.outputs == [("done", (one.owner, index)) for index in range(len(one.passes))]
    assert sorted(single.name for batch in machine.ran for single in batch) == sorted(
        single.name for one in jobs for single in one.passes
    )
    for batch in machine.ran:
        tokens = sum(one.length for one in batch)
        assert len(batch) == 1 or (max(one.length for one in batch) * len(batch) if padded else tokens) <= BUDGET


def test_a_short_request_is_finished_while_a_long_one_still_runs() -> None:
    machine = Machine(lanes=1)
    machine.gate.clear()
    machine.submit(job("long", *[BUDGET] * 20))
    machine.await_running(1)
    machine.submit(job("short", 3))
    machine.gate.set()
    machine.await_finished(2)
    assert machine.finished == ["short", "long"]
    assert [one.name[0] for one in machine.ran[1]] == ["short"]


def test_what_arrives_while_the_lanes_are_busy_shares_the_next_pass() -> None:
    machine = Machine(lanes=1)
    machine.gate.clear()
    machine.submit(job("first", 5))
    machine.await_running(1)
    for owner in range(6):
        machine.submit(job(owner, 5))
    machine.gate.set()
    machine.await_finished(7)
    assert len(machine.ran) == 2


def test_groups_never_meet() -> None:
    machine = Machine(lanes=1)
    machine.gate.clear()
    machine.submit(job("first", 5))
    machine.await_running(1)
    for owner in range(12):
        machine.submit(Job(owner, [Pass(2, owner, group=owner % 3)]))
    machine.gate.set()
    machine.await_finished(13)
    assert sorted(len({one.group for one in batch}) for batch in machine.ran) == [1] * 4


def test_a_lone_caller_has_every_core_and_always_the_same_lane() -> None:
    machine = Machine(lanes=3)
    for count in range(20):
        machine.submit(job(count, 1 + count))
        machine.await_finished(count + 1)
    assert machine.threads == [3] * 20
    assert set(machine.lanes) == {f"lane-{TEAM_LANE}"}


def test_callers_who_come_together_have_a_core_each_until_one_is_alone_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batch_handler.scheduler.CROWD_S", 60.0)  # however slow this machine is
    machine = Machine(lanes=2)
    machine.gate.clear()
    machine.submit(job("one", 5))
    machine.await_running(1)
    machine.submit(job("other", 5))
    machine.await_running(2)
    machine.gate.set()
    machine.await_finished(2)
    machine.submit(job("at once", 5))
    machine.await_finished(3)
    assert machine.threads == [2, 1, 1]
    monkeypatch.setattr("batch_handler.scheduler.CROWD_S", 0.001)
    time.sleep(0.05)
    machine.submit(job("later", 5))
    machine.await_finished(4)
    assert machine.threads[3] == 2


def held_in_a_team(lanes: int) -> Machine:
    """Lanes of which one is held at the gate with a few tokens on all cores."""
    machine = Machine(lanes=lanes, team_tokens=40)
    machine.gate.clear()
    machine.submit(job("few", 5))
    machine.await_running(1)
    return machine


def test_few_tokens_share_one_pass_on_every_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batch_handler.scheduler.CROWD_S", 60.0)
    machine = held_in_a_team(lanes=3)
    for owner in range(5):
        machine.submit(job(owner, 5))
    time.sleep(0.05)
    assert len(machine.ran) == 1
    machine.gate.set()
    machine.await_finished(6)
    assert [len(batch) for batch in machine.ran] == [1, 5]
    assert machine.threads == [3, 3]
    assert set(machine.lanes) == {f"lane-{TEAM_LANE}"}


def test_a_core_each_is_for_more_than_few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batch_handler.scheduler.CROWD_S", 60.0)
    machine = held_in_a_team(lanes=2)
    machine.submit(job("waits", 5))
    time.sleep(0.05)
    assert len(machine.ran) == 1
    for owner in range(30):
        machine.submit(job(owner, 30))
    machine.await_running(2)
    machine.gate.set()
    machine.await_finished(32)
    assert set(machine.lanes) == {"lane-0", "lane-1"}
    assert machine.threads == [2] + [1] * (len(machine.ran) - 1)


def test_what_one_lane_must_leave_to_another_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batch_handler.scheduler.CROWD_S", 1e-9)
    running: dict[str, str] = {}
    held = {f"lane-{number}": threading.Event() for number in range(2)}
    finished: list[Any] = []

    def run(passes: Sequence[Pass]) -> list[Any]:
        lane = threading.current_thread().name
        running[lane] = lane
        assert held[lane].wait(WAIT_S)
        return [None for _ in passes]

    def until(reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not reached():
            assert time.monotonic() < deadline
            time.sleep(0.001)

    scheduler = Scheduler(run, finished.extend, 2, BUDGET, padded=False, team_tokens=10)
    scheduler.submit([job("one", 60), job("other", 60)])
    until(lambda: len(running) == 2)
    held["lane-0"].set()
    until(lambda: len(finished) == 1)
    scheduler.submit([job("alone", 1, alone=True)])
    time.sleep(0.05)
    held["lane-1"].set()
    until(lambda: len(finished) == 3)


def test_a_request_of_many_passes_has_a_core_for_each() -> None:
    machine = Machine(lanes=2)
    machine.gate.clear()
    machine.submit(job("many", *[40] * 4))
    machine.await_running(2)
    machine.gate.set()
    machine.await_finished(1)
    assert machine.threads[:3] == [1, 1, 1]


def test_a_pass_that_fails_costs_its_request_alone() -> None:
    machine = Machine(lanes=1, fail=lambda one: one.name[0] == "poison")
    machine.gate.clear()
    machine.submit(job("first", 5))
    machine.await_running(1)
    jobs = [job(owner, 3, 4) for owner in ("one", "poison", "other")]
    machine.submit(*jobs)
    machine.gate.set()
    machine.await_finished(4)
    kinds = [[isinstance(output, ServiceError) for output in one.outputs] for one in jobs]
    assert kinds == [[False, False], [True, True], [False, False]]


def test_what_has_not_begun_by_its_deadline_is_late_and_never_run() -> None:
    machine = Machine(lanes=1)
    machine.gate.clear()
    machine.submit(job("first", 5))
    machine.await_running(1)
    late = job("late", 3, 3, deadline=time.monotonic() + 0.01)
    machine.submit(late)
    time.sleep(0.05)
    machine.gate.set()
    machine.await_finished(2)
    assert late.outputs == [LATE, LATE]
    assert len(machine.ran) == 1


def assert_room_comes_when_the_gate_opens(machine: Machine) -> None:
    waiter = threading.Thread(target=machine.scheduler.await_room)
    waiter.start()
    waiter.join(0.05)
    assert waiter.is_alive()
    machine.gate.set()
    waiter.join(WAIT_S)
    assert not waiter.is_alive()


def test_there_is_room_again_when_what_waits_is_less_than_a_round() -> None:
    machine = Machine(lanes=1)
    machine.gate.clear()
    machine.submit(job("running", BUDGET))
    machine.await_running(1)
    machine.submit(*[job(owner, BUDGET) for owner in range(3)])
    assert_room_comes_when_the_gate_opens(machine)


def test_heavy_requests_leave_room_for_others_up_to_a_number() -> None:
    machine = Machine(lanes=1)
    machine.gate.clear()
    heavy = [BUDGET] * (HEAVY_ROUNDS + 1)
    machine.submit(*[job(owner, *heavy) for owner in range(HEAVY_AT_ONCE - 1)])
    machine.scheduler.await_room()
    machine.submit(job("one more", *heavy))
    assert_room_comes_when_the_gate_opens(machine)


def test_a_report_adds_up_what_was_run_since_the_last() -> None:
    machine = Machine(lanes=2, padded=True)
    machine.submit(job("one", 3, 5), job("two", 9))
    machine.await_finished(2)
    report = machine.scheduler.report()
    assert report.tokens == 17
    assert sum(report.microbatches) == 3
    assert machine.scheduler.report().tokens == 0


def test_a_fault_in_handing_answers_on_does_not_end_the_lane(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def finished(jobs: Sequence[Job]) -> None:
        calls.append(len(jobs))
        raise ZeroDivisionError

    scheduler = Scheduler(lambda passes: [None] * len(passes), finished, 1, BUDGET, padded=False)
    for count in (1, 2):
        scheduler.submit([job("one", 1)])
        deadline = time.monotonic() + WAIT_S
        while len(calls) < count:
            assert time.monotonic() < deadline
            time.sleep(0.001)
    assert "could not be answered" in caplog.text


@pytest.mark.timeout(60)
def test_thousands_of_requests_from_several_threads_are_each_finished_once() -> None:
    machine = Machine(lanes=3)
    chooser = random.Random(3)
    jobs = [
        [job((thread, owner), *[chooser.randint(1, 30)] * chooser.randint(1, 3)) for owner in range(500)] for thread in range(4)
    ]

    def feed(own: Sequence[Job]) -> None:
        for one in own:
            machine.submit(one)
            machine.scheduler.await_room()

    feeders = [threading.Thread(target=feed, args=(own,)) for own in jobs]
    for feeder in feeders:
        feeder.start()
    for feeder in feeders:
        feeder.join()
    machine.await_finished(2_000)
    assert sorted(machine.finished) == sorted(one.owner for own in jobs for one in own)


def test_a_job_that_is_to_be_alone_has_no_company_not_even_its_own() -> None:
    machine = Machine(lanes=2)
    machine.gate.clear()
    machine.submit(job("first", 4), job("suspect", 4, 5, 6, alone=True), job("last", 4, 4))
    machine.await_running(1)
    machine.gate.set()
    machine.await_finished(3)
    suspects = [passes for passes in machine.ran if any(one.name[0] == "suspect" for one in passes)]
    assert sorted(len(passes) for passes in suspects) == [1, 1, 1]


def test_passes_of_a_job_that_is_to_be_alone_never_run_at_once() -> None:
    machine = Machine(lanes=3)
    machine.gate.clear()
    machine.submit(job("suspect", 4, 5, 6, alone=True))
    machine.await_running(1)
    time.sleep(0.05)
    assert len(machine.ran) == 1
    machine.gate.set()
    machine.await_finished(1)
    assert len(machine.ran) == 3


def test_what_is_to_be_alone_has_all_lanes_to_itself_and_nothing_is_forgotten_meanwhile() -> None:
    machine = Machine(lanes=3)
    machine.gate.clear()
    machine.submit(job("suspect", 4, 5, alone=True))
    machine.await_running(1)
    machine.submit(*(job(number, 40) for number in range(6)))
    time.sleep(0.05)
    assert len(machine.ran) == 1, "the other lanes wait"
    machine.gate.set()
    machine.await_finished(7)
    names = [{one.name[0] for one in passes} for passes in machine.ran]
    assert [found for found in names if "suspect" in found] == [{"suspect"}, {"suspect"}]


def test_what_is_to_be_alone_waits_for_the_lanes_to_be_free() -> None:
    machine = Machine(lanes=2)
    machine.gate.clear()
    machine.submit(job("first", 40))
    machine.await_running(1)
    machine.submit(job("suspect", 4, alone=True))
    time.sleep(0.05)
    assert len(machine.ran) == 1
    machine.gate.set()
    machine.await_finished(2)
    assert machine.finished == ["first", "suspect"]
