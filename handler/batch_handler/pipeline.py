"""A task's model behind HTTP, without HTTP's server: preprocess, inference and postprocess over lists of requests.

An error is a value that travels in the place of its record or request; nothing is raised past `__call__`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from batch_handler import formats, negotiation, resources
from batch_handler.application import Answers, answered, check_size, failed, response_limit
from batch_handler.errors import ErrorType, ServiceError, invalid_record, invalid_request, quote
from batch_handler.formats.values import OUTPUT_KEY
from batch_handler.microbatch import LATE, Lanes, Report, guarded, plan
from batch_handler.request import Headers, Payload, Record, Request, Response
from batch_handler.settings import MIB, SettingError, Settings
from batch_handler.tasks import Encoded, Task

log = logging.getLogger(__name__)

SHARE_OF_TIMEOUT = 0.8
"""Of the response timeout, after which nothing more is begun: TorchServe then kills the worker, whoever's fault it was."""
HEAVY_ROUNDS = 8
"""Full forward passes of every lane, beyond which a request is served after its neighbours."""

UNREAD = Payload((), (), many=False)


@dataclass(slots=True)
class Work:
    """One request on its way through the batch.

    ``first`` is the place of its first record in the batch's flat list. ``error`` stands for the whole request.
    """

    request: Request
    payload: Payload = UNREAD
    choice: negotiation.Choice = negotiation.DEFAULT
    first: int = 0
    error: ServiceError | None = None


@dataclass(slots=True)
class Batch:
    """What `preprocess` hands to `inference`, and that to `postprocess`: two lists with an entry per record.

    ``began`` is time.monotonic() of the batch's arrival, from which its response timeout counts.
    """

    works: list[Work]
    encoded: list[Encoded | ServiceError]
    results: list[Any]
    began: float
    report: Report = field(default_factory=Report)

    def light(self, work: Work, tokens: int) -> bool:
        """Whether a request has no more than so many tokens."""
        records = (self.encoded[index] for index in _places(work))
        return sum(one.length for record in records if isinstance(record, Encoded) for one in record.passes) <= tokens


class Pipeline:
    """A loaded model with its task: lists of requests in, lists of responses out."""

    def __init__(self, task: Task, settings: Settings) -> None:
        self._settings = settings
        self._limit = settings.request_limit_mb * MIB
        self._response_limit = response_limit(settings)
        self._options = formats.ReadOptions(
            placeholders=settings.placeholders,
            csv_header=settings.csv_header,
            fields=settings.fields or {},
            limit=self._limit,
            numbers=formats.NUMBERS in task.holds,
            max_records=settings.max_records,
        )
        self._default_accept = known_media_type(settings.default_accept)
        self.task = task
        self._lanes = Lanes(settings.threads or resources.available().whole_cpus)

    @property
    def description(self) -> str:
        """What the task says of itself."""
        return self.task.description

    def __call__(self, requests: Sequence[Request]) -> Answers:
        """Answer every request, in order."""
        batch = self.preprocess(requests)
        self.inference(batch)
        return Answers(self.postprocess(batch), batch.report)

    def preprocess(self, requests: Sequence[Request]) -> Batch:
        """Bytes to records to tokens. A fault costs its request, or only its record where placeholders are allowed."""
        began = time.monotonic()
        works = [self._read(request) for request in requests]
        records: list[Record | ServiceError] = []
        for work in works:
            work.first = len(records)
            records.extend(work.payload.records)
        readable = [record for record in records if isinstance(record, Record)]
        done = iter(guarded(lambda indices: self.task.encode([readable[i] for i in indices]), range(len(readable))))
        encoded: list[Encoded | ServiceError] = [
            record if isinstance(record, ServiceError) else _placed(next(done), record.number) for record in records
        ]
        batch = Batch(works, encoded, list(encoded), began)
        for work in works:
            self._reject(work, batch.encoded)
        batch.report.truncated = sum(isinstance(record, Encoded) and record.truncated for record in encoded)
        return batch

    def inference(self, batch: Batch) -> None:
        """Plan micro-batches over all records of all requests, run them, and scatter the outputs to their places.

        Requests of very many tokens come after all others: when time runs out, it is theirs.
        """
        much = HEAVY_ROUNDS * self._settings.token_budget * self._lanes.count
        light: list[Work] = []
        heavy: list[Work] = []
        for work in batch.works:
            if work.error is None:
                (light if batch.light(work, much) else heavy).append(work)
        for works in (light, heavy):
            self._infer(works, batch)

    def _infer(self, works: Sequence[Work], batch: Batch) -> None:
        places = (index for work in works for index in _places(work))
        wanted = [index for index in places if isinstance(batch.encoded[index], Encoded)]
        records = [record for index in wanted if isinstance(record := batch.encoded[index], Encoded)]
        outputs = iter(self._run([one for record in records for one in record.passes], batch))
        for index, record in zip(wanted, records, strict=True):
            batch.results[index] = record.gathered(list(islice(outputs, len(record.passes))))

    def _run(self, passes: Sequence[Encoded], batch: Batch) -> list[Any]:
        planned = plan(
            [one.length for one in passes],
            self._settings.token_budget,
            self._lanes.count,
            self.task.padded,
            [one.group for one in passes],
        )
        deadline = batch.began + SHARE_OF_TIMEOUT * self._settings.response_timeout_s
        return self._lanes.run(
            planned, lambda indices: self.task.run([passes[i] for i in indices]), len(passes), batch.report, deadline
        )

    def postprocess(self, batch: Batch) -> list[Response]:
        """Outputs to results to bytes, each request in its own format."""
        return [self._write(work, batch) for work in batch.works]

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

    def _read(self, request: Request) -> Work:
        work = Work(request)
        headers = request.headers
        try:
            own, charset = negotiation.request_choice(headers.get("Content-Type"), self.task.holds)
            work.choice = negotiation.response_choice(headers.get("Accept"), self._default_accept, own, self.task.writes)
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
        return work

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

    def _reject(self, work: Work, encoded: Sequence[Encoded | ServiceError]) -> None:
        """Outside transform jobs the first bad record fails its request."""
        errors = [record for index in _places(work) if isinstance(record := encoded[index], ServiceError)]
        if errors and work.error is None and not self._settings.placeholders:
            work.error = errors[0]

    def _write(self, work: Work, batch: Batch) -> Response:
        total = len(work.payload.records)
        try:
            if work.error is not None:
                raise work.error
            results = [
                self._result(batch, index, record) for index, record in zip(_places(work), work.payload.records, strict=True)
            ]
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

    def _result(self, batch: Batch, index: int, origin: Record | ServiceError) -> Any:
        output, record = batch.results[index], batch.encoded[index]
        if isinstance(record, ServiceError):
            return record
        if output is LATE:
            return output
        if isinstance(output, ServiceError):
            return output.at(origin.number) if isinstance(origin, Record) else output
        (result,) = guarded(lambda _: [self.task.decode(output, record)], [index])
        return result.at(origin.number) if isinstance(result, ServiceError) and isinstance(origin, Record) else result


def known_media_type(name: str | None) -> str | None:
    """SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT, checked once at start. Raises SettingError for a type nobody writes."""
    if name is not None and name not in formats.WRITABLE:
        known = ", ".join(formats.WRITABLE)
        raise SettingError(f"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT={name!r} cannot be written: use one of {known}")
    return name


def _places(work: Work) -> range:
    """The request's records in the batch's flat list."""
    return range(work.first, work.first + len(work.payload.records))


def _placed(record: Encoded | ServiceError, number: int) -> Encoded | ServiceError:
    return record.at(number) if isinstance(record, ServiceError) else record
