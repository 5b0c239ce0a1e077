"""Models come, go and are called by chance, from several threads at once; every answer must be the right model's.

The short version runs with the suite. ``TEST_ALL=1`` runs 10,000 operations over 200 models; SEED repeats a run.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from models import many
from operations import Outcome, Players
from running import RunningServer
from shelf import MULTI_MODEL, NO_MODEL, Shelf

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1_000_000))


def played(directory: Path, *, models: int, operations: int, threads: int, at_once: int) -> Outcome:
    """Play on a server of its own and tell what became of it."""
    print(f"SEED={SEED}")
    artefacts = [many.save(directory, number) for number in range(models)]
    with RunningServer(NO_MODEL, {**MULTI_MODEL, "BYOC_THREADS": "1"}) as server:
        players = Players(Shelf(server), artefacts, SEED, threads, at_once)
        outcome = players.play(operations)
        assert Shelf(server).names() == []
        assert server.workers() == []
    print(json.dumps(outcome.answers, indent=1, sort_keys=True))
    for what, seconds in sorted(outcome.seconds.items()):
        ordered = sorted(seconds)
        middle, late = ordered[len(ordered) // 2], ordered[int(0.99 * len(ordered))]
        print(f"{what}: n {len(ordered)}, p50 {1000 * middle:.1f} ms, p99 {1000 * late:.1f} ms")
    return outcome


@pytest.mark.timeout(600)
def test_every_answer_is_the_right_models_whatever_comes_and_goes(tmp_path: Path) -> None:
    outcome = played(tmp_path, models=12, operations=300, threads=4, at_once=6)
    assert outcome.faults == []
    assert outcome.answers["load 200"] >= 12
    assert outcome.answers["call 200"] > 50


@pytest.mark.timeout(5_400)
@pytest.mark.skipif(not os.environ.get("TEST_ALL"), reason="takes long: TEST_ALL=1 runs it")
def test_ten_thousand_operations_over_two_hundred_models(tmp_path: Path) -> None:
    outcome = played(tmp_path, models=200, operations=10_000, threads=8, at_once=40)
    assert outcome.faults == []
    assert outcome.answers["load 200"] >= 300
