"""The requests of one object, numbered and placed: what each carries, which lines it stands for, where it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import BinaryIO

from transform import media
from transform.description import Job
from transform.faults import FileError
from transform.joining import Processing
from transform.objects import InputObject, opened
from transform.splitting import cuts, lines_in

STREAM_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may hold: at most ``largest`` bytes, 0 for a stream, and ``payload`` where records allow it.

    ``concurrency`` is per container; ``said`` is what the user should read first.
    """

    strategy: str
    largest: int
    payload: int
    concurrency: int
    said: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """How far into an object: bytes (inflated ones), records and requests."""

    offset: int = 0
    records: int = 0
    payloads: int = 0


@dataclass(frozen=True, slots=True)
class Payload:
    """One request. ``body`` is what is sent, or what opens a stream to send; ``original`` is the input that it came from.

    ``start`` and ``end`` are places in the object. ``refused`` says why records of it are not sent, by their number from 0.
    """

    body: bytes | Callable[[], BinaryIO]
    original: bytes
    start: Place
    end: Place
    refused: dict[int, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of input held in memory."""
        return len(self.original)


def payloads(found: InputObject, job: Job, limits: Limits, processing: Processing, start: Place) -> Iterator[Payload]:
    """The requests of an object from a place on. A limit of 0 is one request that streams the whole object.

    Raises FileError, naming the record, where the object cannot be read or cut.
    """
    if not limits.largest:
        if not start.payloads and found.size:
            yield Payload(lambda: opened(found, job.compression, 0), b"", start, Place(found.size, 1, 1))
        return
    place = start
    line_by_line = media.kind(job.content_type) in media.LINES
    try:
        with closing(opened(found, job.compression, start.offset)) as stream:
            for cut in cuts(stream, job.split, limits.strategy, limits.largest, limits.payload):
                records = lines_in(cut.body) if line_by_line and job.split == "None" else cut.records
                end = Place(place.offset + cut.taken, place.records + records, place.payloads + 1)
                body, refused = processing.sent(cut.body)
                yield Payload(body, cut.body, place, end, refused)
                place = end
    except FileError as failure:
        raise FileError(f"after record {place.records:,}: {failure}" if place.records else str(failure)) from None
    except (EOFError, OSError) as error:
        raise FileError(f"after record {place.records:,} it cannot be read: {' '.join(str(error).split())}") from None
