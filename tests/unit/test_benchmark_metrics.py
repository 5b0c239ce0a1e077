"""What the benchmark of the metrics measures with: a frontend that counts by turns, and ratios of neighbouring phases."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks import metrics
from benchmarks.metrics import Phase
from benchmarks.systems import System
from benchmarks.workloads.servers import artefact
from running import HOME, RunningServer


def test_a_counted_phase_is_held_against_its_neighbours() -> None:
    seen = [Phase(number % 2 == 0, 2.0, 1_000 + 10 * number - (100 if number % 2 == 0 else 0), 1.0) for number in range(7)]
    found = metrics.compared(seen)
    assert [one["throughput"] for one in found] == pytest.approx([1 - 100 / 1_020, 1 - 100 / 1_040])
    assert metrics.summary(found)["throughput"] == pytest.approx(1 - 100 / 1_030, abs=1e-4)


def test_what_is_told_each_second_is_told_a_fifteenth_as_often() -> None:
    usual = metrics.at_usual_periods({"throughput": 0.99, "cpu": 1.01}, {"throughput": 0.84, "cpu": 1.16})
    assert usual == pytest.approx({"throughput": 0.98, "cpu": 1.02})


@pytest.fixture(scope="module")
def home() -> Path:
    """One whose frontend counts by turns."""
    if not HOME.exists():
        pytest.skip("build/home is not there: run `make build/.home`")
    return metrics.switched()


def test_counting_by_itself_is_timed_call_by_call(home: Path) -> None:
    assert 0.01 < metrics.alone_us(home) < 100


def test_the_switched_frontend_counts_every_answer_of_a_counted_phase_and_no_other(home: Path, tmp_path: Path) -> None:
    system = System("switched", None)
    phases = tmp_path / "phases.txt"
    with RunningServer(artefact(system, "nothing.py"), metrics.settings(phases, 0.5), home=home) as server:
        began = len(metrics.read(phases)) if phases.exists() else 0
        for _ in range(40):
            assert server.invoke({"inputs": "nothing"}).content == b"0"
            time.sleep(0.05)
        time.sleep(0.6)
        seen = metrics.read(phases)[began:]
        counted = sum(phase.answers for phase in seen if phase.counted)
        requests = sum(value for name, value in server.metrics().items() if name.startswith("byoc_requests_total"))
    assert sum(phase.answers for phase in seen) == 40
    assert 0 < counted < 40
    assert requests == pytest.approx(counted, abs=len(seen))  # a turn may fall between the two
