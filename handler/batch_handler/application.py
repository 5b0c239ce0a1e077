"""What serves requests: a task's pipeline, or a user's script. TorchServe's door holds one and knows no more of it.

Also what every answer has, whoever made it: the echoed headers and the one form of an error.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from batch_handler import resources
from batch_handler.artefact import default_task, script_file
from batch_handler.errors import ErrorType, ServiceError
from batch_handler.journal import Noting
from batch_handler.microbatch import Report
from batch_handler.negotiation import JSON
from batch_handler.request import Headers, Part, Request, Response
from batch_handler.settings import MIB, Settings, response_limit_mb

ECHOED = ("X-Amzn-SageMaker-Custom-Attributes", "X-Amzn-SageMaker-Inference-Id")
HEADER_LIMIT = 1_024
UNSAFE_IN_HEADERS = re.compile(r"[^\x20-\x7e]")


@dataclass(frozen=True, slots=True)
class Answers:
    """One response per request, in their order, and what the batch cost."""

    responses: Sequence[Response]
    report: Report


Reply = Callable[[Sequence[tuple[int, Response]], Report | None], None]
"""Takes answers, each with its request's place in the batch, from any thread; with a batch's last comes its report."""


class Application(Protocol):
    """A loaded model that answers batches of requests. Never raises for what a request holds."""

    journal: Noting
    """Takes note of what is being run; whoever can offer a place for it sets it."""

    @property
    def repeatable(self) -> bool:
        """Whether a request may be run again that a worker had begun when it ended."""

    @property
    def description(self) -> str:
        """A few words for the log: what was loaded, and how it runs."""

    def __call__(self, requests: Sequence[Request]) -> Answers:
        """Answer every request."""

    def serve(self, requests: Sequence[Request], reply: Reply) -> None:
        """Take a batch in and reply to every request once, at once or later. Returns when the next batch may come."""

    def cancel(self, identifiers: Sequence[str]) -> None:
        """The callers of these requests left: what was not begun need not be."""

    def warm_up(self) -> None:
        """Run once, so that the first caller waits for nothing. Raises whatever makes the model unusable."""


def load(directory: Path, settings: Settings) -> Application:
    """Load what the model directory holds. Raises ArtefactError, SettingError, or what the model's own code raises."""
    if script_file(directory, settings.program) is not None:
        from batch_handler import script

        return script.load(directory, settings)
    from batch_handler import tasks
    from batch_handler.pipeline import Pipeline

    task = tasks.load(settings.task or default_task(directory), directory, settings)
    return Pipeline(task, settings)


def answer_all(application: Application, requests: Sequence[Request]) -> Answers:
    """Serve a batch and wait for all of its answers."""
    responses: dict[int, Response] = {}
    parts: dict[int, list[Response]] = {}
    reports: list[Report] = []
    ended = threading.Event()

    def reply(answers: Sequence[tuple[int, Response]], report: Report | None) -> None:
        for index, response in answers:
            parts.setdefault(index, []).append(response)
            if response.part is not Part.MORE:
                responses[index] = whole(parts.pop(index))
        if report is not None:
            reports.append(report)
        if reports and len(responses) == len(requests):  # the last reply may overtake another lane's
            ended.set()

    if not requests:
        return Answers([], Report())
    application.serve(requests, reply)
    ended.wait()
    return Answers([responses[index] for index in range(len(requests))], reports[0])


def whole(parts: Sequence[Response]) -> Response:
    """An answer that came in parts, in one."""
    last = parts[-1]
    return last if len(parts) == 1 else replace(last, body=b"".join(part.body for part in parts), part=None)


def response_limit(settings: Settings) -> int:
    """The largest answer in bytes."""
    return response_limit_mb(settings, resources.available().memory_bytes) * MIB


def check_size(body: bytes, limit: int) -> None:
    """Raises ServiceError for an answer of more than `limit` bytes, which TorchServe could not carry."""
    if len(body) > limit:
        raise ServiceError(
            ErrorType.RESPONSE_TOO_LARGE,
            f"the answer has {len(body) / MIB:.0f} MB, more than the limit of {limit // MIB} MB: "
            "send fewer records at once or raise BYOC_MAX_RESPONSE_MB",
        )


def answered(request: Request, content_type: str, body: bytes, records: int = 1, bad_records: int = 0) -> Response:
    """A 200 with the caller's own headers."""
    return Response(200, content_type, body, echoed(request.headers), records, bad_records)


def failed(request: Request, error: ServiceError, records: int = 1) -> Response:
    """The error as the answer to its request."""
    headers = {**echoed(request.headers), **error.headers}
    return Response(error.status, JSON, error.body(), headers, 0, max(1, records), error=error.type.label)


def echoed(headers: Headers) -> dict[str, str]:
    """Custom attributes and inference id go back as they came, where they are safe to send."""
    values = {name: headers.get(name) for name in ECHOED}
    return {name: UNSAFE_IN_HEADERS.sub("?", value)[:HEADER_LIMIT] for name, value in values.items() if value}
