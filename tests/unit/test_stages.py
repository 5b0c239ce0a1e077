"""The times of a request's stages: nothing where nobody asks, and as true as the clock where somebody does."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from batch_handler.application import load
from batch_handler.request import Headers, Request
from batch_handler.settings import Settings
from batch_handler.stages import DECODE, FORWARD, Stages, note_pass, timed

Make = Callable[..., Settings]


def spans(stages: Stages) -> dict[str, list[int]]:
    parts = dict(part.split("=") for part in stages.header().split(";") if part)
    return {name: [int(end) for end in value.split("-")] for name, value in parts.items() if "-" in value}


def test_a_stage_reaches_from_its_first_beginning_to_its_last_end() -> None:
    stages = Stages()
    stages.note(DECODE, 2.0, 3.0)
    stages.note(DECODE, 1.0, 1.5)
    assert stages.header() == "decode=1000000-3000000"


def test_a_pass_tells_who_shared_it_and_how_long_it_was_waited_for() -> None:
    one, other = Stages(), Stages()
    one.submitted(7)
    began = time.monotonic() + 0.5
    note_pass([one, one, other], 3, began, began + 0.25, 2)
    told = dict(part.split("=") for part in one.header().split(";"))
    assert 490_000 < int(told["wait"]) < 510_000
    assert (told["run"], told["tokens"], told["passes"], told["pass_requests"], told["pass_records"]) == (
        "250000",
        "7",
        "1",
        "2",
        "3",
    )
    assert told["pass_ids"].endswith(".3")
    assert told["pass_ids"] in other.header()


def test_a_stage_that_fails_is_timed_too() -> None:
    stages = Stages()
    try:
        with timed((stages, None), FORWARD):
            raise ValueError
    except ValueError:
        assert set(spans(stages)) == {FORWARD}


def test_where_nobody_asks_nothing_is_made() -> None:
    assert timed((None, None), DECODE) is not timed((Stages(),), DECODE)
    assert Request("id", Headers(), b"").stages is None


def test_the_pipelines_stages_come_one_after_the_other(artefact: Callable[..., Path], settings: Make) -> None:
    pipeline = load(artefact("trained"), settings())
    requests = [Request(str(n), Headers([("content-type", "application/json")]), b'"kami"', Stages()) for n in range(3)]
    began = time.monotonic() * 1e6
    pipeline(requests)
    ended = time.monotonic() * 1e6
    for request in requests:
        assert request.stages is not None
        times = spans(request.stages)
        assert list(times) == ["decode", "tokenise", "forward", "encode"]
        ends = [end for stage in times.values() for end in stage]
        assert began - 1 <= ends[0]
        assert ends == sorted(ends)
        assert ends[-1] <= ended + 1
        assert "passes=1" in request.stages.header()
