"""The server answers as config/openapi.yaml says, whatever schemathesis makes of it. TEST_ALL=true: many more cases."""

from __future__ import annotations

import os
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import checks

from canary import Canary
from running import ROOT, RunningServer

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
schema = schemathesis.openapi.from_path(ROOT / "config" / "openapi.yaml")
schema.config.generation.modes = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]


@schemathesis.serializer(*BYTES)
def as_bytes(_: Any, value: Any) -> bytes:
    """Whatever was made for a body, as its bytes."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


@pytest.fixture(scope="module")
def canary(server: RunningServer) -> Any:
    """Somebody who is to notice nothing."""
    workers = server.workers()
    with Canary(server) as singing:
        yield singing
    singing.assert_well()
    assert server.workers() == workers


@schema.parametrize()
@settings(
    max_examples=CASES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
def test_every_answer_is_described(case: Any, server: RunningServer, canary: Canary) -> None:
    case.call_and_validate(base_url=server.base_url, checks=list(CHECKS), timeout=60)


@pytest.mark.parametrize("path", ["/ping", "/metrics", "/execution-parameters", "/invocations"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_a_method_that_is_not_described_is_405_with_the_one_that_is(server: RunningServer, path: str, method: str) -> None:
    described = next(iter(schema.raw_schema["paths"][path]))
    if method.lower() == described:
        return
    answer = server.http.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, described.upper())
