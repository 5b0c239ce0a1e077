"""How the server starts, refuses to start, says what is in force, and stops."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from running import RunningServer, descendants, free_port, listening_ports

LONG_BODY = b"\n".join(b'{"inputs": "line %d: %b"}' % (number, b"words and more words " * 20) for number in range(300))
BAD_SETTINGS: dict[str, tuple[Mapping[str, str], tuple[str, ...]]] = {
    "text for a number": ({"SAGEMAKER_TS_BATCH_SIZE": "many"}, ("SAGEMAKER_TS_BATCH_SIZE", "many", "whole number")),
    "a port range that is too small": ({"SAGEMAKER_SAFE_PORT_RANGE": "9000-9000"}, ("SAGEMAKER_SAFE_PORT_RANGE", "9000-9000")),
    "a port range the wrong way round": ({"SAGEMAKER_SAFE_PORT_RANGE": "9100-9000"}, ("SAGEMAKER_SAFE_PORT_RANGE", "low-high")),
    "a setting that does not exist": ({"BYOC_TOKEN_BUGDET": "512"}, ("BYOC_TOKEN_BUGDET", "BYOC_TOKEN_BUDGET")),
    "more workers at least than at most": (
        {"SAGEMAKER_TS_MIN_WORKERS": "3", "SAGEMAKER_TS_MAX_WORKERS": "2"},
        ("SAGEMAKER_TS_MIN_WORKERS", "SAGEMAKER_TS_MAX_WORKERS"),
    ),
    "a hub id for a path": ({"BYOC_MODEL_DIR": "", "HF_MODEL_ID": "org/model"}, ("HF_MODEL_ID", "absolute path")),
    "a task that is not there": ({"HF_TASK": "telepathy"}, ("HF_TASK", "telepathy", "text-classification")),
    "an answer type that nobody writes": (
        {"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "application/pdf"},
        ("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", "application/pdf", "application/json"),
    ),
}


@pytest.mark.parametrize("mistake", BAD_SETTINGS)
def test_a_bad_setting_stops_the_start_with_one_sentence(encoder: Path, mistake: str) -> None:
    settings, words = BAD_SETTINGS[mistake]
    with RunningServer(encoder, settings, wait=False) as server:
        assert server.wait(60) not in (0, None)
    for word in words:
        assert word in server.lines[-1]
    assert "Traceback" not in server.output or mistake in ("a task that is not there", "an answer type that nobody writes")


def test_a_missing_model_directory_is_named(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "nowhere", wait=False) as server:
        assert server.wait(30) != 0
    assert str(tmp_path / "nowhere") in server.lines[-1]


def test_the_start_line_tells_every_setting_and_who_set_it(encoder: Path) -> None:
    settings = {"SAGEMAKER_TS_BATCH_SIZE": "5", "BYOC_TOKEN_BUDGET": "777", "SAGEMAKER_CONTAINER_LOG_LEVEL": "20"}
    with RunningServer(encoder, settings) as server:
        server.invoke({"inputs": "one"})
    (line,) = (line for line in server.lines if "ready in" in line)
    assert "batch_size=5 (SAGEMAKER_TS_BATCH_SIZE)" in line
    assert "token_budget=777 (BYOC_TOKEN_BUDGET)" in line
    assert "task=sentence-embeddings" in line


def test_an_unknown_torchserve_variable_is_a_warning_only(encoder: Path) -> None:
    with RunningServer(encoder, {"SAGEMAKER_TS_BATCHSIZE": "5"}) as server:
        assert any("WARN" in line and "SAGEMAKER_TS_BATCHSIZE" in line for line in server.lines)


def test_a_quiet_start_and_stop_take_a_few_lines(encoder: Path) -> None:
    with RunningServer(encoder) as server:
        time.sleep(1.0)
        assert server.stop() == 0
    assert len(server.lines) <= 12, server.output
    assert "Traceback" not in server.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_calls_in_flight_finish_and_refuses_new_ones(encoder: Path, number: signal.Signals) -> None:
    with RunningServer(encoder) as server, ThreadPoolExecutor(2) as pool:
        slow = [pool.submit(server.invoke, LONG_BODY, "application/jsonlines") for _ in range(2)]
        time.sleep(1.0)
        server.signal(number)
        time.sleep(0.3)
        assert server.ping() == 503
        refused = server.invoke({"inputs": "too late"})
        assert refused.status_code == 503
        assert refused.json()["error"]["type"] == "Stopping"
        assert [answer.result().status_code for answer in slow] == [200, 200]
        assert server.wait() == 0


def test_a_second_signal_stops_at_once(encoder: Path) -> None:
    with RunningServer(encoder) as server, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(server.invoke, b"\n".join([LONG_BODY] * 3), "application/jsonlines")
        time.sleep(1.0)
        server.signal(signal.SIGTERM)
        time.sleep(0.5)
        server.signal(signal.SIGTERM)
        assert server.wait(10) != 0
        assert slow.exception() is not None


def test_no_process_is_left_behind(encoder: Path) -> None:
    with RunningServer(encoder) as server:
        workers = server.workers()
        assert len(workers) == 1
        assert server.stop() == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def test_a_killed_worker_shows_in_ping_and_is_replaced(encoder: Path) -> None:
    with RunningServer(encoder) as server:
        (worker,) = server.workers()
        os.kill(worker, signal.SIGKILL)
        server.wait_for_ping(503, 10)
        assert server.invoke({"inputs": "meanwhile"}).status_code == 503
        server.wait_for_ping(200, 60)
        assert server.invoke({"inputs": "again"}).status_code == 200


def test_two_servers_live_side_by_side(encoder: Path) -> None:
    with RunningServer(encoder, wait=False) as one, RunningServer(encoder, wait=False) as other:
        one.wait_until_ready()
        other.wait_until_ready()
        assert one.invoke({"inputs": "x"}).json() == other.invoke({"inputs": "x"}).json()


def test_a_busy_port_is_named(encoder: Path, server: RunningServer) -> None:
    with RunningServer(encoder, {"SAGEMAKER_BIND_TO_PORT": str(server.port)}, wait=False) as second:
        assert second.wait(30) != 0
    assert str(server.port) in second.lines[-1]


def test_all_ports_come_from_the_safe_range(encoder: Path) -> None:
    low = free_port() // 100 * 100
    settings = {"SAGEMAKER_BIND_TO_PORT": str(low), "SAGEMAKER_SAFE_PORT_RANGE": f"{low}-{low + 40}"}
    with RunningServer(encoder, settings) as server:
        assert server.invoke({"inputs": "x"}).status_code == 200
        ports = listening_ports({pid for pid, _ in descendants(server.pid)} | {server.pid})
    assert low in ports
    assert all(low <= port <= low + 40 for port in ports)


def test_json_logs_are_one_object_per_line(encoder: Path) -> None:
    with RunningServer(encoder, {"BYOC_LOG_FORMAT": "json"}) as server:
        server.invoke({"inputs": "secret words"})
        time.sleep(0.5)
        server.stop()
    for line in server.lines:
        assert isinstance(json.loads(line), dict), line
    assert "secret words" not in server.output


def test_a_transform_job_is_summed_up_in_one_line_at_its_end(encoder: Path) -> None:
    with RunningServer(encoder, {"SAGEMAKER_BATCH": "true"}) as server:
        answer = server.invoke('"one"\n{"wrong": 1}\n"' + "long " * 1_000 + '"', "application/jsonlines")
        assert answer.status_code == 200
        server.stop()
    (line,) = [line for line in server.lines if " job: " in line]
    rates = r"\([\d,]+ records/s, [\d,]+ tokens/s\)"
    assert re.search(rf"job: 3 records in \d+ s {rates}, 1 of them failed, 1 cut to the length", line)
