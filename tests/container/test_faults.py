"""Faults injected into the real container: every call gets an answer of its own, and the container serves again or ends."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from containers import Container, docker, readable
from models.scripts import save_script

WORKER = "model_service_worker.py"
ONE = {"SAGEMAKER_MODEL_SERVER_WORKERS": "1"}
LINES = b"\n".join(b'{"inputs": "line %d: %b"}' % (number, b"words and more words " * 20) for number in range(20))
SCRIPT = """
import json, os, time
IDEMPOTENT = {idempotent}

def model_fn(model_dir):
    return []

def input_fn(body, content_type):
    return json.loads(body)

def output_fn(answer, accept):
    return json.dumps(answer)

def predict_fn(asked, model):
    marks = asked["inputs"].split()
    if "stuck" in marks:
        while True:
            time.sleep(1)
    if "hungry" in marks:
        model.append(bytearray(os.urandom(1 << 20) * 4096))
    if "cuda" in marks:
        import torch
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
    if "busy" in marks:
        time.sleep(3)
    return asked["inputs"].upper()
"""


@pytest.fixture(scope="session")
def script(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Path]:
    """A script whose faults the caller chooses; idempotent or not by its own word."""

    def save(idempotent: bool) -> Path:
        directory = tmp_path_factory.mktemp("script") / "model"
        return readable(save_script(directory, SCRIPT.replace("{idempotent}", str(idempotent))))

    return save


def worker(container: Container) -> int:
    """The worker's process id on this host."""
    ((pid, _),) = container.processes(WORKER)
    return pid


def seconds_to_healthy(container: Container, limit_s: float = 240.0) -> float:
    """From now until /ping says 200 and an answer follows."""
    began = time.monotonic()
    container.wait_for_ping(200, limit_s)
    return time.monotonic() - began


def in_flight(container: Container, count: int) -> None:
    """Return once so many calls are in flight."""
    deadline = time.monotonic() + 30
    while sum(value for name, value in container.metrics().items() if name.startswith("byoc_inflight_requests")) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def told(fault: str, answers: list[httpx.Response], seconds: float) -> None:
    """A line of the table of faults, for `pytest -rP`."""
    seen = sorted({f"{answer.status_code} {error(answer)}".strip() for answer in answers})
    print(f"| {fault} | {', '.join(seen)} | {seconds:.1f} | {len(answers)} answered |")


def error(answer: httpx.Response) -> str:
    """The type of an error, nothing for an answer."""
    return str(answer.json()["error"]["type"]) if answer.status_code >= 400 else ""


def test_calls_of_a_killed_worker_are_run_again(encoder: Path) -> None:
    with Container(encoder, {"SAGEMAKER_TS_RESPONSE_TIMEOUT": "240"}) as container, ThreadPoolExecutor(8) as pool:
        known = container.invoke(LINES, "application/jsonlines")
        calls: list[Future[httpx.Response]] = [pool.submit(container.invoke, LINES, "application/jsonlines") for _ in range(4)]
        calls += [pool.submit(container.invoke, {"inputs": "short"}) for _ in range(4)]
        in_flight(container, 4)
        os.kill(worker(container), signal.SIGKILL)
        container.wait_for_ping(503, 10)
        seconds = seconds_to_healthy(container)
        answers = [call.result() for call in calls]
        told("worker killed mid-batch", answers, seconds)
        assert {answer.status_code for answer in answers} == {200}
        for answer in answers[:4]:
            first, wanted = (json.loads(each.text.splitlines()[-1]) for each in (answer, known))
            assert first == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("loading_s", [0.0, 1.0])
def test_a_worker_killed_while_it_loads_first_ends_the_container_with_a_reason(encoder: Path, loading_s: float) -> None:
    with Container(encoder, wait=False) as container:
        deadline = time.monotonic() + 60
        while not container.processes(WORKER):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(loading_s)
        assert container.ping() != 200
        os.kill(worker(container), signal.SIGKILL)
        began = time.monotonic()
        assert container.wait(60) != 0
        print(f"| worker killed at the start | container ends | {time.monotonic() - began:.1f} | |")
        last = container.logs().splitlines()[-1]
    assert "the model could not be loaded: its worker was killed" in last


def test_a_script_that_may_not_be_run_twice_tells_its_callers(script: Callable[[bool], Path]) -> None:
    with Container(script(False), ONE) as container, ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(container.invoke, {"inputs": f"busy {number}"}) for number in range(3)]
        in_flight(container, 3)
        time.sleep(0.5)
        os.kill(worker(container), signal.SIGKILL)
        seconds = seconds_to_healthy(container)
        answers = [call.result() for call in calls]
        told("worker killed, script not idempotent", answers, seconds)
        lost = [answer for answer in answers if answer.status_code != 200]
        assert lost
        assert {(answer.status_code, error(answer)) for answer in lost} == {(503, "WorkerLost")}
        assert all(answer.headers["retry-after"] for answer in lost)


def test_a_call_that_is_stuck_gets_504_and_the_next_ones_are_answered(script: Callable[[bool], Path]) -> None:
    with Container(script(True), {**ONE, "SAGEMAKER_TS_RESPONSE_TIMEOUT": "5"}) as container, ThreadPoolExecutor(3) as pool:
        before = worker(container)
        stuck = pool.submit(container.invoke, {"inputs": "stuck"})
        in_flight(container, 1)
        time.sleep(0.5)
        waiting = pool.submit(container.invoke, {"inputs": "next"})
        answers = [stuck.result(), waiting.result()]
        seconds = seconds_to_healthy(container)
        told("model stuck for ever", answers, seconds)
        assert (answers[0].status_code, error(answers[0])) == (504, "Timeout")
        assert answers[1].status_code in (200, 503)
        assert container.invoke({"inputs": "after"}).json() == "AFTER"
        assert worker(container) != before


def test_what_eats_the_memory_of_the_container_is_refused_and_others_are_served(script: Callable[[bool], Path]) -> None:
    memory = ("--memory", "1g", "--memory-swap", "1g")
    with Container(script(True), ONE, options=memory) as container, ThreadPoolExecutor(4) as pool:
        hungry = pool.submit(container.invoke, {"inputs": "hungry"})
        others = [pool.submit(container.invoke, {"inputs": f"other {number}"}) for number in range(3)]
        refusal, *answers = (call.result() for call in (hungry, *others))
        seconds = seconds_to_healthy(container)
        told("out of memory in the cgroup", [refusal, *answers], seconds)
        assert refusal.status_code in (422, 503)
        assert {answer.status_code for answer in answers} <= {200, 503}
        assert container.invoke({"inputs": "after"}).json() == "AFTER"
        assert container.state()["Running"]


def test_an_error_of_cuda_ends_the_worker_and_not_the_service(script: Callable[[bool], Path]) -> None:
    with Container(script(True), ONE) as container:
        before = worker(container)
        answer = container.invoke({"inputs": "cuda"})
        seconds = seconds_to_healthy(container)
        told("error of CUDA (simulated)", [answer], seconds)
        assert (answer.status_code, error(answer)) == (422, "PoisonInput")
        assert container.invoke({"inputs": "after"}).json() == "AFTER"
        assert worker(container) != before


def test_without_java_the_container_ends_with_a_reason(encoder: Path) -> None:
    with Container(encoder) as container:
        ((java, _),) = container.processes("byoc.endpoints.Frontend")
        os.kill(java, signal.SIGKILL)
        assert container.wait(60) != 0
        last = container.logs().splitlines()[-1]
    assert "java was killed" in last


def test_a_full_tmp_stops_nobody_from_being_served(encoder: Path) -> None:
    options = ("--read-only", "--tmpfs", "/tmp:size=64m")
    with Container(encoder, options=options) as container:
        container.execute("sh", "-c", "dd if=/dev/zero of=/tmp/full bs=1M count=100 2>/dev/null; true")
        answers = [container.invoke({"inputs": f"text {number}"}) for number in range(3)]
        os.kill(worker(container), signal.SIGKILL)
        container.wait_for_ping(503, 10)
        seconds = seconds_to_healthy(container)
        answers += [container.invoke({"inputs": f"text {number}"}) for number in range(3)]
        told("/tmp full while serving, then the worker killed", answers, seconds)
        assert {answer.status_code for answer in answers} == {200}


def test_a_full_tmp_at_the_start_is_one_sentence(encoder: Path) -> None:
    with Container(encoder, options=("--read-only", "--tmpfs", "/tmp:size=4k"), wait=False) as container:
        assert container.wait(60) != 0
        last = container.logs().splitlines()[-1]
    assert "/tmp" in last
    assert "Traceback" not in last


def test_sigterm_twice_ends_it_at_once(script: Callable[[bool], Path]) -> None:
    with Container(script(True), ONE) as container, ThreadPoolExecutor(1) as pool:
        call = pool.submit(container.http.post, "/invocations", json={"inputs": "busy busy"})
        in_flight(container, 1)
        docker("kill", "--signal", "TERM", container.name)
        time.sleep(0.5)
        docker("kill", "--signal", "TERM", container.name)
        began = time.monotonic()
        assert container.wait(60) != 0
        assert time.monotonic() - began < 5
        assert isinstance(call.exception(), httpx.HTTPError) or call.result().status_code >= 500


def test_workers_that_cannot_start_again_end_the_container_with_a_reason(broken: Callable[[str], Path]) -> None:
    model = broken("model")
    with Container(model, {"BYOC_MAX_RESTARTS": "2"}) as container:
        weights = model / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:1000])
        os.kill(worker(container), signal.SIGKILL)
        began = time.monotonic()
        container.wait_for_ping(503, 10)
        assert container.wait(120) != 0
        print(f"| no worker starts again | container ends | {time.monotonic() - began:.1f} | |")
        last = container.logs().splitlines()[-1]
    assert "the model cannot be loaded" in last


@pytest.mark.parametrize("way", ["restart", "kill and start"])
def test_the_same_file_system_serves_again(encoder: Path, way: str) -> None:
    with Container(encoder) as container:
        if way == "restart":
            docker("restart", "--time", "30", container.name)
        else:
            docker("kill", "--signal", "KILL", container.name)
            docker("start", container.name)
        container.http.base_url = container._address()
        container.wait_until_ready()
        assert container.invoke({"inputs": "again"}).status_code == 200
        left = container.execute("sh", "-c", "ls -d /tmp/byoc-*").split()
        assert len(left) == 1
