"""TorchServe's door: `handle(data, context)`. Preprocess, inference and postprocess over lists of requests.

An error is a value that travels in the place of its record or request; nothing is raised past `handle`.
This is the only module that knows TorchServe; every other one would serve behind another frontend as well.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from batch_handler import formats, negotiation, resources
from batch_handler.artefact import ArtefactError, default_task
from batch_handler.errors import ErrorType, ServiceError, invalid_record, invalid_request, quote
from batch_handler.formats.values import OUTPUT_KEY
from batch_handler.microbatch import Lanes, Report, guarded, plan
from batch_handler.request import Headers, Payload, Record, Request, Response
from batch_handler.settings import MIB, SettingError, Settings, resolve, response_limit_mb
from batch_handler.tasks import Encoded, Task, load

log = logging.getLogger(__name__)

FAILURE_FILE = "_BYOC_FAILURE_FILE"
ECHOED = ("X-Amzn-SageMaker-Custom-Attributes", "X-Amzn-SageMaker-Inference-Id")
HEADER_LIMIT = 1_024
UNSAFE_IN_HEADERS = re.compile(r"[^\x20-\x7e]")
PHRASES = {
    200: "OK",
    400: "Bad Request",
    406: "Not Acceptable",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


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
    bad_records: int = 0


@dataclass(slots=True)
class Batch:
    """What `preprocess` hands to `inference`, and that to `postprocess`: three lists of equal length per record."""

    works: list[Work]
    encoded: list[Encoded | ServiceError]
    results: list[Any]
    report: Report


class Service:
    """A loaded model with its task: lists of requests in, lists of responses out."""

    def __init__(self, directory: Path, settings: Settings) -> None:
        self._settings = settings
        self._limit = settings.request_limit_mb * MIB
        self._response_limit = response_limit_mb(settings, resources.available().memory_bytes) * MIB
        self._options = formats.ReadOptions(settings.placeholders, settings.csv_header, settings.fields or {}, self._limit)
        self._default_accept = known_media_type(settings.default_accept)
        self.task: Task = load(settings.task or default_task(directory), directory, settings)
        self._lanes = Lanes(settings.threads or resources.available().whole_cpus)

    def __call__(self, requests: Sequence[Request]) -> tuple[list[Response], Batch]:
        """Answer every request, in order."""
        batch = self.preprocess(requests)
        self.inference(batch)
        return self.postprocess(batch), batch

    def preprocess(self, requests: Sequence[Request]) -> Batch:
        """Bytes to records to tokens. A fault costs its request, or only its record where placeholders are allowed."""
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
        batch = Batch(works, encoded, list(encoded), Report())
        for work in works:
            self._reject(work, batch.encoded)
        batch.report.truncated = sum(isinstance(record, Encoded) and record.truncated for record in encoded)
        return batch

    def inference(self, batch: Batch) -> None:
        """Plan micro-batches over all records of all requests, run them, and scatter the outputs to their places."""
        wanted = [
            index
            for work in batch.works
            for index in _places(work)
            if work.error is None and isinstance(batch.encoded[index], Encoded)
        ]
        records = [record for index in wanted if isinstance(record := batch.encoded[index], Encoded)]
        if not records:
            return
        planned = plan(
            [record.length for record in records],
            self._settings.token_budget,
            self._lanes.count,
            self.task.padded,
            [record.group for record in records],
        )
        outputs = self._lanes.run(
            planned, lambda indices: self.task.run([records[i] for i in indices]), len(records), batch.report
        )
        for index, output in zip(wanted, outputs, strict=True):
            batch.results[index] = output

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
            self.task.decode(self.task.run([record])[0], record)

    def _read(self, request: Request) -> Work:
        work = Work(request)
        headers = request.headers
        try:
            own, charset = negotiation.request_choice(headers.get("Content-Type"), self.task.holds)
            work.choice = negotiation.response_choice(headers.get("Accept"), self._default_accept, own, self.task.writes)
            body = negotiation.content(request.body, headers.get("Content-Encoding"), self._limit)
            if own.format.holds != "tensor":
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
        echoed = _echoed(work.request.headers)
        try:
            if work.error is not None:
                raise work.error
            results = [
                self._result(batch, index, record) for index, record in zip(_places(work), work.payload.records, strict=True)
            ]
            errors = [result for result in results if isinstance(result, ServiceError)]
            if errors and not self._settings.placeholders:
                raise errors[0]
            work.bad_records = len(errors)
            body = work.choice.format.write(work.payload, results, self.task.layout)
            if len(body) > self._response_limit:
                raise ServiceError(
                    ErrorType.RESPONSE_TOO_LARGE,
                    f"the answer has {len(body) / MIB:.0f} MB, more than the limit of {self._response_limit // MIB} MB: "
                    "send fewer records at once or raise BYOC_MAX_RESPONSE_MB",
                )
            return Response(200, work.choice.media_type, body, echoed)
        except ServiceError as error:
            work.error = error
        except Exception:
            log.exception("request %s could not be answered", work.request.id)
            work.error = ServiceError(ErrorType.MODEL_ERROR, "the answer could not be written; the log has its id")
        return Response(work.error.status, negotiation.JSON, work.error.body(), {**echoed, **work.error.headers})

    def _result(self, batch: Batch, index: int, origin: Record | ServiceError) -> Any:
        output, record = batch.results[index], batch.encoded[index]
        if isinstance(record, ServiceError):
            return record
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


def _echoed(headers: Headers) -> dict[str, str]:
    """Custom attributes and inference id go back as they came, where they are safe to send."""
    values = {name: headers.get(name) for name in ECHOED}
    return {name: UNSAFE_IN_HEADERS.sub("?", value)[:HEADER_LIMIT] for name, value in values.items() if value}


_service: Service | None = None


def handle(data: Sequence[Mapping[str, Any]] | None, context: Any) -> list[bytes]:
    """TorchServe's entry point: the first call, without data, loads the model; every other one is a batch."""
    global _service
    if data is None or _service is None:
        _service = _start(context)
        return []
    started = time.perf_counter()
    responses, batch = _service([_request(entry, context, index) for index, entry in enumerate(data)])
    for index, response in enumerate(responses):
        _answer(context, index, response, batch.works[index])
    context.set_response_header(0, "x-byoc-batch", summary(batch, time.perf_counter() - started))
    return [response.body for response in responses]


def summary(batch: Batch, seconds: float) -> str:
    """The batch's cost for the frontend's metrics; it stays inside the container."""
    report = batch.report
    sizes = ",".join(map(str, report.microbatches))
    return (
        f"requests={len(batch.works)};tokens={report.tokens};padding={report.padding};truncated={report.truncated};"
        f"handler_s={seconds:.6f};forward_s={report.forward_s:.6f};microbatches={sizes}"
    )


def _start(context: Any) -> Service:
    """Load and warm the model. What goes wrong is told in one sentence to whoever started the worker."""
    logging.getLogger().setLevel(logging.WARNING)
    context.metrics = _Unmeasured()
    try:
        settings = resolve(os.environ)
        service = Service(Path(context.system_properties["model_dir"]), settings)
        service.warm_up()
    except Exception as error:
        _tell_failure(error)
        raise
    print(f"model loaded: {service.task.description}", flush=True)
    return service


def _tell_failure(error: Exception) -> None:
    known = isinstance(error, SettingError | ArtefactError | ServiceError)
    sentence = str(error) if known else f"the model cannot be loaded: {type(error).__name__}: {error}"
    if os.environ.get(FAILURE_FILE):
        Path(os.environ[FAILURE_FILE]).write_text(sentence, "utf-8")
    print(sentence, file=sys.stderr, flush=True)


class _Unmeasured:
    """Stands in for TorchServe's metrics, whose line per batch on stdout costs more than our header to the frontend."""

    request_ids: Any = None

    def add_time(self, *_: Any, **__: Any) -> None:
        """TorchServe adds its handler time after every batch."""


def _request(entry: Mapping[str, Any], context: Any, index: int) -> Request:
    names = context.get_all_request_header(index)
    pairs = [(name, value) for name, value in names.items() if isinstance(value, str)]
    body = entry.get("body", b"")
    return Request(context.get_request_id(index) or "", Headers(pairs), body if isinstance(body, bytes | bytearray) else b"")


def _answer(context: Any, index: int, response: Response, work: Work) -> None:
    context.set_response_status(response.status, PHRASES[response.status], index)
    context.set_response_content_type(index, response.content_type)
    for name, value in response.headers.items():
        context.set_response_header(index, name, value)
    records = len(_places(work))
    context.set_response_header(index, "x-byoc-records", str(0 if work.error else records - work.bad_records))
    context.set_response_header(index, "x-byoc-bad-records", str(max(1, records) if work.error else work.bad_records))
