"""When the stages of one request began and ended, for its line in the log and its trace. Taken only where somebody asks.

Times are those of CLOCK_MONOTONIC, which the frontend, a JVM on the same machine, reads as well.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

DECODE, TOKENISE, FORWARD, ENCODE = "decode", "tokenise", "forward", "encode"
PASSES_TOLD = 16


class Stages:
    """One request's. A stage that is noted several times reaches from its first beginning to its last end.

    Written by one thread at a time, except for the passes, which the scheduler notes under its lock.
    """

    __slots__ = ("_passes", "_ran", "_records", "_requests", "_spans", "_tokens", "_wait")

    def __init__(self) -> None:
        self._spans: dict[str, tuple[float, float]] = {}
        self._passes: list[int] = []
        self._wait = 0.0
        self._ran = 0.0
        self._requests = 0
        self._records = 0
        self._tokens = 0

    def note(self, stage: str, began: float, ended: float) -> None:
        """A stage ran from `began` to `ended`, in seconds of time.monotonic()."""
        known = self._spans.get(stage)
        self._spans[stage] = (min(known[0], began), max(known[1], ended)) if known else (began, ended)

    def submitted(self, tokens: int) -> None:
        """All that the request needs run, so many tokens of it, waits for a lane from now on."""
        now = time.monotonic()
        self._tokens = tokens
        self.note(FORWARD, now, now)

    def ran(self, number: int, began: float, ended: float, requests: int, records: int) -> None:
        """A forward pass held records of the request: of how many requests, and how many records, were in it together."""
        if not self._passes and FORWARD in self._spans:
            self._wait = max(0.0, began - self._spans[FORWARD][0])
        self._passes.append(number)
        self._ran += ended - began
        self._requests = max(self._requests, requests)
        self._records = max(self._records, records)
        self.note(FORWARD, began, ended)

    def header(self) -> str:
        """For the frontend: stages as ``name=begin-end`` in µs, then what is known of the passes (wait and run in µs)."""
        parts = [f"{name}={began * 1e6:.0f}-{ended * 1e6:.0f}" for name, (began, ended) in self._spans.items()]
        if self._passes:
            numbers = ",".join(f"{os.getpid()}.{number}" for number in self._passes[:PASSES_TOLD])
            parts.append(
                f"wait={self._wait * 1e6:.0f};run={self._ran * 1e6:.0f};tokens={self._tokens};passes={len(self._passes)}"
            )
            parts.append(f"pass_requests={self._requests};pass_records={self._records};pass_ids={numbers}")
        return ";".join(parts)


def timed(
    all_stages: Sequence[Stages | None], stage: str | None, passes: Iterator[int] | None = None
) -> AbstractContextManager[None]:
    """Note what is done within it as a stage of these requests; does nothing where nobody takes their time.

    With `passes`, the numbers of forward passes, it is one that all of the requests share.
    """
    wanted = [stages for stages in all_stages if stages is not None] if stage is not None else []
    return _noting(wanted, stage, passes) if wanted and stage is not None else nullcontext()


@contextmanager
def _noting(all_stages: Sequence[Stages], stage: str, passes: Iterator[int] | None) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        ended = time.monotonic()
        if passes is not None and stage == FORWARD:
            note_pass(all_stages, next(passes), began, ended, len(all_stages))
        else:
            for stages in all_stages:
                stages.note(stage, began, ended)


def note_pass(places: Sequence[Stages | None], number: int, began: float, ended: float, requests: int) -> None:
    """Tell the requests of a forward pass, one place for each of its records, that they shared it."""
    for stages in {id(one): one for one in places if one is not None}.values():
        stages.ran(number, began, ended, requests, len(places))
