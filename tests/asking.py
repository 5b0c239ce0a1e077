"""Records through a task without the server around it: encoded, run in one forward pass, decoded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from batch_handler.errors import ServiceError
from batch_handler.request import Record
from batch_handler.tasks import Encoded, Task


def answers(task: Task, inputs: Sequence[Any], parameters: dict[str, Any] | None = None) -> list[Any]:
    """One result or error per input, all of them neighbours in one micro-batch. Groups are kept apart."""
    return asked(task, [Record(item, number, parameters or {}) for number, item in enumerate(inputs, 1)])


def asked(task: Task, records: Sequence[Record]) -> list[Any]:
    """The same for records with parameters of their own."""
    encoded = task.encode(records)
    passes = [one for record in encoded if isinstance(record, Encoded) for one in record.passes]
    found: list[Any] = [None] * len(passes)
    for group in {one.group for one in passes}:
        members = [place for place, one in enumerate(passes) if one.group == group]
        for place, output in zip(members, task.run([passes[place] for place in members]), strict=True):
            found[place] = output
    outputs = iter(found)
    return [
        record
        if isinstance(record, ServiceError)
        else task.decode(record.gathered(list(islice(outputs, len(record.passes)))), record)
        for record in encoded
    ]
