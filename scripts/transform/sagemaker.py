"""The same job on SageMaker: created, followed to its end, and when it fails its reason and the last lines of its log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from transform import aws
from transform.description import Description
from transform.faults import JobError

LOG_GROUP = "/aws/sagemaker/TransformJobs"
LOG_LINES = 20
POLL_S = 15.0
STEADY = ("Completed", "Failed", "Stopped")


def requests(description: Description, now: datetime | None = None) -> list[tuple[str, dict[str, Any]]]:
    """The calls that the job is made of, in order: the model first, where the description has one."""
    request = dict(description.request)
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%d-%H%M%S")
    request.setdefault("TransformJobName", f"{request['ModelName'][:46]}-{stamp}")
    calls = [("CreateTransformJob", request)]
    if description.model is not None:
        calls.insert(0, ("CreateModel", {"ModelName": request["ModelName"], **description.model}))
    return calls


def run(description: Description, wait: bool = True, pause: Callable[[float], None] = time.sleep) -> int:
    """Create the job and follow it; 0 when it completed, 1 when it failed or was stopped. Raises JobError."""
    sagemaker = aws.client("sagemaker")
    name = ""
    for operation, request in requests(description):
        name = request.get("TransformJobName", name)
        _call(sagemaker, operation, request)
    print(f"created transform job {name}", flush=True)
    if not wait:
        return 0
    try:
        found = _followed(sagemaker, name, pause)
    except KeyboardInterrupt:
        print(f"\nthe job goes on; to end it: aws sagemaker stop-transform-job --transform-job-name {name}", file=sys.stderr)
        raise
    state = found["TransformJobStatus"]
    print(f"{state} after {_elapsed(found)}: {description.job.output_uri}", flush=True)
    if state == "Completed":
        return 0
    if found.get("FailureReason"):
        print(f"reason: {found['FailureReason']}", file=sys.stderr)
    for line in last_lines(name):
        print(line, file=sys.stderr)
    return 1


def last_lines(name: str, count: int = LOG_LINES) -> list[str]:
    """The last lines that the job's containers logged, oldest first; what went wrong in asking, when it did."""
    logs = aws.client("logs")
    try:
        streams = logs.describe_log_streams(logGroupName=LOG_GROUP, logStreamNamePrefix=f"{name}/")["logStreams"]
        events = [
            event
            for stream in streams
            for event in logs.get_log_events(
                logGroupName=LOG_GROUP, logStreamName=stream["logStreamName"], limit=count, startFromHead=False
            )["events"]
        ]
    except aws.FAULTS as error:
        return [f"(the log group {LOG_GROUP} cannot be read: {aws.sentence(error)})"]
    events.sort(key=lambda event: event["timestamp"])
    return [event["message"].rstrip("\n") for event in events[-count:]] or [f"({LOG_GROUP} has nothing for {name}/)"]


def _call(sagemaker: Any, operation: str, request: Mapping[str, Any]) -> None:
    method = {"CreateModel": "create_model", "CreateTransformJob": "create_transform_job"}[operation]
    try:
        getattr(sagemaker, method)(**request)
    except aws.FAULTS as error:
        if operation == "CreateModel" and "already exist" in str(error).lower():
            return  # the same name means the same model: one that has changed gets another name
        raise JobError(f"{operation} was refused: {aws.sentence(error)}") from None


def _followed(sagemaker: Any, name: str, pause: Callable[[float], None]) -> dict[str, Any]:
    """The job's last description, after a line for every state on the way."""
    shown = ""
    while True:
        try:
            found: dict[str, Any] = sagemaker.describe_transform_job(TransformJobName=name)
        except aws.FAULTS as error:
            raise JobError(f"{name} cannot be followed (it goes on): {aws.sentence(error)}") from None
        state = found["TransformJobStatus"]
        if state in STEADY:
            if shown and sys.stderr.isatty():
                print(file=sys.stderr)
            return found
        if sys.stderr.isatty():
            print(f"\r{state}, {_elapsed(found)}  ", end="", file=sys.stderr, flush=True)
        elif state != shown:
            print(f"{state}, {_elapsed(found)}", file=sys.stderr, flush=True)
        shown = state
        pause(POLL_S)


def _elapsed(found: Mapping[str, Any]) -> str:
    began = found.get("TransformStartTime") or found.get("CreationTime")
    ended = found.get("TransformEndTime") or datetime.now(UTC)
    seconds = max(0, int((ended - began).total_seconds())) if began else 0
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
