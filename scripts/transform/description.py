"""The job description, in the words of ``create_transform_job``: read from flags and a YAML or JSON file, checked, made a `Job`.

What a request may hold is not written down here: botocore's model of the service says it.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from botocore.validate import ParamValidator

from transform import aws, rules
from transform.faults import JobError

MODEL = "Model"
"""Beside the request's own keys: a ``create_model`` request for a model that is to be made first."""
PLACEHOLDER_URI = "s3://here/"
LOCAL_DEFAULTS: Mapping[str, Any] = {
    "TransformJobName": "local",
    "ModelName": "local",
    "TransformResources": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
}
"""What a job on this machine need not say."""
NOT_DONE_HERE = ("DataCaptureConfig", "ExperimentConfig", "Tags")
"""Parts of a request that only the platform carries out; a job on this machine says that it does not."""
URIS = (("TransformInput", "DataSource", "S3DataSource", "S3Uri"), ("TransformOutput", "S3OutputPath"))


@dataclass(frozen=True, slots=True)
class Job:
    """What a job does, with the platform's defaults. None: not said, so that the container's own wish counts.

    ``max_payload_mb`` is in MiB, 0 means one streamed request per object; ``timeout_s`` is that of one request.
    """

    input_uri: str
    output_uri: str
    data_type: str = "S3Prefix"
    content_type: str | None = None
    compression: str = "None"
    split: str = "None"
    strategy: str | None = None
    max_payload_mb: int | None = None
    concurrency: int | None = None
    accept: str | None = None
    assemble: str = "None"
    kms_key: str | None = None
    input_filter: str = "$"
    output_filter: str = "$"
    join: bool = False
    timeout_s: int = 600
    retries: int = 3
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def processed(self) -> bool:
        """Whether records are looked into: filtered or joined."""
        return self.join or self.input_filter != "$" or self.output_filter != "$"


@dataclass(frozen=True, slots=True)
class Description:
    """A checked request: ``request`` is create_transform_job's, ``model`` create_model's or None, ``job`` what they mean."""

    request: Mapping[str, Any]
    model: Mapping[str, Any] | None
    job: Job

    @property
    def container(self) -> Mapping[str, Any]:
        """The model's container: Image, ModelDataUrl, Environment."""
        found: Mapping[str, Any] = (self.model or {}).get("PrimaryContainer", {})
        return found


def read(path: Path | None) -> dict[str, Any]:
    """The file's request, or an empty one. JSON is YAML, too. Raises JobError."""
    if path is None:
        return {}
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise JobError(f"{path}: {error.strerror}: name a YAML or JSON file with the words of create_transform_job") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        place = getattr(error, "problem_mark", None)
        where = f" at line {place.line + 1}" if place else ""
        raise JobError(f"{path} is neither YAML nor JSON{where}: correct it") from None
    if not isinstance(found, dict):
        raise JobError(f"{path} must hold the keys of create_transform_job, such as TransformInput")
    return found


def described(given: Mapping[str, Any], local: bool) -> Description:
    """Check a request and say what it means.

    A job on this machine may leave out the names and the instances, and its addresses may be paths. Raises JobError with
    every fault that the service's model and the platform's rules find.
    """
    request = {key: value for key, value in given.items() if key != MODEL}
    model = given.get(MODEL)
    checked = _for_checking(request) if local else request
    faults = list(_faults("CreateTransformJob", checked))
    if model is not None:
        named = {
            "ModelName": request.get("ModelName", "local"),
            **({"ExecutionRoleArn": "arn:aws:iam::000000000000:role/local"} if local else {}),
        }
        faults += [
            f"{MODEL}: {fault}" for fault in _faults("CreateModel", {**named, **model} if isinstance(model, dict) else model)
        ]
    if not faults:
        job = _job(request)
        faults = list(rules.broken(job))
    if faults:
        raise JobError("the job description is not right: " + "; ".join(faults))
    return Description(request, model, job)


def not_done_here(request: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each part of the request that has no meaning on this machine."""
    for key in NOT_DONE_HERE:
        if request.get(key):
            yield f"{key} is for SageMaker alone: the job here does nothing about it"


def _for_checking(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request with what only the platform needs, so that its model can judge the rest."""
    whole: dict[str, Any] = {**LOCAL_DEFAULTS, **copy.deepcopy(dict(request))}
    for *path, last in URIS:
        inner: Any = whole
        for key in path:
            inner = inner.get(key) if isinstance(inner, dict) else None
        if isinstance(inner, dict) and isinstance(inner.get(last), str) and inner[last]:
            inner[last] = PLACEHOLDER_URI
    return whole


def _faults(operation: str, request: Any) -> Iterator[str]:
    """What the service's model finds wrong: botocore's own checks, then the limits that it leaves to the service."""
    shape = aws.client("sagemaker").meta.service_model.operation_model(operation).input_shape
    report = ParamValidator().validate(request, shape)
    if report.has_errors():
        yield from report.generate_report().splitlines()
    else:
        yield from _beyond(shape, request, "")


def _beyond(shape: Any, value: Any, path: str) -> Iterator[str]:
    if shape.type_name == "structure":
        for key, inner in value.items():
            yield from _beyond(shape.members[key], inner, f"{path}.{key}".lstrip("."))
    elif shape.type_name == "list":
        for place, inner in enumerate(value):
            yield from _beyond(shape.member, inner, f"{path}[{place}]")
    elif shape.type_name == "map":
        for key, inner in value.items():
            yield from _beyond(shape.key, key, f"{path} key {key!r}")
            yield from _beyond(shape.value, inner, f"{path}.{key}")
    else:
        yield from _leaf(shape, value, path)


def _leaf(shape: Any, value: Any, path: str) -> Iterator[str]:
    limits = shape.metadata
    size = len(value) if isinstance(value, str) else value
    if (choice := getattr(shape, "enum", None)) and value not in choice:
        known = ", ".join(choice) if len(choice) <= 12 else f"{len(choice)} known ones such as {choice[0]}"
        yield f"{path} is {value!r} and must be one of {known}"
    if isinstance(size, int) and "max" in limits and size > limits["max"]:
        yield f"{path} is {value!r} and over its limit of {limits['max']}"
    if isinstance(value, str) and "pattern" in limits and not re.fullmatch(limits["pattern"], value):
        yield f"{path} is {value!r} and does not match {limits['pattern']}"


def _job(request: Mapping[str, Any]) -> Job:
    source, target = request["TransformInput"], request["TransformOutput"]
    processing, client = request.get("DataProcessing", {}), request.get("ModelClientConfig", {})
    stored = source["DataSource"]["S3DataSource"]
    said = {
        "content_type": source.get("ContentType"),
        "compression": source.get("CompressionType"),
        "split": source.get("SplitType"),
        "strategy": request.get("BatchStrategy"),
        "max_payload_mb": request.get("MaxPayloadInMB"),
        "concurrency": request.get("MaxConcurrentTransforms") or None,
        "accept": target.get("Accept"),
        "assemble": target.get("AssembleWith"),
        "kms_key": target.get("KmsKeyId"),
        "input_filter": processing.get("InputFilter") or None,
        "output_filter": processing.get("OutputFilter") or None,
        "timeout_s": client.get("InvocationsTimeoutInSeconds"),
        "retries": client.get("InvocationsMaxRetries"),
        "environment": request.get("Environment"),
    }
    return Job(
        stored["S3Uri"],
        target["S3OutputPath"],
        stored["S3DataType"],
        join=processing.get("JoinSource", "None") == "Input",
        **{name: value for name, value in said.items() if value is not None},
    )
