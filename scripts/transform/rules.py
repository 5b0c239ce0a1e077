"""What the platform asks of a job beyond the form of its request, and what it allows but nobody wants."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from transform import media, paths

if TYPE_CHECKING:
    from transform.description import Job

MIB = 1024 * 1024
PAYLOAD_LIMIT_MB = 100
"""Of one payload, and of all payloads in flight together (batch transform, CreateTransformJob's page)."""


def broken(job: Job) -> Iterator[str]:
    """One clause for every rule that the job breaks."""
    payload, concurrency = job.max_payload_mb or 0, job.concurrency or 1
    if payload * concurrency > PAYLOAD_LIMIT_MB:
        yield (
            f"MaxPayloadInMB × MaxConcurrentTransforms is {payload} × {concurrency} = {payload * concurrency} "
            f"and may be {PAYLOAD_LIMIT_MB} at most"
        )
    if job.max_payload_mb == 0 and job.split != "None":
        yield f"MaxPayloadInMB 0 streams whole objects, which SplitType {job.split} would cut: say SplitType None"
    if job.data_type in ("AugmentedManifestFile", "Converse"):
        yield f"S3DataType {job.data_type} is not served by this program: say S3Prefix or ManifestFile"
    yield from _processing(job)


def _processing(job: Job) -> Iterator[str]:
    for name, path in (("InputFilter", job.input_filter), ("OutputFilter", job.output_filter)):
        fault = paths.fault(path)
        if fault:
            yield f"{name} {path!r} {fault}"
    if not job.processed:
        return
    kind = media.kind(job.content_type)
    if kind not in media.PROCESSED or media.kind(job.accept or job.content_type) != kind:
        yield "DataProcessing needs the same ContentType and Accept, one of text/csv, application/json, application/jsonlines"
    if job.max_payload_mb == 0:
        yield "DataProcessing looks into records, which MaxPayloadInMB 0 streams past: leave MaxPayloadInMB out"
    lines = job.split == "Line" and job.assemble == "Line"
    if not lines and (kind != media.JSON or job.split != "None"):
        yield "DataProcessing on lines needs SplitType Line and AssembleWith Line"


def doubtful(job: Job) -> Iterator[str]:
    """One sentence for everything that is allowed and gives a result that is rarely meant."""
    if job.split == "Line" and job.assemble == "None":
        yield "AssembleWith None glues an answer's first line to the last of the one before: AssembleWith Line does not"
    if job.split == "None" and job.assemble == "Line" and media.kind(job.content_type) == media.JSON_LINES:
        yield "SplitType None sends each object whole: SplitType Line cuts it at newlines where it is over MaxPayloadInMB"
    if any(re.search(r"\[-?\d*:-?\d", path) for path in (job.input_filter, job.output_filter)):
        yield "a slice leaves its end out here, as in JSONPath ([1:4] is 1, 2, 3); AWS's page counts it in: list the numbers"
