"""config/openapi.yaml says what the code says: media types, types of errors, statuses."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from openapi_spec_validator import validate

from batch_handler import errors
from batch_handler.formats import BY_MEDIA_TYPE, WRITABLE
from batch_handler.streaming import FORMS
from running import ROOT

FRONTEND = ROOT / "docker" / "endpoints" / "src" / "main" / "java" / "byoc" / "endpoints"
ENTRY = re.compile(r'^\s+[A-Z_]+\("(\w+)", HttpResponseStatus\.([A-Z_]+), (true|false)\)', re.MULTILINE)


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    """The file."""
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "config" / "openapi.yaml").read_text())
    return loaded


def test_it_is_openapi(description: dict[str, Any]) -> None:
    validate(description)


def test_its_media_types_are_those_that_are_read_and_written(description: dict[str, Any]) -> None:
    shared = description["components"]
    assert set(shared["requestBodies"]["Records"]["content"]) == set(BY_MEDIA_TYPE)
    assert set(shared["responses"]["Results"]["content"]) == {*WRITABLE, *(form.media_type for form in FORMS)}


def test_a_model_of_many_is_called_as_a_lone_one_is(description: dict[str, Any]) -> None:
    lone, of_many = (dict(description["paths"][path]["post"]) for path in ("/invocations", "/models/{model_name}/invoke"))
    assert of_many["parameters"].pop(0)["$ref"].endswith("/ModelName")
    for call in (lone, of_many):
        del call["operationId"], call["summary"]
    assert of_many == lone


def test_its_types_of_errors_are_those_of_the_frontend_and_of_the_worker(description: dict[str, Any]) -> None:
    told = description["components"]["schemas"]["Error"]["properties"]["error"]["properties"]["type"]["enum"]
    frontend = {found[0] for found in ENTRY.findall((FRONTEND / "ErrorType.java").read_text())}
    assert len(frontend) > 5
    assert told == sorted(frontend | {kind.label for kind in errors.ErrorType})


def test_every_status_of_a_call_is_told(description: dict[str, Any]) -> None:
    told = set(description["paths"]["/invocations"]["post"]["responses"])
    assert {str(kind.status) for kind in errors.ErrorType} <= told


def test_whoever_is_told_to_come_back_is_told_when() -> None:
    for kind in errors.ErrorType:
        assert ("Retry-After" in errors.ServiceError(kind, "a").headers) == (kind.status == 503)
    for _, status, worth_retrying in ENTRY.findall((FRONTEND / "ErrorType.java").read_text()):
        assert (worth_retrying == "true") == (status == "SERVICE_UNAVAILABLE")
