"""What a request is once it is read: headers, a flat list of records, and the shape that the answer must have again.

Owns the data; reading and writing bytes belongs to `formats`, choosing a format to `negotiation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

from batch_handler.errors import ServiceError
from batch_handler.stages import Stages

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Headers:
    """HTTP headers whose names compare without case (RFC 9110, section 5.1)."""

    __slots__ = ("_values",)

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._values = {name.lower(): value for name, value in pairs}

    def get(self, name: str) -> str | None:
        """The value of a header, or None when it was not sent."""
        return self._values.get(name.lower())

    def as_mapping(self) -> Mapping[str, str]:
        """All of them, their names in lower case."""
        return self._values


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP call: its id, its headers and its body as it came over the wire. ``stages`` where its time is taken."""

    id: str
    headers: Headers
    body: bytes | bytearray
    stages: Stages | None = None

    @property
    def callers_id(self) -> str:
        """The id that the caller knows, and the log: the frontend gives each call another one for the way to the worker."""
        return self.headers.get("x-request-id") or self.id


@dataclass(frozen=True, slots=True)
class Record:
    """One input to the model. ``number`` counts from 1 and is the physical line in line formats."""

    inputs: Any
    number: int
    parameters: Mapping[str, Any] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True)
class Node:
    """One value of the body, and so of the answer: a leaf stands for one record, a branch for a list.

    ``slot`` is the record's place in ``Payload.records``; ``extras`` are the caller's own keys, which go back with the answer.
    """

    slot: int | None = None
    children: tuple[Node, ...] = ()
    extras: Mapping[str, Any] = field(default_factory=lambda: NOTHING)

    def walk(self) -> Iterator[Node]:
        """This node and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def leaves(self) -> Iterable[int]:
        """The slots of all records below this node, in order."""
        if self.slot is not None:
            yield self.slot
        for child in self.children:
            yield from child.leaves()


@dataclass(frozen=True, slots=True)
class Payload:
    """A request's records in order, errors standing in the place of those that could not be read.

    ``nodes`` are the top-level values. ``many`` says that the body was a list (or lines), so that the answer is one too.
    """

    records: Sequence[Record | ServiceError]
    nodes: Sequence[Node]
    many: bool

    def first_error(self) -> ServiceError | None:
        """The first record that could not be read."""
        return next((record for record in self.records if isinstance(record, ServiceError)), None)


class Part(Enum):
    """What of an answer a response holds, where it does not come whole."""

    MORE = "more"
    LAST = "last"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Response:
    """One HTTP answer, or a part of one. ``records`` were answered in it, ``bad_records`` got an error, for the metrics.

    ``error`` is the type of the error that it is, for the log.
    """

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    records: int = 1
    bad_records: int = 0
    part: Part | None = None
    error: str | None = None
