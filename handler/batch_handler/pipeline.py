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
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from batch_handler import device, formats, resources, streaming
from batch_handler.application import Answers, Reply, answer_all, answered, check_size, failed, response_limit
from batch_handler.errors import ErrorType, ServiceError, invalid_request
from batch_handler.internal import ALONE
from batch_handler.jobs import Job
from batch_handler.journal import UNKEPT, Noting
from batch_handler.microbatch import LATE, Report, guarded
from batch_handler.reading import Batch, Reader, Work, events_only
from batch_handler.request import Headers, Part, Record, Request, Response
from batch_handler.scheduler import Scheduler
from batch_handler.settings import Settings
from batch_handler.stages import ENCODE, FORWARD, timed
from batch_handler.tasks import Encoded, Task
from batch_handler.worker_log import about

log = logging.getLogger(__name__)

SHARE_OF_TIMEOUT = 0.8
"""Of the response timeout, after which nothing more is begun: TorchServe then kills the worker, whoever's fault it was."""
LONG_BODY = 256 * 1024
"""Bytes, beyond which a body is decoded and tokenised in a thread of its own."""
READERS_OF_PICTURES = 2
"""Such threads where a request may take seconds, however short it is, so that the next one need not wait for that."""
READ_AT_ONCE = 8
"""Such bodies that are held undecoded; they wait in the frontend's queue otherwise."""

NEVER = -1.0
"""A deadline that is over."""


class Pipeline:
    """A loaded model with its task: requests in, responses out, each as soon as it is complete."""

    def __init__(self, task: Task, settings: Settings) -> None:
        self._settings = settings
        self._response_limit = response_limit(settings)
        self._reader = Reader(task, settings)
        self.task = task
        self.journal: Noting = UNKEPT
        self._lock = threading.Lock()
        self._readers = ThreadPoolExecutor(READERS_OF_PICTURES if self._reader.slow else 1, "reader")
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
            called=lambda work: work.request.callers_id,
            noted=self._noted,
            team_tokens=task.team_tokens,
            stepwise=task.stepwise,
        )

    @property
    def repeatable(self) -> bool:
        """A task's answer follows from its request and changes nothing."""
        return True

    @property
    def description(self) -> str:
        """What the task says of itself."""
        return self.task.description

    def __call__(self, requests: Sequence[Request]) -> Answers:
        """Answer every request, in order."""
        return answer_all(self, requests)

    def serve(self, requests: Sequence[Request], reply: Reply) -> None:
        """Take a batch in; returns when the next may come. Long bodies are read beside the others, which they would delay."""
        now = time.monotonic()
        until = now + SHARE_OF_TIMEOUT * self._settings.response_timeout_s
        batch = Batch(reply, len(requests), now, until, len(requests))
        indexed = list(enumerate(requests))
        apart = {index for index, request in indexed if self._takes_long(request)}
        self._begin([(index, request) for index, request in indexed if index not in apart], batch)
        for index, request in indexed:
            if index in apart:
                self._reading.acquire()
                self._readers.submit(self._begin_long, index, request, batch)
        self._scheduler.await_room()

    def _takes_long(self, request: Request) -> bool:
        return len(request.body) > LONG_BODY or self._reader.slow or request.headers.get(ALONE) is not None

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
        with self.journal.running([(work.request.id, 0) for work in works]):
            return self._reader.read(works)

    def inference(self, works: Sequence[Work]) -> None:
        """Hand what is to be run to the lanes; a request without any such record is complete as it is."""
        whole = [work for work in works if not self._stream(work)]
        jobs = [Job(work, work.passes, work.batch.until, work.request.stages, alone=work.alone) for work in whole]
        self._complete([job for job in jobs if not job.passes])
        waiting = [job for job in jobs if job.passes]
        self._held.update((job.owner.request.id, job) for job in waiting)
        self._scheduler.submit(waiting)

    def _noted(self, places: Sequence[tuple[Job, int]]) -> AbstractContextManager[None]:
        """Passes as the requests and records that they are of."""
        return self.journal.running((job.owner.request.id, job.owner.number(index) if job.alone else 0) for job, index in places)

    def _pieces(self, work: Work, pieces: Iterator[str]) -> Iterator[str]:
        """The pieces of a stream, noted while they are made."""
        with self.journal.running([(work.request.id, 0)]):
            yield from pieces

    def cancel(self, identifiers: Sequence[str]) -> None:
        """Drop what the lanes have not begun of these requests, and end their streams."""
        for identifier in identifiers:
            held = self._held.get(identifier)
            if isinstance(held, Job):
                held.deadline = NEVER
            elif held is not None:
                held.set()

    def _stream(self, work: Work) -> bool:
        """Begin an answer that goes out piece by piece; False where it goes out whole, as a transform job's always do."""
        records = work.encoded if work.error is None else ()
        asked = any(isinstance(record, Encoded) and record.options.get("stream") for record in records)
        accept = work.request.headers.get("Accept")
        if not asked or self._settings.placeholders:
            if work.error is None and events_only(accept):
                work.error = ServiceError(ErrorType.NOT_ACCEPTABLE, f'{streaming.EVENTS} needs "stream": true in the request')
            return False
        if len(records) != 1:
            work.error = invalid_request("'stream' answers one record: send each in a request of its own")
            return False
        left = self._held[work.request.id] = threading.Event()
        _note_stream(work)
        task: Any = self.task
        (record,) = records
        self._streams.begin(
            streaming.Stream(
                work.request, streaming.form(accept), self._pieces(work, task.stream(record)), partial(self._emit, work), left
            )
        )
        return True

    def _emit(self, work: Work, response: Response) -> None:
        """A part of a stream to its caller."""
        report = None
        if response.part is not Part.MORE:
            self._held.pop(work.request.id, None)
            report = self._report([work])
            _note_stream(work)
        work.batch.reply([(work.index, response)], report)

    def postprocess(self, works: Sequence[Work]) -> list[Response]:
        """Outputs to results to bytes, each request in its own format."""
        responses = []
        for work in works:
            with timed((work.request.stages,), ENCODE):
                responses.append(self._write(work))
        return responses

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
            with about((work.request.callers_id,)):
                log.exception("request %s could not be answered", work.request.callers_id)
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


def _note_stream(work: Work) -> None:
    """A stream's forward passes are one stage, from its beginning to its last piece."""
    if work.request.stages is not None:
        now = time.monotonic()
        work.request.stages.note(FORWARD, now, now)
