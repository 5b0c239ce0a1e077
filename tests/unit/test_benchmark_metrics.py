"""What the benchmark of the metrics measures against: a frontend that really counts nothing, and ratios of single rounds."""

from __future__ import annotations

import pytest

from benchmarks import metrics
from benchmarks.systems import System
from benchmarks.workloads.servers import artefact
from running import HOME, RunningServer


def test_ratios_are_those_of_the_same_round() -> None:
    rounds = [
        {
            "counted": {"requests_per_s": fast * 0.9, "cpu_s_per_1000": 0.11},
            "uncounted": {"requests_per_s": fast, "cpu_s_per_1000": 0.1},
        }
        for fast in (1_000.0, 4_000.0, 2_000.0)
    ]
    found = metrics.summary(rounds)
    assert found["throughput"] == pytest.approx(0.9)
    assert found["cpu"] == pytest.approx(1.1)


def test_the_uncounted_frontend_compiles_answers_and_counts_nothing() -> None:
    if not HOME.exists():
        pytest.skip("build/home is not there: run `make build/.home`")
    model = artefact(System("uncounted", None), "nothing.py")
    with RunningServer(model, {}, home=metrics.uncounted()) as server:
        assert server.invoke({"inputs": "nothing"}).content == b"0"
        assert not [name for name, value in server.metrics().items() if value and not name.startswith("byoc_models")]
