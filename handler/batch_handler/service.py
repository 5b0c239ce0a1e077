"""TorchServe's door: its batches become requests, and our responses its headers and bodies.

Behind the frontend of this project a worker's socket is spoken to directly (`worker_protocol`); behind any other,
`handle(data, context)` answers batch by batch. No other module knows TorchServe.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn

from batch_handler import device, journal, worker_log
from batch_handler.application import Application, load
from batch_handler.artefact import ArtefactError
from batch_handler.errors import ServiceError
from batch_handler.internal import EARLY_ANSWERS, FAILURE_FILE, STAGES
from batch_handler.microbatch import Report
from batch_handler.request import Headers, Part, Request, Response
from batch_handler.settings import SettingError, resolve
from batch_handler.stages import Stages
from batch_handler.worker_protocol import Conversation, DisconnectedError

CANCEL = "x-byoc-cancel"
"""Marks, in place of a request, one whose caller left; the frontend lets no caller send it."""

log = logging.getLogger(__name__)

_application: Application | None = None


def handle(data: Sequence[Mapping[str, Any]] | None, context: Any) -> list[bytes]:
    """TorchServe's entry point: the first call, without data, loads the model; every other one is a batch."""
    global _application
    if data is None or _application is None:
        _application = _start(context)
        return []
    timed = os.environ.get(STAGES) == "true"
    requests = [_request(entry, context, index, timed) for index, entry in enumerate(data)]
    if os.environ.get(EARLY_ANSWERS) == "true":
        _application.journal = journal.beside(context.cl_socket, _application.repeatable)
        converse(Conversation(context.cl_socket, timed), _application, requests)
    answers = _application(requests)
    for index, response in enumerate(answers.responses):
        _answer(context, index, response)
    context.set_response_header(0, "x-byoc-batch", summary(answers.report))
    return [response.body for response in answers.responses]


def converse(conversation: Conversation, application: Application, requests: Sequence[Request]) -> NoReturn:
    """Serve this batch and all that follow it, until the frontend is gone. Raises SystemExit then."""
    try:
        while True:
            left = [request.id for request in requests if request.headers.get(CANCEL)]
            if left:
                application.cancel(left)
            else:
                application.serve(requests, partial(_send, conversation, [(request.id, request.stages) for request in requests]))
                conversation.ready()
            requests = conversation.batch()
    except (DisconnectedError, ConnectionError):
        sys.exit(0)


def _send(
    conversation: Conversation,
    asked: Sequence[tuple[str, Stages | None]],
    answers: Sequence[tuple[int, Response]],
    report: Report | None,
) -> None:
    """Answers to their callers; with the last of a batch goes its summary. `asked` is all that is kept of the requests."""
    noted = [(asked[index][0], response, notes(response, asked[index][1])) for index, response in answers]
    if report is not None:
        noted[-1][2]["x-byoc-batch"] = summary(report)
    try:
        conversation.answer(noted)
    except ConnectionError:
        log.warning("%d answers had nobody to go to: the frontend is gone", len(noted))


def notes(response: Response, stages: Stages | None = None) -> dict[str, str]:
    """What the frontend's metrics and log are to know of an answer; it stays inside the container."""
    told = {"x-byoc-records": str(response.records), "x-byoc-bad-records": str(response.bad_records)}
    if response.part is not None:
        told["ts_stream_next"] = str(response.part is Part.MORE).lower()
    if response.part is Part.BROKEN:
        told["x-byoc-broken"] = "true"
    if response.error is not None:
        told["x-byoc-error"] = response.error
    if stages is not None and response.part is not Part.MORE:
        told["x-byoc-stages"] = stages.header()
    return told


def summary(report: Report) -> str:
    """A batch's cost for the frontend's metrics."""
    sizes = ",".join(map(str, report.microbatches))
    return (
        f"requests={report.requests};overlaps={int(report.overlaps)};tokens={report.tokens};padding={report.padding};truncated={report.truncated};"
        f"handler_s={report.handler_s:.6f};forward_s={report.forward_s:.6f};microbatches={sizes}"
    )


def _start(context: Any) -> Application:
    """Load and warm the model. What goes wrong is told in one sentence to whoever started the worker."""
    if not worker_log.install(os.environ):
        logging.getLogger().setLevel(logging.WARNING)
        logging.getLogger(__package__).setLevel(logging.INFO)
    context.metrics = _Unmeasured()
    try:
        device.pin(context.system_properties.get("gpu_id"))
        settings = resolve(os.environ)
        application = load(Path(context.system_properties["model_dir"]), settings)
        application.warm_up()
    except Exception as error:
        _tell_failure(error)
        raise
    log.info("model loaded: %s%s", application.description, device.describe(device.device(settings), settings))
    return application


def _tell_failure(error: Exception) -> None:
    known = isinstance(error, SettingError | ArtefactError | ServiceError)
    sentence = str(error) if known else f"the model cannot be loaded: {type(error).__name__}: {error}"
    if os.environ.get(FAILURE_FILE):
        Path(os.environ[FAILURE_FILE]).write_text(sentence, "utf-8")
    if known:
        log.error(sentence)
    else:
        log.error(sentence, exc_info=error)


class _Unmeasured:
    """Stands in for TorchServe's metrics, whose line per batch on stdout costs more than our header to the frontend."""

    request_ids: Any = None

    def add_time(self, *_: Any, **__: Any) -> None:
        """TorchServe adds its handler time after every batch."""


def _request(entry: Mapping[str, Any], context: Any, index: int, timed: bool) -> Request:
    names = context.get_all_request_header(index)
    pairs = [(name, value) for name, value in names.items() if isinstance(value, str)]
    body = entry.get("body", b"")
    content = body if isinstance(body, bytes | bytearray) else b""
    return Request(context.get_request_id(index) or "", Headers(pairs), content, Stages() if timed else None)


def _answer(context: Any, index: int, response: Response) -> None:
    context.set_response_status(response.status, HTTPStatus(response.status).phrase, index)
    context.set_response_content_type(index, response.content_type)
    for name, value in (*response.headers.items(), *notes(response).items()):
        context.set_response_header(index, name, value)
