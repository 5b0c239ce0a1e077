"""Samples for rounding and for measuring: request bodies, one a line, as the records that a task makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batch_handler.engines import Tokens
from batch_handler.errors import ServiceError
from batch_handler.formats import BY_MEDIA_TYPE, ReadOptions
from batch_handler.tasks import Encoded, Task

MOST_TOKENS = 8_192
"""Tokens that scales are taken from: some 250 short texts. More change nothing and cost memory for every layer."""


class SampleError(Exception):
    """One sentence: why samples cannot be used."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One record with the line that it came from."""

    line: int
    encoded: Encoded


def encoded(task: Task, lines: Sequence[tuple[int, bytes]], content_type: str, path: Path) -> list[Sample]:
    """Every record of the lines, ready for a forward pass. Raises SampleError for one that the task does not take."""
    if content_type not in BY_MEDIA_TYPE:
        raise SampleError(f"{content_type} is no type of body that can be read: use one of {', '.join(BY_MEDIA_TYPE)}")
    read = BY_MEDIA_TYPE[content_type].read
    made: list[Sample] = []
    for line, body in lines:
        try:
            payload = read(body, ReadOptions())
            fault = payload.first_error()
            if fault:
                raise fault
            for one in task.encode([record for record in payload.records if not isinstance(record, ServiceError)]):
                if isinstance(one, ServiceError):
                    raise one
                made.append(Sample(line, one))
        except ServiceError as error:
            raise SampleError(f"{path}, line {line}: {error.message}") from None
    return made


def held_out(lines: Sequence[tuple[int, bytes]], used: Sequence[tuple[int, bytes]], path: Path) -> list[tuple[int, bytes]]:
    """The lines that rounding has not seen. Raises SampleError when none are left."""
    seen = {body.strip() for _, body in used}
    left = [(number, body) for number, body in lines if body.strip() not in seen]
    if not left:
        raise SampleError(f"every line of {path} was used to calibrate: verify with samples of their own")
    return left


def rows(samples: Sequence[Sample]) -> list[list[Tokens]]:
    """Each pass of each sample as a row of its own, as many as scales need, taken from all over the samples."""
    passes = [tokens_of(one.model_input) for sample in samples for one in sample.encoded.passes]
    every = max(1, sum(len(tokens.ids) for tokens in passes) // MOST_TOKENS)
    return [[tokens] for tokens in passes[::every]]


def tokens_of(model_input: Any) -> Tokens:
    """The tokens that a task sends through its engine, whatever else it keeps beside them."""
    if isinstance(model_input, Tokens):
        return model_input
    return tokens_of(model_input.tokens if hasattr(model_input, "tokens") else model_input.marked)
