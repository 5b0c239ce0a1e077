"""One request to AWS as data, checked against the service's own model before anything is sent."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import botocore.session
from botocore import xform_name
from botocore.model import ServiceModel, Shape
from botocore.validate import ParamValidator

from deployment.errors import DeploymentError

SHOWN = 4  # values of an enumeration in a message


@dataclass(frozen=True, slots=True)
class Call:
    """``operation`` is the API's own name, such as CreateModel."""

    service: str
    operation: str
    parameters: Mapping[str, Any]

    @property
    def method(self) -> str:
        """The name of boto3's method."""
        return str(xform_name(self.operation))


def send(session: Any, call: Call) -> dict[str, Any]:
    """Check, then ask AWS. Raises DeploymentError and botocore's ClientError."""
    check(call)
    answer: dict[str, Any] = getattr(session.client(call.service), call.method)(**call.parameters)
    return answer


def check(call: Call) -> None:
    """Raises DeploymentError for whatever the service's model does not allow: names, types, values, lengths and patterns."""
    shape = service_model(call.service).operation_model(call.operation).input_shape
    report = ParamValidator().validate(dict(call.parameters), shape)
    faults = [line for line in report.generate_report().splitlines() if line] if report.has_errors() else []
    faults += faults_of(shape, call.parameters, "") if not faults else []
    if faults:
        raise DeploymentError("\n".join(f"{call.operation} would be refused: {fault}" for fault in faults))


@cache
def service_model(service: str) -> ServiceModel:
    """What botocore knows about a service; no network, no credentials."""
    return botocore.session.get_session().get_service_model(service)


def faults_of(shape: Shape, value: Any, place: str) -> list[str]:
    """What botocore's own validator lets pass: enumerations, upper limits and patterns."""
    return list(walk(shape, value, place))


def walk(shape: Any, value: Any, place: str) -> Iterator[str]:
    """The faults of a value that has the right type already."""
    limits = shape.metadata
    if shape.type_name == "structure":
        for name, member in value.items():
            yield from walk(shape.members[name], member, f"{place}.{name}" if place else name)
    elif shape.type_name == "list":
        yield from too_much(len(value), limits, place, "members")
        for number, member in enumerate(value):
            yield from walk(shape.member, member, f"{place}[{number}]")
    elif shape.type_name == "map":
        yield from too_much(len(value), limits, place, "entries")
        for name, member in value.items():
            yield from walk(shape.key, name, f"{place}.{name} (its name)")
            yield from walk(shape.value, member, f"{place}.{name}")
    elif shape.type_name == "string":
        yield from of_text(value, limits, place)
    elif shape.type_name in ("integer", "long", "float", "double"):
        yield from too_much(value, limits, place, "")


def too_much(size: float, limits: Mapping[str, Any], place: str, unit: str) -> Iterator[str]:
    """More than the model's upper limit."""
    if "max" in limits and size > limits["max"]:
        yield f"{place} is {size} {unit}".rstrip() + f", at most {limits['max']} is accepted"


def of_text(value: str, limits: Mapping[str, Any], place: str) -> Iterator[str]:
    """Length, enumeration and pattern of a string."""
    yield from too_much(len(value), limits, place, "characters")
    values = limits.get("enum")
    if values and value not in values:
        yield f"{place} is {value!r}, accepted are {some(value, values)}"
    pattern = limits.get("pattern")
    if pattern and matches(pattern, value) is False:
        yield f"{place} is {value!r}, which does not match {pattern}"


def some(value: str, values: Sequence[str]) -> str:
    """The values, or of many those that begin like the wrong one."""
    if len(values) <= 2 * SHOWN:
        return ", ".join(values)
    for length in range(len(value), 0, -1):
        close = [each for each in values if each.startswith(value[:length])]
        if close:
            break
    else:
        close = list(values)
    return f"{', '.join(close[:SHOWN])} and others ({len(values)} in all)"


def matches(pattern: str, value: str) -> bool | None:
    """Whether the whole value fits; None for the few patterns that Python reads differently."""
    try:
        return re.fullmatch(pattern, value, re.DOTALL) is not None
    except re.error:
        return None


def readable(calls: Sequence[Call]) -> str:
    """The calls as JSON, in the order in which they would be sent."""
    rows = [{"service": call.service, "operation": call.operation, "parameters": call.parameters} for call in calls]
    return json.dumps(rows, indent=2, ensure_ascii=False, default=text_or_base64)


def text_or_base64(value: object) -> str:
    """A request's body as a person reads it."""
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()
