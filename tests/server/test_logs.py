"""What a running server says: one form for every line, one line for every call, nothing of any body, by the level that is set."""

from __future__ import annotations

import json
import re
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from models import scripts
from running import RunningServer, at_once

SCRIPT = """
    import logging, sys, time, warnings
    THREAD_SAFE = True
    log = logging.getLogger("mine")
    def model_fn(model_dir):
        print("loading\\nin two lines")
        log.info("loaded")
    def input_fn(data, content_type): return data if isinstance(data, str) else data.decode()
    def predict_fn(data, model):
        if data == "quiet": return "done"
        print("asked")
        print("trouble", file=sys.stderr)
        log.warning("odd")
        log.debug("details")
        warnings.warn("old ways")
        if data == "slow": time.sleep(0.4)
        if data == "fail": raise ValueError("no luck")
        return "done"
    """
MARGIN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARN|ERROR|FATAL) |  ")
NASTY = b'"} {"level":"FATAL"}\t\x1b[31m\xe9\xff = \\n'
RUDE = b'"}, {"level": "FATAL"\\\t\xe9\xff'
"""What HTTP lets a header hold."""


def entries(server: RunningServer) -> list[dict[str, Any]]:
    """Every line of the log, each of which must be an object with the four members."""
    found = [json.loads(line) for line in server.lines]
    assert all({"time", "level", "logger", "message"} <= entry.keys() for entry in found)
    return found


def calls(server: RunningServer) -> list[dict[str, Any]]:
    return [entry for entry in entries(server) if entry["logger"] == "byoc.access"]


def raw(server: RunningServer, *headers: bytes) -> bytes:
    """A call whose headers httpx would not send."""
    head = b"\r\n".join([b"POST /invocations HTTP/1.1", b"Host: x", b"Connection: close", b"Content-Length: 5", *headers])
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        try:
            connection.sendall(head + b"\r\n\r\nquiet")
            return b"".join(iter(lambda: connection.recv(65_536), b""))
        except OSError:
            return b""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scripts.save_script(tmp_path_factory.mktemp("talking") / "model", SCRIPT)


@pytest.fixture(scope="module")
def told(script: Path) -> RunningServer:
    """A server in JSON that was asked this and that, and stopped; its lines stay."""
    with RunningServer(script, {"BYOC_LOG_FORMAT": "json"}) as server:
        ids = {
            "traceparent": f"00-{'1' * 32}-{'2' * 16}-01",
            "X_Amzn_Trace_Id": "Root=1-2-3",
            "X_Amzn_SageMaker_Inference_Id": "i-7",
        }
        server.invoke('"secret words"', X_Request_Id="first", **ids)
        server.invoke("fail", "text/plain", X_Request_Id="second")
        for header in (b"X-Amzn-SageMaker-Inference-Id: ", b"X-Amzn-Trace-Id: ", b"X-Request-Id: ", b"traceparent: "):
            raw(server, header + NASTY)
            raw(server, header + RUDE)
        raw(server, b"X-Amzn-SageMaker-Inference-Id: " + b"long" * 4_000)
        raw(server, b"X-Amzn-SageMaker-Inference-Id: " + b"m" * 1_000_000)
        server.http.get("/metrics")
        server.http.get("/nowhere")
        time.sleep(0.5)
        assert server.stop() == 0
    return server


def test_every_line_is_an_object_whatever_was_sent(told: RunningServer) -> None:
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry["time"]) for entry in entries(told))
    assert {entry["level"] for entry in entries(told)} == {"INFO", "WARN", "ERROR"}
    assert all(line.isascii() for line in told.lines if '"byoc.access"' in line)


def test_a_call_is_one_line_with_all_that_names_it(told: RunningServer) -> None:
    (line,) = [entry for entry in calls(told) if entry["id"] == "first"]
    ms, queue_ms = line.pop("ms"), line.pop("queue_ms")
    assert 0 <= queue_ms <= ms < 10_000
    del line["time"]
    assert line == {
        "level": "INFO", "logger": "byoc.access", "message": "POST /invocations 200", "id": "first", "inference_id": "i-7",
        "traceparent": f"00-{'1' * 32}-{'2' * 16}-01", "amzn_trace_id": "Root=1-2-3", "method": "POST", "path": "/invocations",
        "status": 200, "records": 1, "bad_records": 0, "bytes_in": 14, "bytes_out": 6,
    }  # fmt: skip


def test_a_failed_call_has_its_type_there_and_its_traceback_under_the_same_id(told: RunningServer) -> None:
    mine = [entry for entry in entries(told) if entry.get("id") == "second"]
    (line,) = [entry for entry in mine if entry["logger"] == "byoc.access"]
    assert (line["level"], line["status"], line["error"], line["bad_records"]) == ("WARN", 500, "ModelError", 1)
    (trace,) = [entry for entry in mine if entry["level"] == "ERROR"]
    assert trace["message"].startswith("the script failed on request second\nTraceback (most recent call last):\n")
    assert trace["message"].endswith("ValueError: no luck")


def test_what_a_script_says_is_a_record_with_the_id_of_its_request(told: RunningServer) -> None:
    said = {(entry["level"], entry["logger"], entry["message"]) for entry in entries(told) if entry.get("id") == "first"}
    assert {("INFO", "stdout", "asked"), ("WARN", "stderr", "trouble"), ("WARN", "mine", "odd")} <= said
    assert any(logger == "py.warnings" and "UserWarning: old ways" in message for _, logger, message in said)
    at_start = [(entry["logger"], entry["message"]) for entry in entries(told) if "id" not in entry][:3]
    assert at_start == [("stdout", "loading"), ("stdout", "in two lines"), ("mine", "loaded")]


def test_headers_cannot_forge_a_line_or_fill_the_log(told: RunningServer) -> None:
    assert not any(entry["level"] == "FATAL" for entry in entries(told))
    assert [entry["error"] for entry in calls(told) if entry["status"] == 400] == ["BadRequest"] * 4, "control characters"
    assert not any("\\u001b" in line for line in told.lines)
    assert [entry for entry in calls(told) if str(entry.get("inference_id")).startswith('"}, {"level": "FATAL"')]
    long = [entry["inference_id"] for entry in calls(told) if str(entry.get("inference_id")).startswith("longlong")]
    assert [len(value) for value in long] == [259]
    refused = [entry for entry in calls(told) if entry["status"] == 431]
    assert len(refused) == 1
    assert refused[0]["error"] == "BadRequest"
    assert max(map(len, told.lines)) < 10_000


def test_no_body_is_in_the_log_and_no_probe(told: RunningServer) -> None:
    assert "secret words" not in told.output
    assert not any(entry["path"] in ("/ping", "/metrics") for entry in calls(told))
    assert [entry["status"] for entry in calls(told) if entry["path"].startswith("/nowhere")] == [404]


def test_a_stop_is_two_lines(told: RunningServer) -> None:
    stopping, stopped = [entry["message"] for entry in entries(told)][-2:]
    assert stopping == "stopping: 0 calls in flight, which have 25 s to be answered"
    assert re.fullmatch(r"stopped after \d+\.\d s: every call was answered, exit 0", stopped)


def test_text_begins_every_record_at_the_margin_and_a_slow_call_tells_its_stages(script: Path) -> None:
    with RunningServer(script, {"BYOC_SLOW_REQUEST_MS": "300"}) as server:
        at_once([lambda: server.invoke("quiet", "text/plain")] * 2)
        server.invoke("slow", "text/plain", X_Request_Id="the-slow-one")
        server.invoke("fail", "text/plain")
        time.sleep(0.3)
        server.stop()
    assert all(MARGIN.match(line) for line in server.lines), server.output
    assert "  ValueError: no luck" in server.lines
    (line,) = [line for line in server.lines if " slow id=the-slow-one " in line]
    assert " WARN POST /invocations 200 slow " in line
    times = {name: float(ms) for name, ms in re.findall(r" (\w+?)_ms=([\d.]+)", line)}
    assert times["forward"] >= 400
    stages = ("queue", "decode", "forward", "encode", "write", "other")
    assert sum(times[stage] for stage in stages) == pytest.approx(float(re.findall(r" ms=([\d.]+)", line)[0]), abs=2)
    assert server.output.count("forward_ms=") == 1


def test_a_level_keeps_what_is_below_it_out(script: Path) -> None:
    with RunningServer(script, {"SAGEMAKER_CONTAINER_LOG_LEVEL": "ERROR"}, wait=False) as server:
        server.wait_for_ping(200)
        server.invoke("quiet", "text/plain")
        server.invoke("fail", "text/plain", X_Request_Id="failed")
        time.sleep(0.3)
        server.stop()
    assert [line.split(" ")[1] for line in server.lines if not line.startswith("  ")] == ["ERROR"]
    assert "the script failed on request failed" in server.lines[0]


def test_debug_tells_the_details(script: Path) -> None:
    with RunningServer(script, {"SAGEMAKER_CONTAINER_LOG_LEVEL": "10"}) as server:
        server.invoke("noisy", "text/plain")
        time.sleep(0.3)
        assert any(" DEBUG details" in line for line in server.lines)
        assert any(" DEBUG listening on " in line for line in server.lines)


SECRET = "plumcake"
BODIES = {
    "good": f'{{"inputs": "{SECRET}"}}',
    "not JSON": f'{{"inputs": "{SECRET}',
    "a wrong type": f'{{"inputs": {{"{SECRET}": 1}}}}',
    "an unknown parameter": f'{{"inputs": "x", "parameters": {{"{SECRET}": "{SECRET}"}}}}',
}


@pytest.mark.parametrize("level", ["DEBUG", "INFO"])
def test_no_body_good_or_bad_is_in_the_log_at_any_level_and_a_start_is_a_few_lines(encoder: Path, level: str) -> None:
    with RunningServer(encoder, {"SAGEMAKER_CONTAINER_LOG_LEVEL": level}) as server:
        begun = len(server.lines)
        answers = {name: server.invoke(body) for name, body in BODIES.items()}
        assert server.ping() == 200
        server.stop()
    assert [answer.status_code for answer in answers.values()] == [200, 400, 400, 400]
    assert SECRET not in server.output
    assert "/ping" not in server.output
    assert sum(" POST /invocations " in line for line in server.lines) == len(BODIES)
    if level == "INFO":
        assert begun <= 4


def test_a_script_that_cannot_start_is_told_in_the_form_that_was_asked_for(tmp_path: Path) -> None:
    model = scripts.save_script(tmp_path / "model", "def model_fn(model_dir):\n    raise KeyError('weights')\n")
    server = RunningServer(model, {"BYOC_LOG_FORMAT": "json"}, wait=False)
    assert server.wait(120) == 3
    found = entries(server)
    traces = [entry["message"] for entry in found if "Traceback" in entry["message"]]
    assert traces  # one for each time that TorchServe tried
    assert all(trace.endswith("KeyError: 'weights'") for trace in traces)
    assert found[-1]["logger"] == "byoc.entrypoint"
    assert "model_fn of the script failed: KeyError: 'weights'" in found[-1]["message"]


def test_a_bad_setting_is_told_in_the_form_that_was_asked_for(script: Path) -> None:
    server = RunningServer(script, {"BYOC_LOG_FORMAT": "JSON", "SAGEMAKER_TS_BATCH_SIZE": "many"}, wait=False)
    assert server.wait(30) != 0
    (entry,) = entries(server)
    assert entry["level"] == "ERROR"
    assert "SAGEMAKER_TS_BATCH_SIZE='many' is not accepted" in entry["message"]
