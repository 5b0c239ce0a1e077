"""The server answers as config/openapi.yaml says, whatever schemathesis makes of it. TEST_ALL=true: many more cases."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import checks

from canary import Canary
from running import ROOT, RunningServer
from shelf import MULTI_MODEL, NO_MODEL, Shelf

CASES = 1_000 if os.environ.get("TEST_ALL") else 40
BYTES = ("application/jsonlines", "application/x-jsonlines", "application/jsonl", "application/x-ndjson", "application/csv",
         "application/x-npy", "application/x-npz", "image/jpeg", "image/png", "image/webp")  # fmt: skip
CHECKS = (
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.not_a_server_error,
)
LOADED = "encoder"
MODELS = "^/models"
schema = schemathesis.openapi.from_path(ROOT / "config" / "openapi.yaml")
schema.config.generation.modes = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]


@schemathesis.serializer(*BYTES)
def as_bytes(_: Any, value: Any) -> bytes:
    """Whatever was made for a body, as its bytes."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


@pytest.fixture(scope="module")
def canary(server: RunningServer) -> Iterator[None]:
    """Somebody who is to notice nothing."""
    with undisturbed(server):
        yield


@pytest.fixture(scope="module")
def many(encoder: Path) -> Iterator[RunningServer]:
    """A multi-model server with one model, whose caller is to notice nothing of what others load and unload."""
    with RunningServer(NO_MODEL, MULTI_MODEL) as running:
        assert Shelf(running).load(LOADED, encoder).status_code == 200
        with undisturbed(running, f"/models/{LOADED}/invoke"):
            yield running


@contextmanager
def undisturbed(server: RunningServer, path: str = "/invocations") -> Iterator[None]:
    """Fails where a neighbour's answer was wrong or a worker ended."""
    workers = server.workers()
    with Canary(server, path) as singing:
        yield
    singing.assert_well()
    assert server.workers() == workers


many_cases = settings(
    max_examples=CASES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)


@schema.exclude(path_regex=MODELS).parametrize()
@many_cases
def test_every_answer_is_described(case: Any, server: RunningServer, canary: None) -> None:
    case.call_and_validate(base_url=server.base_url, checks=list(CHECKS), timeout=60)


@schema.exclude(path="/invocations").parametrize()
@many_cases
def test_every_answer_of_an_endpoint_of_many_models_is_described(case: Any, many: RunningServer) -> None:
    case.call_and_validate(base_url=many.base_url, checks=list(CHECKS), timeout=60)


@schema.include(path="/models/{model_name}/invoke").parametrize()
@many_cases
def test_every_answer_of_a_loaded_model_is_described(case: Any, many: RunningServer) -> None:
    case.path_parameters["model_name"] = LOADED
    case.call_and_validate(base_url=many.base_url, checks=list(CHECKS), timeout=60)


@pytest.mark.parametrize("path", ["/ping", "/metrics", "/execution-parameters", "/invocations"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_a_method_that_is_not_described_is_405_with_the_one_that_is(server: RunningServer, path: str, method: str) -> None:
    described = next(iter(schema.raw_schema["paths"][path]))
    if method.lower() == described:
        return
    answer = server.http.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, described.upper())
