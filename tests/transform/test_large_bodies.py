"""A transform job's largest bodies through the real server: every line in its place, sent whole or in chunks, in and out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from runner import BATCH

from running import RunningServer

MEGABYTE = 1_000_000
LINES = 500
LINE_BYTES = 200_000
LIMIT_S = 300.0


def document(bad: frozenset[int]) -> bytes:
    """100 MB of JSON Lines; each line says its number, and some lack their text."""
    lines = []
    for number in range(LINES):
        key = "wrong" if number in bad else "inputs"
        line = json.dumps({key: "kami " * ((LINE_BYTES - 60) // 5), "id": number})
        lines.append(line.encode().ljust(LINE_BYTES - 1))
    return b"\n".join(lines)


@pytest.fixture(scope="module", params=["100", "0"])
def roomy(tiny: Path, request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """A job's container that takes bodies of 100 MB, told so in megabytes or by 0, which means a stream."""
    with RunningServer(tiny, {**BATCH, "SAGEMAKER_MAX_PAYLOAD_IN_MB": request.param}) as running:
        yield running


@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunked", [False, True])
def test_a_hundred_megabytes_are_answered_line_by_line(roomy: RunningServer, chunked: bool) -> None:
    bad = frozenset({0, 77, LINES - 1})
    body = document(bad)
    assert 99 * MEGABYTE < len(body) <= 100 * MEGABYTE

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(body), MEGABYTE):
            yield body[start : start + MEGABYTE]

    answer = httpx.post(
        f"{roomy.base_url}/invocations",
        content=pieces() if chunked else body,
        headers={"Content-Type": "application/jsonlines"},
        timeout=LIMIT_S,
    )
    assert answer.status_code == 200, answer.text[:300]
    lines = [json.loads(line) for line in answer.text.split("\n")]
    assert [line.get("id", number) for number, line in enumerate(lines)] == list(range(LINES))
    assert {number for number, line in enumerate(lines) if "error" in line} == bad
    assert roomy.ping() == 200


@pytest.mark.timeout(600)
def test_many_short_lines_of_a_long_body_come_back_in_order(server: RunningServer) -> None:
    count = 60_000
    body = b"\n".join(b'{"inputs":"kami","id":%d}' % number for number in range(count))
    answer = httpx.post(
        f"{server.base_url}/invocations", content=body, headers={"Content-Type": "application/jsonlines"}, timeout=LIMIT_S
    )
    assert answer.status_code == 200, answer.text[:300]
    assert [json.loads(line)["id"] for line in answer.text.split("\n")] == list(range(count))
