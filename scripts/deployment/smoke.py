"""The calls at the end that show that an endpoint answers: one for each variant, container or component."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from deployment.calls import Call, send
from deployment.description import Description, Kind
from deployment.errors import DeploymentError

SHOWN = 300
ANSWER_LIMIT_S = 900.0


def smoke_calls(description: Description) -> tuple[Call, ...]:
    """InvokeEndpoint, or for an asynchronous endpoint the upload and InvokeEndpointAsync; nothing without a sample."""
    sample = description.smoke
    if sample is None:
        return ()
    common: dict[str, Any] = {"EndpointName": description.name, "ContentType": sample.content_type}
    if sample.accept:
        common["Accept"] = sample.accept
    if sample.target_model:
        common["TargetModel"] = sample.target_model
    if description.kind is Kind.ASYNC:
        place = urlsplit(description.raw["async"]["output"])
        key = f"{place.path.strip('/')}/smoke/{uuid.uuid4().hex}".lstrip("/")
        return (
            Call("s3", "PutObject", {"Bucket": place.netloc, "Key": key, "Body": sample.body}),
            Call("sagemaker-runtime", "InvokeEndpointAsync", {**common, "InputLocation": f"s3://{place.netloc}/{key}"}),
        )
    return tuple(
        Call("sagemaker-runtime", "InvokeEndpoint", {**common, **addressed, "Body": sample.body})
        for addressed in addresses(description)
    )


def addresses(description: Description) -> Iterator[dict[str, str]]:
    """The part of a call that says who shall answer; one for each that can."""
    if description.kind is Kind.COMPONENTS:
        yield from ({"InferenceComponentName": each.name} for each in description.components if each.copies)
    elif description.kind is Kind.MULTI_CONTAINER:
        (variant,) = description.variants
        yield from ({"TargetContainerHostname": str(each.hostname)} for each in variant.containers)
    elif len(description.variants) > 1:
        yield from ({"TargetVariant": variant.name} for variant in description.variants)
    else:
        yield {}


def ask(session: Any, calls: tuple[Call, ...], pause_s: float) -> Iterator[str]:
    """Send them; a line of what came back for each. Raises DeploymentError with the endpoint's own words."""
    for call in calls:
        try:
            answer = send(session, call)
        except ClientError as error:
            said = error.response.get("OriginalMessage") or error.response["Error"]["Message"]
            raise DeploymentError(f"the smoke call failed: {said}") from None
        if call.operation == "InvokeEndpoint":
            yield shown(call, answer["Body"].read(), answer.get("ContentType", ""))
        elif call.operation == "InvokeEndpointAsync":
            yield shown(call, awaited(session, calls[0], answer, pause_s), "")


def awaited(session: Any, upload: Call, answer: dict[str, Any], pause_s: float) -> bytes:
    """The answer's object, once it is there; sample and answer are then removed. Raises DeploymentError."""
    s3 = session.client("s3")
    deadline = time.monotonic() + ANSWER_LIMIT_S
    places = {key: urlsplit(answer[key]) for key in ("OutputLocation", "FailureLocation") if answer.get(key)}
    while time.monotonic() < deadline:
        for key, place in places.items():
            try:
                body: bytes = s3.get_object(Bucket=place.netloc, Key=place.path.lstrip("/"))["Body"].read()
            except ClientError as error:
                if error.response["Error"]["Code"] not in ("NoSuchKey", "NoSuchBucket", "404"):
                    raise
                continue
            s3.delete_object(Bucket=place.netloc, Key=place.path.lstrip("/"))
            s3.delete_object(Bucket=upload.parameters["Bucket"], Key=upload.parameters["Key"])
            if key == "FailureLocation":
                raise DeploymentError(f"the smoke call failed: {body[:SHOWN].decode('utf-8', 'replace')}")
            return body
        time.sleep(pause_s)
    raise DeploymentError(f"the smoke call was not answered within {ANSWER_LIMIT_S:.0f} s: look at {answer['OutputLocation']}")


def shown(call: Call, body: bytes, content_type: str) -> str:
    """Who answered what, cut to a line's length."""
    names = ("InferenceComponentName", "TargetContainerHostname", "TargetVariant", "EndpointName")
    who = next(call.parameters[name] for name in names if name in call.parameters)
    text = body[:SHOWN].decode("utf-8", "replace").replace("\n", " ")
    return f"{who} answered {len(body)} bytes{f' of {content_type}' if content_type else ''}: {text}"
