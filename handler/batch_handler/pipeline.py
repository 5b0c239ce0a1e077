"""A task's model behind HTTP, without HTTP's server: preprocess, inference and postprocess over lists of requests.

Requests come in batches and leave one by one, each when its own records are done.
An error is a value that travels in the place of its record or request; nothing is raised past `__call__`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

from batch_handler import device, formats, negotiation, resources, streaming
from batch_handler.application import Answers, Reply, answer_all, answered, check_size, failed, response_limit
from batch_handler.errors import ErrorType, ServiceError, invalid_record, invalid_request, quote
from batch_handler.formats.values import OUTPUT_KEY
from batch_handler.microbatch import LATE, Report, guarded
from batch_handler.request import Headers, Part, Payload, Record, Request, Response
from batch_handler.scheduler import Job, Scheduler
from batch_handler.settings import MIB, SettingError, Settings
from batch_handler.tasks import Encoded, Task

log = logging.getLogger(__name__)

SHARE_OF_TIMEOUT = 0.8
"""Of the response timeout, after which nothing more is begun: TorchServe then kills the worker, whoever's fault it was."""
LONG_BODY = 256 * 1024
"""Bytes, beyond which a body is decoded and tokenised in a thread of its own."""
ENCODED_AT_ONCE = 512
"""Records that are tokenised between two looks at the clock."""
READ_AT_ONCE = 8
"""Such bodies that are held undecoded; they wait in the frontend's queue otherwise."""

NEVER = -1.0
"""A deadline that is over."""

UNREAD = Payload((), (), many=False)


@dataclass(slots=True)
class Batch:
    """Requests that came together. ``began`` is time.monotonic() of their arrival, from which the response timeout counts."""

    reply: Reply
    size: int
    began: float
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

    def gather(self, outputs: Sequence[Any]) -> None:
        """The outputs of its passes as those of its records; a record that could not be used has its error as one."""
        if self.error is not None:
            return
        rest = iter(outputs)
        self.outputs = [
            record.gathered(list(islice(rest, len(record.passes)))) if isinstance(record, Encoded) else record
            for record in self.encoded
        ]


class Pipeline:
    """A loaded model with its task: requests in, responses out, each as soon as it is complete."""

    def __init__(self, task: Task, settings: Settings) -> None:
        self._settings = settings
        self._limit = settings.request_limit_mb * MIB
        self._time_s = SHARE_OF_TIMEOUT * settings.response_timeout_s
        self._response_limit = response_limit(settings)
        self._options = formats.ReadOptions(
            placeholders=settings.placeholders,
            csv_header=settings.csv_header,
            fields=settings.fields or {},
            limit=self._limit,
            numbers=formats.NUMBERS in task.holds,
            max_records=settings.max_records,
            streams=hasattr(task, "stream"),
        )
        self._default_accept = known_media_type(settings.default_accept)
        self.task = task
        self._lock = threading.Lock()
        self._readers = ThreadPoolExecutor(1, "reader")
        self._reading = threading.BoundedSemaphore(READ_AT_ONCE)
        self._held: dict[str, Job | threading.Event] = {}
        lanes = settings.threads or resources.available().whole_cpus
        self._streams = streaming.Streams(lanes)
        self._scheduler = Scheduler(
            run=device.watched(lambda passes: self.task.run(passes)),
            finished=self._complete,
            lanes=lanes,
            token_budget=settings.token_budget,
            padded=task.padded,
            use_threads=device.use_lane(device.device(settings)),
        )

    @property
    def description(self) -> str:
        """What the task says of itself."""
        return self.task.description

    def __call__(self, requests: Sequence[Request]) -> Answers:
        """Answer every request, in order."""
        return answer_all(self, requests)

    def serve(self, requests: Sequence[Request], reply: Reply) -> None:
        """Take a batch in; returns when the next may come. Long bodies are read beside the others, which they would delay."""
        batch = Batch(reply, len(requests), time.monotonic(), len(requests))
        indexed = list(enumerate(requests))
        self._begin([(index, request) for index, request in indexed if len(request.body) <= LONG_BODY], batch)
        for index, request in indexed:
            if len(request.body) > LONG_BODY:
                self._reading.acquire()
                self._readers.submit(self._begin_long, index, request, batch)
        self._scheduler.await_room()

    def _begin(self, requests: Sequence[tuple[int, Request]], batch: Batch) -> None:
        if requests:
            self.inference(self.preprocess([Work(request, batch, index) for index, request in requests]))

    def _begin_long(self, index: int, request: Request, batch: Batch) -> None:
        try:
            self._begin([(index, request)], batch)
        finally:
            self._reading.release()

    def preprocess(self, works: Sequence[Work]) -> Sequence[Work]:
        """Bytes to records to tokens. A fault costs its request, or only its record where placeholders are allowed."""
        for work in works:
            self._read(work)
        done = self._encoded([record for work in works for record in work.payload.records if isinstance(record, Record)], works)
        for work in works:
            work.encoded = [
                record if isinstance(record, ServiceError) else _placed(next(done), record.number)
                for record in work.payload.records
            ]
            self._reject(work)
        return works

    def _encoded(self, records: Sequence[Record], works: Sequence[Work]) -> Iterator[Encoded | ServiceError]:
        """Records to tokens, a part at a time: when the time of their batch is over, the rest is late."""
        over = min((work.batch.began for work in works), default=0.0) + self._time_s
        for start in range(0, len(records), ENCODED_AT_ONCE):
            part = records[start : start + ENCODED_AT_ONCE]
            if time.monotonic() > over:
                yield from [LATE] * len(part)
            else:
                yield from guarded(lambda indices: self.task.encode([part[i] for i in indices]), range(len(part)))  # noqa: B023

    def inference(self, works: Sequence[Work]) -> None:
        """Hand what is to be run to the lanes; a request without any such record is complete as it is."""
        jobs = [Job(work, work.passes, work.batch.began + self._time_s) for work in works if not self._is_streamed(work)]
        self._complete([job for job in jobs if not job.passes])
        waiting = [job for job in jobs if job.passes]
        self._held.update((job.owner.request.id, job) for job in waiting)
        self._scheduler.submit(waiting)

    def cancel(self, identifiers: Sequence[str]) -> None:
        """Drop what the lanes have not begun of these requests, and end their streams."""
        for identifier in identifiers:
            held = self._held.get(identifier)
            if isinstance(held, Job):
                held.deadline = NEVER
            elif held is not None:
                held.set()

    def _is_streamed(self, work: Work) -> bool:
        """Whether the answer goes out piece by piece, which then begins. A transform job gets its lines whole."""
        records = work.encoded if work.error is None else ()
        asked = any(isinstance(record, Encoded) and record.options.get("stream") for record in records)
        accept = work.request.headers.get("Accept")
        if not asked or self._settings.placeholders:
            if work.error is None and _events_only(accept):
                work.error = ServiceError(ErrorType.NOT_ACCEPTABLE, f'{streaming.EVENTS} needs "stream": true in the request')
            return False
        if len(records) != 1:
            work.error = invalid_request("'stream' answers one record: send each in a request of its own")
            return False
        left = self._held[work.request.id] = threading.Event()
        task: Any = self.task
        (record,) = records
        self._streams.begin(
            streaming.Stream(work.request, streaming.form(accept), task.stream(record), partial(self._emit, work), left)
        )
        return True

    def _emit(self, work: Work, response: Response) -> None:
        """A part of a stream to its caller."""
        report = None
        if response.part is not Part.MORE:
            self._held.pop(work.request.id, None)
            report = self._report([work])
        work.batch.reply([(work.index, response)], report)

    def postprocess(self, works: Sequence[Work]) -> list[Response]:
        """Outputs to results to bytes, each request in its own format."""
        return [self._write(work) for work in works]

    def _complete(self, jobs: Sequence[Job]) -> None:
        """Answer the requests whose passes have all ended, those of one batch together."""
        batches: dict[int, list[Work]] = {}
        for job in jobs:
            self._held.pop(job.owner.request.id, None)
            job.owner.gather(job.outputs)
            batches.setdefault(id(job.owner.batch), []).append(job.owner)
        for works in batches.values():
            responses = self.postprocess(works)
            answers = [(work.index, response) for work, response in zip(works, responses, strict=True)]
            works[0].batch.reply(answers, self._report(works))

    def _report(self, works: Sequence[Work]) -> Report | None:
        """With the last request of a batch, what was run since another batch ended."""
        batch = works[0].batch
        truncated = sum(isinstance(record, Encoded) and record.truncated for work in works for record in work.encoded)
        with self._lock:
            batch.left -= len(works)
            batch.truncated += truncated
            if batch.left:
                return None
        report = self._scheduler.report()
        report.overlaps = True
        report.truncated, report.requests, report.handler_s = batch.truncated, batch.size, time.monotonic() - batch.began
        return report

    def warm_up(self) -> None:
        """One batch through the whole path, so that the first caller waits for no lazy initialisation."""
        samples = [record.inputs for record in self.task.samples()]
        encoded = self.task.encode(self.task.samples())
        body = formats.json.dump({"inputs": samples})
        self([Request("warm-up", Headers([("content-type", "application/json")]), body)])
        for record in encoded:
            if isinstance(record, ServiceError):
                raise record
            self.task.decode(record.gathered(self.task.run(record.passes)), record)

    def _read(self, work: Work) -> None:
        request, headers = work.request, work.request.headers
        try:
            if time.monotonic() > work.batch.began + self._time_s:
                raise LATE
            own, charset = negotiation.request_choice(headers.get("Content-Type"), self.task.holds)
            accept = None if _events_only(headers.get("Accept")) else headers.get("Accept")
            work.choice = negotiation.response_choice(accept, self._default_accept, own, self.task.writes)
            body = negotiation.content(request.body, headers.get("Content-Encoding"), self._limit)
            if own.format.holds in formats.TEXTUAL:
                body = negotiation.utf8(body, charset)
            work.payload = self._keys_reserved(own.format.read(body, self._options))
        except ServiceError as error:
            work.error = error
        except RecursionError:
            work.error = invalid_request("the body is nested too deeply")
        except Exception:
            log.exception("request %s could not be read", request.id)
            work.error = ServiceError(ErrorType.MODEL_ERROR, "the request could not be read; the log has its id")

    def _keys_reserved(self, payload: Payload) -> Payload:
        """A caller's own key may not take the place of one of the result's: that is the error of its records."""
        records = list(payload.records)
        reserved = {*self.task.result_keys, "error", OUTPUT_KEY}
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
        elif errors and work.error is None and not self._settings.placeholders:
            work.error = errors[0]

    def _write(self, work: Work) -> Response:
        total = len(work.payload.records)
        try:
            if work.error is not None:
                raise work.error
            results = [self._result(*place) for place in zip(work.payload.records, work.encoded, work.outputs, strict=True)]
            errors = [result for result in results if isinstance(result, ServiceError)]
            if LATE in errors or (errors and not self._settings.placeholders):
                raise LATE if LATE in errors else errors[0]
            body = work.choice.format.write(work.payload, results, self.task.layout)
            check_size(body, self._response_limit)
            return answered(work.request, work.choice.media_type, body, total - len(errors), len(errors))
        except ServiceError as error:
            return failed(work.request, error, total)
        except Exception:
            log.exception("request %s could not be answered", work.request.id)
            return failed(
                work.request, ServiceError(ErrorType.MODEL_ERROR, "the answer could not be written; the log has its id"), total
            )

    def _result(self, origin: Record | ServiceError, record: Encoded | ServiceError, output: Any) -> Any:
        if isinstance(record, ServiceError):
            return record
        if output is LATE:
            return output
        if isinstance(output, ServiceError):
            return output.at(origin.number) if isinstance(origin, Record) else output
        (result,) = guarded(lambda _: [self.task.decode(output, record)], [0])
        return result.at(origin.number) if isinstance(result, ServiceError) and isinstance(origin, Record) else result


def known_media_type(name: str | None) -> str | None:
    """SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT, checked once at start. Raises SettingError for a type nobody writes."""
    if name is not None and name not in formats.WRITABLE:
        known = ", ".join(formats.WRITABLE)
        raise SettingError(f"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT={name!r} cannot be written: use one of {known}")
    return name


def _events_only(accept: str | None) -> bool:
    """Whether a stream of events is asked for, which only a streamed answer can be."""
    return bool(accept) and streaming.form(accept).media_type == streaming.EVENTS


def _placed(record: Encoded | ServiceError, number: int) -> Encoded | ServiceError:
    return record.at(number) if isinstance(record, ServiceError) and record is not LATE else record
