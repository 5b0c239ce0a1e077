"""What is concluded from figures: what gave out first, what fails a run, and how latencies are kept."""

from __future__ import annotations

import random
from typing import Any

import pytest

from loading.arrivals import Step
from loading.conditions import parse, share, verdicts
from loading.errors import LoadTestError
from loading.latencies import Latencies
from loading.results import Run, StepResult
from loading.saturation import near_ceiling, sentence
from loading.server_metrics import ServerView, between

ALLOWED = 0.01


def step(clients: int, pace: float, **values: Any) -> StepResult:
    p99 = values.pop("p99", 50.0)
    known: dict[str, Any] = {
        "step": Step(clients=clients),
        "seconds": 10.0,
        "requests_per_s": pace,
        "good": int(pace * 10),
        "errors": {},
        "samples": {},
        "latency_ms": {"mean": 20.0, "p50": 20.0, "p90": 30.0, "p95": 40.0, "p99": p99, "p99.9": p99, "max": p99},
        "late_ms": 0.0,
        "bars": [],
        "bytes_per_s": 0.0,
        "client_cpu": 0.1,
        "machine_cpu": 0.5,
    }
    return StepResult(**{**known, **values})


def run(*steps: StepResult, local: bool = True, ceiling: float | None = 10_000.0) -> Run:
    return Run("http://127.0.0.1:8080", local, {}, 1, steps=list(steps), ceiling=ceiling)


def queued(queue_ms: float, handler_ms: float) -> ServerView:
    return ServerView(4.0, 4.0, 0.0, queue_ms, handler_ms, handler_ms, 100)


def test_cpus_come_first_when_they_are_busy_on_the_plateau() -> None:
    found = sentence(run(step(1, 100), step(2, 190), step(4, 195, machine_cpu=0.97)), ALLOWED)
    assert found == (
        "The CPUs came first: throughput stopped growing at 2 clients (195 calls/s), and this machine's CPUs were 97% busy."
    )


def test_the_queue_comes_first_when_calls_wait_longer_than_they_work() -> None:
    waiting = queued(queue_ms=80.0, handler_ms=20.0)
    found = sentence(run(step(1, 100), step(2, 190), step(4, 195, server=waiting), step(8, 196, server=waiting)), ALLOWED)
    assert found.startswith("The queue came first: throughput stopped growing at 2 clients")
    assert "80.0 ms on average" in found
    assert "more workers or threads may help" in found


def test_the_cpus_of_another_machine_are_not_claimed_to_be_known() -> None:
    found = sentence(run(step(1, 100), step(2, 190), step(4, 195, machine_cpu=0.97), local=False), ALLOWED)
    assert found.startswith("The server came first")
    assert "cannot be seen from here" in found


def test_errors_come_first_when_they_begin_before_the_plateau() -> None:
    failing = step(4, 300, errors={"status 503": 400, "timeout": 3})
    found = sentence(run(step(1, 100), step(2, 190), failing), ALLOWED)
    assert found.startswith("Errors came first: with 4 clients")
    assert "status 503 (400)" in found


def test_errors_after_the_plateau_come_second() -> None:
    found = sentence(
        run(step(1, 100), step(2, 101), step(8, 101, machine_cpu=0.95), step(64, 101, errors={"timeout": 500})), ALLOWED
    )
    assert found.startswith("The CPUs came first")
    assert "Then came errors: with 64 clients" in found


def test_the_generator_comes_first_when_it_is_near_its_own_ceiling() -> None:
    near = run(step(1, 800), step(64, 1_500), ceiling=1_900.0)
    assert near_ceiling(near)
    assert "The load generator came first: 1,500 calls/s is close to the 1,900" in sentence(near, ALLOWED)
    assert not near_ceiling(run(step(1, 800), ceiling=1_900.0))
    busy = run(step(1, 800), step(2, 1_500, client_cpu=0.98), ceiling=None)
    assert "kept a CPU 98% busy" in sentence(busy, ALLOWED)


def test_nothing_gave_out_while_throughput_grows() -> None:
    assert "still grew at 4 clients" in sentence(run(step(1, 100), step(2, 190), step(4, 350)), ALLOWED)


def test_the_best_rate_keeps_errors_and_target() -> None:
    seen = run(step(1, 100, p99=20.0), step(8, 300, p99=90.0), step(64, 400, p99=900.0), step(128, 500, errors={"timeout": 900}))
    assert seen.best(ALLOWED) == 400
    assert seen.best(ALLOWED, 100.0) == 300
    assert seen.best(ALLOWED, 5.0) == 0


@pytest.mark.parametrize(
    ("condition", "fails"),
    [("p99>49ms", True), ("p99>50ms", False), ("p99>=0.05s", True), ("requests_per_s<100", False), ("errors>0.5%", True)],
)
def test_conditions_compare_with_their_units(condition: str, fails: bool) -> None:
    one = step(2, 100, errors={"timeout": 6})
    assert bool(verdicts([one], [parse(condition)], ALLOWED)) is fails


@pytest.mark.parametrize("text", ["p99", "p99>200", "p98>1ms", "errors>5ms", "requests_per_s<5%", "p99=5ms", "latency>5ms"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(LoadTestError, match="is no condition"):
        parse(text)


def test_shares_are_read_in_both_ways() -> None:
    assert share("1%") == share("0.01") == 0.01
    with pytest.raises(LoadTestError, match="is no share"):
        share("2")


def test_percentiles_are_true_to_three_digits_and_the_memory_is_bounded() -> None:
    generator = random.Random(5)
    values = sorted(generator.lognormvariate(-4.0, 1.0) for _ in range(50_000))
    kept, other = Latencies(), Latencies()
    for number, value in enumerate(values):
        (kept if number % 2 else other).record(value)
    kept.add([other.encode()])
    assert kept.count == len(values)
    for name, portion in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999)):
        assert kept.summary()[name] == pytest.approx(1e3 * values[int(portion * len(values)) - 1], rel=2e-3, abs=2e-3)
    assert sum(bar["count"] for bar in kept.bars()) == len(values)
    assert len(kept.encode()) < 40_000


def test_a_latency_out_of_range_counts_at_the_end() -> None:
    kept = Latencies()
    kept.record(1e6)
    kept.record(0.0)
    assert kept.count == 2
    assert kept.summary()["max"] == pytest.approx(3.6e6, rel=1e-3)


def test_what_the_server_saw_is_the_difference_of_two_readings() -> None:
    before = {("byoc_batch_requests_count", ""): 10.0, ("byoc_batch_requests_sum", ""): 10.0}
    before |= {("byoc_batch_requests_bucket", bound): 10.0 for bound in ("1.0", "2.0", "4.0", "+Inf")}
    before |= {("byoc_tokens_total", ""): 100.0, ("byoc_padding_tokens_total", ""): 0.0}
    after = {("byoc_batch_requests_count", ""): 14.0, ("byoc_batch_requests_sum", ""): 22.0}
    after |= {("byoc_batch_requests_bucket", "1.0"): 11.0, ("byoc_batch_requests_bucket", "2.0"): 11.0}
    after |= {("byoc_batch_requests_bucket", "4.0"): 13.0, ("byoc_batch_requests_bucket", "+Inf"): 14.0}
    after |= {("byoc_tokens_total", ""): 190.0, ("byoc_padding_tokens_total", ""): 10.0}
    view = between(before, after)
    assert view is not None
    assert view.requests_per_batch == 3.0
    assert view.padding == 0.1
    assert view.batches == {"1": 1, "2": 0, "4": 2, "more": 1}
    assert between(after, after) is None
    assert between(None, after) is None
