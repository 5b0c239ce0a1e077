"""How much goes into one request, and how many are in flight: the job's word first, the container's next, then the defaults.

Where nobody has said how large a request may be, a first small one is measured. What it tells of the time and the size of
a full one is said before the job, not after an hour of timeouts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from transform import media
from transform.answers import Answer
from transform.description import Job
from transform.faults import FileError, JobError
from transform.joining import Processing
from transform.objects import InputObject, opened
from transform.payloads import Limits, Payload, Place
from transform.rules import MIB, PAYLOAD_LIMIT_MB
from transform.splitting import MULTI, SINGLE, cuts, lines_in, size

DEFAULT_PAYLOAD_MB = 6
DEFAULT_CONCURRENCY = 1
STRATEGIES = {"MULTI_RECORD": MULTI, "SINGLE_RECORD": SINGLE, "MULTIRECORD": MULTI, "SINGLERECORD": SINGLE}
PROBES = (2 * 1024, 32 * 1024)
"""Bytes of the first small requests. The second is sent only where the first shows that it takes seconds, not minutes."""
SECOND_PROBE_LIMIT_S = 3.0
WORTH_MEASURING = 64 * 1024
TARGET_S = 30.0
"""What a request may take where we choose its size: the work that is in flight, and lost, at a sudden end."""
SHARE_OF_TIMEOUT = 1 / 3
ANSWER_BYTES = 64 * MIB
"""The least that a container allows one answer to have."""
LEAST_BYTES = 4 * 1024


@dataclass(frozen=True, slots=True)
class Measured:
    """What one small request told: bytes and records in, bytes out, seconds."""

    sent: int
    records: int
    received: int
    seconds: float

    def seconds_for(self, payload: float, concurrency: int) -> float:
        """What a request of that many bytes takes while as many others share the container."""
        return self.seconds * payload / self.sent * concurrency

    @property
    def growth(self) -> float:
        """Bytes of answer per byte of input."""
        return self.received / self.sent


def agreed(job: Job, wanted: Mapping[str, Any]) -> Limits:
    """The limits by precedence alone: job, then container, then default."""
    strategy = job.strategy or STRATEGIES.get(str(wanted.get("BatchStrategy", "")).upper().replace(" ", ""), MULTI)
    payload = job.max_payload_mb if job.max_payload_mb is not None else _number(wanted, "MaxPayloadInMB", DEFAULT_PAYLOAD_MB)
    concurrency = job.concurrency or int(_number(wanted, "MaxConcurrentTransforms", DEFAULT_CONCURRENCY))
    if payload * concurrency > PAYLOAD_LIMIT_MB:  # what the job says obeys this rule already
        if job.concurrency is None:
            concurrency = max(1, int(PAYLOAD_LIMIT_MB / payload))
        else:
            payload = PAYLOAD_LIMIT_MB / concurrency
    return Limits(strategy, int(payload * MIB), int(payload * MIB), concurrency)


def measured(
    objects: Sequence[InputObject], job: Job, limits: Limits, processing: Processing, send: Callable[[Payload], Answer]
) -> Measured | None:
    """Send the first few records alone and drop the answer; None where that is not worth it, or fails."""
    if limits.strategy == SINGLE or not limits.payload or job.split == "None":
        return None
    found = next((one for one in objects if one.size), None)
    if found is None or max(one.size for one in objects) <= WORTH_MEASURING:
        return None
    result = None
    for probe in PROBES:
        if result and result.seconds_for(probe, 1) > SECOND_PROBE_LIMIT_S:
            break
        result = _probed(found, job, min(probe, limits.payload), limits, processing, send) or result
    return result


def chosen(job: Job, limits: Limits, seen: Measured | None, objects: Sequence[InputObject]) -> Limits:
    """The limits in the light of a measurement, with what it tells about the job."""
    if seen is None or not seen.seconds or not seen.sent:
        return limits
    told = (
        f"measured: {seen.records:,} records of {seen.sent / seen.records:,.0f} bytes took {seen.seconds:.2f} s, "
        f"answers have {seen.growth:.1f} times the bytes"
    )
    largest = min(limits.payload, max(one.size for one in objects))
    taken = seen.seconds_for(largest, limits.concurrency)
    answer = largest * seen.growth
    if job.max_payload_mb is not None:
        return replace(limits, said=[told, *_warned(job, limits, seen, taken, answer)])
    within = min(TARGET_S, job.timeout_s * SHARE_OF_TIMEOUT)
    if taken <= within and answer <= ANSWER_BYTES:
        return replace(limits, said=[told])
    fitting = min(largest * within / taken, ANSWER_BYTES / seen.growth)
    payload = max(LEAST_BYTES, int(fitting))
    why = (
        f"a request of {size(largest)} would take about {taken:,.0f} s with {limits.concurrency} in flight "
        f"and bring {answer / MIB:,.1f} MiB: requests are cut at {size(payload)} instead"
    )
    return replace(limits, payload=payload, said=[told, why, *_advice(job, limits, seen)])


def _warned(job: Job, limits: Limits, seen: Measured, taken: float, answer: float) -> list[str]:
    """What is wrong with a size that the user has set."""
    if taken <= job.timeout_s and answer <= ANSWER_BYTES:
        return []
    clauses = []
    if taken > job.timeout_s:
        clauses.append(f"will take about {taken:,.0f} s and the timeout is {job.timeout_s} s")
    if answer > ANSWER_BYTES:
        clauses.append(f"will bring {answer / MIB:,.0f} MiB, where a small container allows {ANSWER_BYTES // MIB}")
    return [
        f"requests of {size(limits.payload)}, {limits.concurrency} in flight, {' and '.join(clauses)}",
        *_advice(job, limits, seen),
    ]


def _advice(job: Job, limits: Limits, seen: Measured) -> list[str]:
    """The words for a job on SageMaker, which counts whole MiB, with a request that takes half the timeout at most."""
    payload = max(1.0, min(limits.payload / MIB, ANSWER_BYTES / MIB / seen.growth))
    room = math.ceil(payload * seen.growth * 1.1)
    larger = f", Environment: {{BYOC_MAX_RESPONSE_MB: {room}}}" if room * MIB > ANSWER_BYTES * 1.1 else ""
    for timeout in sorted({job.timeout_s, 3600}):
        for concurrency in (limits.concurrency, *(number for number in (8, 4, 2, 1) if number < limits.concurrency)):
            fitting = min(payload, timeout / 2 / seen.seconds_for(MIB, concurrency))
            if fitting >= 1:
                longer = f", InvocationsTimeoutInSeconds: {timeout}" if timeout != job.timeout_s else ""
                return [f"say MaxPayloadInMB: {math.floor(fitting)}, MaxConcurrentTransforms: {concurrency}{longer}{larger}"]
    return [
        "even 1 MiB would be too much for one request on SageMaker: say BatchStrategy: SingleRecord, or cut the input's records"
    ]


def _probed(
    found: InputObject, job: Job, wanted: int, limits: Limits, processing: Processing, send: Callable[[Payload], Answer]
) -> Measured | None:
    try:
        with closing(opened(found, job.compression, 0)) as stream:
            cut = next(cuts(stream, job.split, MULTI, limits.largest, wanted), None)
        if cut is None:
            return None
        body, refused = processing.sent(cut.body)
        records = lines_in(cut.body) if media.kind(job.content_type) in media.LINES else cut.records
        answer = send(Payload(body, cut.body, Place(), Place(cut.taken, records, 1), refused))
    except (FileError, JobError):
        return None  # the job itself will meet the same fault, and say what it is
    answer.close()
    return Measured(cut.taken, records, answer.size, answer.seconds)


def _number(wanted: Mapping[str, Any], name: str, default: float) -> float:
    value = wanted.get(name, default)
    return value if isinstance(value, int | float) and value > 0 else default
