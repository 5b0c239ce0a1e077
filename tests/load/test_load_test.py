"""The load test as a program, against real HTTP servers that behave as told."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from load.http_server import Answer, Request, ScriptedServer, always

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
QUICK = ("--seconds", "0.6", "--warm-up", "0.2")
SLACK_MS = 60.0
"""How much later than promised a busy machine may be."""

pytestmark = pytest.mark.alone


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"inputs": f"text {number}"}) + "\n" for number in range(20)), "utf-8")
    return path


def start(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPTS / "load_test.py"), *arguments]
    return subprocess.Popen(
        command, cwd=folder, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def run(folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    process = start(folder, *arguments, **environment)
    printed, _ = process.communicate(timeout=120)
    return process.returncode, printed


def result(folder: Path) -> dict[str, Any]:
    """What was written, held against its schema."""
    found: dict[str, Any] = json.loads((folder / "load_test.json").read_text("utf-8"))
    jsonschema.validate(found, json.loads((SCRIPTS / "load_test.schema.json").read_text("utf-8")))
    return found


def test_a_sweep_measures_what_a_server_of_known_speed_does(tmp_path: Path, texts: Path) -> None:
    with ScriptedServer(always(seconds=0.05)) as server:
        code, printed = run(
            tmp_path, server.url, "--payload", str(texts), "--clients", "1,4", "--seconds", "1", "--warm-up", "0.2"
        )
    assert code == 0, printed
    one, four = result(tmp_path)["sweep"]
    for step in (one, four):
        assert step["requests_per_s"] == pytest.approx(step["clients"] / 0.05, rel=0.25)
        assert 50 <= step["latency_ms"]["p50"] <= 50 + SLACK_MS
        assert sum(bar["count"] for bar in step["histogram"]) == step["requests"]
    assert result(tmp_path)["max_requests_per_s"] == four["requests_per_s"]
    assert "Nothing gave out" in printed
    assert {request.body for request in server.invocations()} == set(texts.read_bytes().splitlines())


def test_calls_of_an_open_loop_are_timed_from_when_they_were_due(tmp_path: Path, texts: Path) -> None:
    """A server that stops for half a second makes all who arrive meanwhile wait, though it answers each at once afterwards."""
    stop_at: list[float] = []

    async def stalls(request: Request) -> Answer:
        if not request.path.endswith("/invocations"):
            return Answer(404)
        if request.number > 1 and not stop_at:
            stop_at.append(time.perf_counter() + 1.0)
        if stop_at and 0 <= time.perf_counter() - stop_at[0] < 0.5:
            time.sleep(0.5)  # the whole server stands still
        return Answer()

    with ScriptedServer(stalls) as server:
        code, printed = run(tmp_path, server.url, "--payload", str(texts), "--rate", "100", "--seconds", "2", "--warm-up", "0.2")
    assert code == 0, printed
    (step,) = result(tmp_path)["open_loop"]
    assert result(tmp_path)["sweep"] == []
    assert step["requests"] == pytest.approx(200, rel=0.3)
    assert step["latency_ms"]["p50"] < 100
    # A quarter of the calls arrive during the stop and wait for a quarter of a second on average.
    assert step["latency_ms"]["p90"] > 150
    assert step["latency_ms"]["max"] > 350


def test_rates_may_be_shares_of_what_the_sweep_reached(tmp_path: Path, texts: Path) -> None:
    with ScriptedServer(always(seconds=0.02)) as server:
        code, printed = run(tmp_path, server.url, "--payload", str(texts), "--clients", "4", "--rate", "50%", *QUICK)
    assert code == 0, printed
    (step,) = result(tmp_path)["open_loop"]
    assert step["rate"] == pytest.approx(0.5 * result(tmp_path)["sweep"][0]["requests_per_s"], rel=1e-3)


def test_errors_are_counted_by_kind_and_fail_the_run(tmp_path: Path, texts: Path) -> None:
    async def fails(request: Request) -> Answer:
        place = request.number % 5
        if request.number > 1 and place == 0:
            return Answer(503, b'{"error": {"message": "the queue is full"}}')
        if request.number > 1 and place == 1:
            return Answer(hang_up=True)
        if request.number > 1 and place == 2:
            await asyncio.sleep(0.5)
        return Answer(200, b"wrong" if place == 3 else b"right")

    with ScriptedServer(fails) as server:
        arguments = ("--clients", "5", "--timeout", "0.2", "--expect", "right", "--seconds", "1.5", "--warm-up", "0")
        code, printed = run(tmp_path, server.url, "--payload", str(texts), *arguments)
    assert code == 1
    (step,) = result(tmp_path)["sweep"]
    assert set(step["errors_by_kind"]) == {"status 503", "connection", "timeout", "wrong content"}
    assert sum(step["errors_by_kind"].values()) == step["errors"]
    assert "the queue is full" in step["error_samples"]["status 503"]
    assert "the queue is full" in printed
    assert "load_test: failed, errors: with 5 clients" in printed
    assert result(tmp_path)["max_requests_per_s"] == 0
    assert result(tmp_path)["saturation"].startswith("Errors came first")
    assert step["latency_ms"]["max"] >= 200, "a call that timed out counts with the time it waited"


def test_an_error_share_below_the_stated_one_passes(tmp_path: Path, texts: Path) -> None:
    async def fails(request: Request) -> Answer:
        await asyncio.sleep(0.005)
        return Answer(500 if request.number % 20 == 5 else 200)

    with ScriptedServer(fails) as server:
        arguments = (server.url, "--payload", str(texts), "--clients", "2", *QUICK)
        assert run(tmp_path, *arguments, "--max-error-share", "20%")[0] == 0
        assert run(tmp_path, *arguments, "--max-error-share", "0.1%")[0] == 1


@pytest.mark.parametrize(
    ("condition", "code"), [("p99>20ms", 1), ("p99>5s", 0), ("requests_per_s<1", 0), ("requests_per_s<1000", 1)]
)
def test_a_condition_decides_the_exit_code(tmp_path: Path, texts: Path, condition: str, code: int) -> None:
    with ScriptedServer(always(seconds=0.03)) as server:
        arguments = (server.url, "--payload", str(texts), "--clients", "2", *QUICK, "--fail-if", condition)
        found, printed = run(tmp_path, *arguments)
    assert found == code, printed
    assert (f"load_test: failed, {condition}: with 2 clients it was" in printed) == bool(code)
    assert bool(result(tmp_path)["failed_conditions"]) == bool(code)


def test_only_steps_within_the_target_count_for_the_best_rate(tmp_path: Path, texts: Path) -> None:
    """One thread of work at a time: twice the clients wait twice as long."""
    turn: list[asyncio.Lock] = []

    async def one_by_one(request: Request) -> Answer:
        turn.append(asyncio.Lock()) if not turn else None
        async with turn[0]:
            await asyncio.sleep(0.02)
        return Answer()

    with ScriptedServer(one_by_one) as server:
        arguments = ("--clients", "1,16", *QUICK, "--seconds", "1.5", "--target-p99", "200ms")
        code, printed = run(tmp_path, server.url, "--payload", str(texts), *arguments)
    assert code == 0, printed
    one, sixteen = result(tmp_path)["sweep"]
    assert sixteen["latency_ms"]["p50"] > 250
    assert result(tmp_path)["max_requests_per_s"] == one["requests_per_s"]
    assert "throughput stopped growing at 1 client" in printed


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path, texts: Path) -> None:
    with ScriptedServer(always(seconds=0.01)) as server:
        arguments = ("--clients", "2", "--seconds", "60", "--warm-up", "0")
        process = start(tmp_path, server.url, "--payload", str(texts), *arguments)
        while len(server.invocations()) < 50:
            assert process.poll() is None
            time.sleep(0.05)
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=30)
    assert time.monotonic() - asked < 10
    assert process.returncode == 130
    assert "stopped early" in printed
    assert "Traceback" not in printed
    found = result(tmp_path)
    assert found["stopped_early"]
    assert found["sweep"][0]["requests"] >= 40
    assert (tmp_path / "load_test.html").is_file()


def test_several_processes_share_the_clients_and_add_their_counts(tmp_path: Path, texts: Path) -> None:
    with ScriptedServer(always(seconds=0.02)) as server:
        arguments = ("--clients", "5", "--processes", "2", "--seconds", "1", "--warm-up", "0.2")
        code, printed = run(tmp_path, server.url, "--payload", str(texts), *arguments)
    assert code == 0, printed
    (step,) = result(tmp_path)["sweep"]
    assert step["requests_per_s"] == pytest.approx(250, rel=0.35)
    assert result(tmp_path)["generator"]["processes"] == 2
    assert result(tmp_path)["generator"]["ceiling_requests_per_s"] > step["requests_per_s"]


def test_an_endpoint_is_called_with_the_signature_that_aws_would_compute(tmp_path: Path, texts: Path) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}
    with ScriptedServer(always(seconds=0.01)) as server:
        place = {"AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": server.url}
        arguments = ("--clients", "1", *QUICK, "--region", "eu-west-1", "--variant", "blue", "--accept", "text/csv")
        code, printed = run(tmp_path, "my-endpoint", "--payload", str(texts), *arguments, **keys, **place)
    assert code == 0, printed
    assert len(server.requests) == len(server.invocations()), "an endpoint has no /metrics"
    for request in server.invocations()[:5] + server.invocations()[-5:]:
        assert request.path == "/endpoints/my-endpoint/invocations"
        assert request.headers["x-amzn-sagemaker-target-variant"] == "blue"
        assert request.headers["accept"] == "text/csv"
        assert request.headers["authorization"] == signed_again(request, server.url)


def signed_again(request: Request, url: str) -> str:
    """The Authorization header that the receiving side computes from what it got and the secret."""
    stated = request.headers["authorization"]
    names = stated.split("SignedHeaders=")[1].split(",")[0].split(";")
    assert {"content-type", "host", "x-amz-date", "x-amzn-sagemaker-target-variant"} <= set(names)
    headers = {name: request.headers[name] for name in names}
    again = AWSRequest("POST", url + request.path, data=request.body, headers=headers)
    again.context["timestamp"] = request.headers["x-amz-date"]
    auth = SigV4Auth(Credentials("AKIDEXAMPLE", "secret"), "sagemaker", "eu-west-1")
    signature = auth.signature(auth.string_to_sign(again, auth.canonical_request(again)), again)
    return stated.split("Signature=")[0] + f"Signature={signature}"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("http://127.0.0.1:1", "--payload", "TEXTS"), "http://127.0.0.1:1/invocations does not answer"),
        (("ftp://host", "--payload", "TEXTS"), "'ftp://host' is no address to call"),
        (("endpoint", "--payload", "TEXTS"), "the region of endpoint endpoint is not known"),
        (("http://127.0.0.1:1", "--payload", "missing.jsonl"), "missing.jsonl cannot be read: No such file or directory"),
        (("http://127.0.0.1:1", "--payload", "TEXTS", "--fail-if", "p98>1ms"), "'p98>1ms' is no condition"),
        (("http://127.0.0.1:1", "--payload", "TEXTS", "--clients", "1", "--processes", "2"), "cannot be split over 2 processes"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(tmp_path: Path, texts: Path, arguments: Sequence[str], sentence: str) -> None:
    unset = {"AWS_CONFIG_FILE": os.devnull, "AWS_EC2_METADATA_DISABLED": "true", "AWS_DEFAULT_REGION": ""}
    code, printed = run(tmp_path, *(str(texts) if word == "TEXTS" else word for word in arguments), **unset)
    assert code == 1
    assert printed.startswith("load_test: ")
    assert sentence in printed
    assert len(printed.strip().splitlines()) == 1
    assert not (tmp_path / "load_test.json").exists()


def test_bodies_that_are_refused_are_said_before_anything_is_measured(tmp_path: Path, texts: Path) -> None:
    with ScriptedServer(always(415, b'{"error": {"message": "send JSON"}}')) as server:
        code, printed = run(tmp_path, server.url, "--payload", str(texts))
    assert code == 1
    assert "refuses payload texts.jsonl:1 with 415" in printed
    assert "send JSON" in printed
    assert len(server.invocations()) == 3
