"""What the fuzzer once found holds: its seeds and its corpus go through every target, each in its time."""

from __future__ import annotations

import time

import pytest

from fuzz.campaign import SLOWEST_S
from fuzz.targets import TARGETS, kept


@pytest.mark.parametrize("name", TARGETS)
def test_every_input_that_the_fuzzer_kept_is_answered_or_refused(name: str) -> None:
    for data in (*TARGETS[name].seeds, *kept(name)):
        begun = time.process_time()
        TARGETS[name].run(data)
        assert time.process_time() - begun < SLOWEST_S


def test_every_target_has_a_corpus() -> None:
    assert [name for name in TARGETS if not kept(name)] == []
