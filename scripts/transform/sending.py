"""One request to one of the containers, again with back-off where that may help: 429, 5xx, timeouts, broken connections."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import urllib3
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_attempt,
    stop_any,
    stop_when_event_set,
    wait_exponential_jitter,
)
from urllib3.exceptions import HTTPError, ReadTimeoutError

from transform.answers import Answer
from transform.description import Job
from transform.faults import FileError, JobError
from transform.payloads import STREAM_BYTES, Payload
from transform.targets import REST_S, Target, Targets

CONNECT_S = 10.0
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
TOO_MANY_REQUESTS = 429


class RetryableError(Exception):
    """The request may succeed later. ``pause_s`` is what the container asked for; ``silent``: nobody answered at all."""

    def __init__(self, message: str, pause_s: float = 0.0, silent: bool = False) -> None:
        super().__init__(message)
        self.pause_s = pause_s
        self.silent = silent


class StoppedError(Exception):
    """The run was asked to end while a request waited for its next attempt."""


@dataclass(slots=True)
class Sender:
    """Sends payloads and counts the attempts that were repeated. Threads may share it."""

    job: Job
    targets: Targets
    stopping: threading.Event = field(default_factory=threading.Event)
    repeated: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, payload: Payload) -> Answer:
        """The answer with status 2xx. Raises FileError, JobError when no container is left, or StoppedError."""
        if payload.refused and payload.body == b"":
            return Answer("")  # not one of its records is sent
        retrying = Retrying(
            stop=stop_any(stop_after_attempt(1 + self.job.retries), stop_when_event_set(self.stopping)),
            sleep=sleep_using_event(self.stopping),
            wait=_pause,
            retry=retry_if_exception_type(RetryableError),
            reraise=True,
        )
        try:
            for attempt in retrying:
                with attempt:
                    answer = self._once(payload)
                    answer.attempts = attempt.retry_state.attempt_number
        except RetryableError as last:
            if self.stopping.is_set():
                raise StoppedError from None
            raise self._given_up(last, payload) from None
        return answer

    def _once(self, payload: Payload) -> Answer:
        with self.targets.one() as target:
            try:
                return self._ask(target, payload)
            except RetryableError as again:
                with self._lock:
                    self.repeated += 1
                if again.silent:
                    target.rests_until = time.monotonic() + REST_S
                raise

    def _ask(self, target: Target, payload: Payload) -> Answer:
        headers = {"Content-Type": self.job.content_type, "Accept": self.job.accept}
        began = time.monotonic()
        try:
            response = target.pool.urlopen(
                "POST",
                "/invocations",
                body=payload.body if isinstance(payload.body, bytes) else _pieces(payload.body()),
                headers={name: value for name, value in headers.items() if value},
                chunked=not isinstance(payload.body, bytes),
                timeout=urllib3.Timeout(connect=CONNECT_S, read=self.job.timeout_s),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            try:
                return _received(response, began)
            finally:
                response.release_conn()
        except ReadTimeoutError:
            raise RetryableError(f"no answer within {self.job.timeout_s} s") from None
        except (HTTPError, OSError) as error:
            raise RetryableError(f"the connection broke: {_bare(error)}", silent=True) from None

    def _given_up(self, last: RetryableError, payload: Payload) -> FileError | JobError:
        tries = f"after {1 + self.job.retries} attempts" if self.job.retries else "at the first attempt"
        if last.silent and not self.targets.any_alive():
            return JobError(f"no container answers any more ({last}, {tries})")
        hint = (
            ": allow more time (InvocationsTimeoutInSeconds) or send less at once (MaxPayloadInMB)"
            if "within" in str(last)
            else ""
        )
        return FileError(f"{span(payload)}: {last} {tries}{hint}")


def span(payload: Payload) -> str:
    """Which records a payload holds, for a message."""
    first, last = payload.start.records + 1, payload.end.records
    return f"record {first:,}" if first == last else f"records {first:,} to {last:,}"


def _received(response: urllib3.BaseHTTPResponse, began: float) -> Answer:
    if response.status >= 300:
        said = _said(response.read(65536))
        if response.status == TOO_MANY_REQUESTS or response.status >= 500:
            raise RetryableError(f"status {response.status}{said}", _asked_pause(response))
        raise FileError(f"the container refused a request with status {response.status}{said}")
    answer = Answer(response.headers.get("Content-Type", ""))
    try:
        while data := response.read(STREAM_BYTES):
            answer.write(data)
    except BaseException:
        answer.close()
        raise
    answer.seconds = time.monotonic() - began
    return answer


def _said(body: bytes) -> str:
    """The container's own sentence about an error, in front of which ': ' stands."""
    try:
        message = str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        message = " ".join(body[:200].decode("utf-8", "replace").split())
    return f": {message}" if message else ""


def _asked_pause(response: urllib3.BaseHTTPResponse) -> float:
    try:
        return min(float(response.headers.get("Retry-After", 0)), LONGEST_PAUSE_S)
    except ValueError:
        return 0.0


def _pause(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    grown = wait_exponential_jitter(initial=FIRST_PAUSE_S, max=LONGEST_PAUSE_S, jitter=FIRST_PAUSE_S)(state)
    return max(grown, error.pause_s) if isinstance(error, RetryableError) else grown


def _pieces(stream: BinaryIO) -> Iterator[bytes]:
    with stream:
        while data := stream.read(STREAM_BYTES):
            yield data


def _bare(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 160 else text[:159] + "…"
