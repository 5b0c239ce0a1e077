"""Requests as the pipeline works on them, and their way in: bytes to records to tokens.

An error is a value in the place of its record or of its request. What is run of them, and when, is `pipeline`'s.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from batch_handler import formats, negotiation, streaming
from batch_handler.application import Reply
from batch_handler.errors import ErrorType, ServiceError, invalid_record, invalid_request, quote
from batch_handler.formats.values import OUTPUT_KEY
from batch_handler.internal import ALONE, REFUSED
from batch_handler.microbatch import LATE, guarded
from batch_handler.request import Payload, Record, Request
from batch_handler.settings import MEGAPIXEL, MIB, SettingError, Settings
from batch_handler.stages import DECODE, TOKENISE, timed
from batch_handler.tasks import Encoded, Task
from batch_handler.worker_log import about

log = logging.getLogger(__name__)

ENCODED_AT_ONCE = 512
"""Most records that are tokenised between two looks at the clock."""
ENCODED_FIRST = 16
"""So many at the beginning, while nobody knows what one takes. Of pictures, one: it may need seconds."""
LOOK_S = 0.5
"""How far apart the looks may be before fewer are taken."""

POISONOUS = "the model's process ends whenever this record is run, so it is not run any more: leave it out"
UNREAD = Payload((), (), many=False)


@dataclass(slots=True)
class Batch:
    """Requests that came together. ``began`` is time.monotonic() of their arrival, and ``until`` of the moment after
    which nothing more of them is begun."""

    reply: Reply
    size: int
    began: float
    until: float
    left: int
    truncated: int = 0


@dataclass(slots=True)
class Work:
    """One request on its way: its place in its batch, what was read, and per record what is to be run and what came of it.

    ``error`` stands for the whole request.
    """

    request: Request
    batch: Batch
    index: int
    payload: Payload = UNREAD
    choice: negotiation.Choice = negotiation.DEFAULT
    encoded: Sequence[Encoded | ServiceError] = ()
    outputs: list[Any] = field(default_factory=list)
    error: ServiceError | None = None

    @property
    def passes(self) -> list[Encoded]:
        """All that the request needs run."""
        usable = [record for record in self.encoded if isinstance(record, Encoded)] if self.error is None else []
        return [one for record in usable for one in record.passes]

    @property
    def alone(self) -> bool:
        """Whether it may have ended a worker: it is read by itself, and run record by record."""
        return self.request.headers.get(ALONE) is not None

    def number(self, index: int) -> int:
        """The number of the record that one of its passes belongs to."""
        for origin, record in zip(self.payload.records, self.encoded, strict=True):
            index -= len(record.passes) if isinstance(record, Encoded) else 0
            if index < 0:
                return origin.number if isinstance(origin, Record) else 0
        return 0

    def gather(self, outputs: Sequence[Any]) -> None:
        """The outputs of its passes as those of its records; a record that could not be used has its error as one."""
        if self.error is not None:
            return
        rest = iter(outputs)
        self.outputs = [
            record.gathered(list(islice(rest, len(record.passes)))) if isinstance(record, Encoded) else record
            for record in self.encoded
        ]


class Reader:
    """Reads requests for a task. Safe to call from several threads."""

    def __init__(self, task: Task, settings: Settings) -> None:
        """Raises SettingError for a default answer type that nobody writes."""
        self._task = task
        self._placeholders = settings.placeholders
        self._limit = settings.request_limit_mb * MIB
        self._default_accept = known_media_type(settings.default_accept)
        self._options = formats.ReadOptions(
            placeholders=settings.placeholders,
            csv_header=settings.csv_header,
            fields=settings.fields or {},
            limit=self._limit,
            numbers=formats.NUMBERS in task.holds,
            max_records=settings.max_records,
            streams=hasattr(task, "stream"),
        )
        self._pixels: Callable[[Record], int] | None = getattr(task, "pixels", None)
        self._most_pixels = settings.pixel_limit

    @property
    def slow(self) -> bool:
        """Whether even a short request may take long to read: pictures are decoded then."""
        return self._pixels is not None

    def read(self, works: Sequence[Work]) -> Sequence[Work]:
        """Read and tokenise all of them, the records of all requests together."""
        for work in works:
            with timed((work.request.stages,), DECODE):
                self._decode(work)
        done = self._encoded([record for work in works for record in work.payload.records if isinstance(record, Record)], works)
        with timed([work.request.stages for work in works], TOKENISE):
            for work in works:
                work.encoded = [
                    record if isinstance(record, ServiceError) else _placed(next(done), record.number)
                    for record in work.payload.records
                ]
                self._reject(work)
        return works

    def _decode(self, work: Work) -> None:
        request, headers = work.request, work.request.headers
        try:
            if time.monotonic() > work.batch.until:
                raise LATE
            own, charset = negotiation.request_choice(headers.get("Content-Type"), self._task.holds)
            accept = None if events_only(headers.get("Accept")) else headers.get("Accept")
            work.choice = negotiation.response_choice(accept, self._default_accept, own, self._task.writes)
            body = negotiation.content(request.body, headers.get("Content-Encoding"), self._limit)
            if own.format.holds in formats.TEXTUAL:
                body = negotiation.utf8(body, charset)
            payload = own.format.read(body, self._options)
            self._check_pixels(payload.records, work.batch.until)
            work.payload = without_refused(self._keys_reserved(payload), request)
        except ServiceError as error:
            work.error = error
        except RecursionError:
            work.error = invalid_request("the body is nested too deeply")
        except Exception:
            with about((request.callers_id,)):
                log.exception("request %s could not be read", request.callers_id)
            work.error = ServiceError(ErrorType.MODEL_ERROR, "the request could not be read; the log has its id")

    def _check_pixels(self, records: Sequence[Record | ServiceError], until: float) -> None:
        """Raises ServiceError (413) before anything is decoded where the pictures are too much together."""
        if self._pixels is None or self._most_pixels == math.inf:
            return
        total = 0
        for record in records:
            if time.monotonic() > until:
                raise LATE
            if isinstance(record, Record):
                total += self._pixels(record)
                if total > self._most_pixels:
                    raise _too_many_pixels(int(self._most_pixels), record.number)

    def _keys_reserved(self, payload: Payload) -> Payload:
        """A caller's own key may not take the place of one of the result's: that is the error of its records."""
        records = list(payload.records)
        reserved = {*self._task.result_keys, "error", OUTPUT_KEY}
        for node in (inner for outer in payload.nodes for inner in outer.walk() if inner.extras):
            taken = node.extras.keys() & reserved
            for slot in node.leaves() if taken else ():
                record = records[slot]
                message = f"the key {quote(min(taken))} beside 'inputs' is also a key of the result: rename it"
                records[slot] = invalid_record(message, record.number) if isinstance(record, Record) else record
        return replace(payload, records=records)

    def _reject(self, work: Work) -> None:
        """Outside transform jobs the first bad record fails its request."""
        errors = [record for record in work.encoded if isinstance(record, ServiceError)]
        if LATE in errors:
            work.error = LATE
        elif errors and work.error is None and not self._placeholders:
            work.error = errors[0]

    def _encoded(self, records: Sequence[Record], works: Sequence[Work]) -> Iterator[Encoded | ServiceError]:
        """Records to tokens, a part at a time: when the time of their batch is over, the rest is late."""
        over = min((work.batch.until for work in works), default=0.0)
        most = 1 if self.slow else ENCODED_AT_ONCE
        start, count = 0, min(ENCODED_FIRST, most)
        while start < len(records):
            part = records[start : start + count]
            began = time.monotonic()
            if began > over:
                yield from [LATE] * (len(records) - start)
                return
            yield from guarded(lambda indices: self._task.encode([part[i] for i in indices]), range(len(part)))  # noqa: B023
            start += len(part)
            count = min(most, count * 4) if time.monotonic() - began < LOOK_S else max(1, count // 4)


def _too_many_pixels(most: int, number: int) -> ServiceError:
    message = (
        f"the pictures up to this one have more than {most // MEGAPIXEL} megapixels together: send fewer or smaller ones at "
        "once, or raise BYOC_MAX_MEGAPIXELS"
    )
    return ServiceError(ErrorType.PAYLOAD_TOO_LARGE, message, number)


def without_refused(payload: Payload, request: Request) -> Payload:
    """The payload with errors in the places of records that ended workers."""
    listed = request.headers.get(REFUSED)
    if listed is None:
        return payload
    numbers = {int(number) for number in listed.split(",")}
    records = [
        ServiceError(ErrorType.POISON_INPUT, POISONOUS, record.number)
        if isinstance(record, Record) and record.number in numbers
        else record
        for record in payload.records
    ]
    return replace(payload, records=records)


def known_media_type(name: str | None) -> str | None:
    """SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT, checked once at start. Raises SettingError for a type nobody writes."""
    if name is not None and name not in formats.WRITABLE:
        known = ", ".join(formats.WRITABLE)
        raise SettingError(f"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT={name!r} cannot be written: use one of {known}")
    return name


def events_only(accept: str | None) -> bool:
    """Whether a stream of events is asked for, which only a streamed answer can be."""
    return bool(accept) and streaming.form(accept).media_type == streaming.EVENTS


def _placed(record: Encoded | ServiceError, number: int) -> Encoded | ServiceError:
    return record.at(number) if isinstance(record, ServiceError) and record is not LATE else record
