"""TorchServe's door: `handle(data, context)` turns its batches into requests and our responses into its headers and bodies.

This is the only module that knows TorchServe; every other one would serve behind another frontend as well.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from batch_handler.application import Answers, Application, load
from batch_handler.artefact import ArtefactError
from batch_handler.errors import ServiceError
from batch_handler.request import Headers, Request, Response
from batch_handler.settings import SettingError, resolve
from batch_handler.worker_protocol import read_ahead

FAILURE_FILE = "_BYOC_FAILURE_FILE"

_application: Application | None = None


def handle(data: Sequence[Mapping[str, Any]] | None, context: Any) -> list[bytes]:
    """TorchServe's entry point: the first call, without data, loads the model; every other one is a batch."""
    global _application
    if data is None or _application is None:
        _application = _start(context)
        return []
    started = time.perf_counter()
    answers = _application([_request(entry, context, index) for index, entry in enumerate(data)])
    for index, response in enumerate(answers.responses):
        _answer(context, index, response)
    context.set_response_header(0, "x-byoc-batch", summary(answers, time.perf_counter() - started))
    return [response.body for response in answers.responses]


def summary(answers: Answers, seconds: float) -> str:
    """The batch's cost for the frontend's metrics; it stays inside the container."""
    report = answers.report
    sizes = ",".join(map(str, report.microbatches))
    return (
        f"requests={len(answers.responses)};tokens={report.tokens};padding={report.padding};truncated={report.truncated};"
        f"handler_s={seconds:.6f};forward_s={report.forward_s:.6f};microbatches={sizes}"
    )


def _start(context: Any) -> Application:
    """Load and warm the model. What goes wrong is told in one sentence to whoever started the worker."""
    logging.getLogger().setLevel(logging.WARNING)
    context.metrics = _Unmeasured()
    if message_handler := sys.modules.get("ts.protocol.otf_message_handler"):
        read_ahead(message_handler)
    try:
        application = load(Path(context.system_properties["model_dir"]), resolve(os.environ))
        application.warm_up()
    except Exception as error:
        _tell_failure(error)
        raise
    print(f"model loaded: {application.description}", flush=True)
    return application


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


def _answer(context: Any, index: int, response: Response) -> None:
    context.set_response_status(response.status, HTTPStatus(response.status).phrase, index)
    context.set_response_content_type(index, response.content_type)
    for name, value in response.headers.items():
        context.set_response_header(index, name, value)
    context.set_response_header(index, "x-byoc-records", str(response.records))
    context.set_response_header(index, "x-byoc-bad-records", str(response.bad_records))
