"""Faults injected into the real container: every call gets an answer of its own, and the container serves again or ends."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from containers import HARDENED, NO_RIGHTS, Container, docker, readable
from incidents import JSON_LINES, Call, Incident, Told, ended, known, lets_nobody_down, wait_for_calls
from models.scripts import save_script

ONE = {"SAGEMAKER_MODEL_SERVER_WORKERS": "1"}
LINES = b"\n".join(b'{"inputs": "line %d: %b"}' % (number, b"words and more words " * 20) for number in range(20))
TEXT = {"inputs": "a quiet kettle"}
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


def shout(text: str) -> Call:
    """A call to the script."""
    return Call({"inputs": text}, text.upper())


def test_calls_of_a_killed_worker_are_run_again(encoder: Path, told: Told) -> None:
    with Container(encoder, {"SAGEMAKER_TS_RESPONSE_TIMEOUT": "240"}) as container:
        lines, short = known(container, LINES, JSON_LINES), known(container, TEXT)
        with Incident(container, "worker killed mid-batch", short) as incident:
            for call in [lines] * 4 + [short] * 4:
                incident.call(call)
            wait_for_calls(container, 4)
            victim = container.worker()
            incident.begin()
            os.kill(victim, signal.SIGKILL)
            assert lets_nobody_down(incident, told).seen == "8 × 200"


def test_a_worker_that_is_killed_again_and_again_is_replaced_each_time(encoder: Path, told: Told) -> None:
    with Container(encoder) as container:
        probe = known(container, TEXT)
        print(f"before the first death {container.memory() >> 20} MiB")
        for which in ("first", "second", "third", "fourth", "fifth", "sixth"):
            with Incident(container, f"idle worker killed, {which} time", probe) as incident:
                victim = container.worker()
                incident.begin()
                os.kill(victim, signal.SIGKILL)
                lets_nobody_down(incident, told)
                assert container.worker() != victim
            print(f"{which} death: {incident.afterwards}; {container.memory() >> 20} MiB")


def test_a_script_that_may_not_be_run_twice_tells_its_callers(script: Callable[[bool], Path], told: Told) -> None:
    with (
        Container(script(False), ONE) as container,
        Incident(container, "worker killed mid-batch, script not idempotent", shout("probe")) as incident,
    ):
        for number in range(3):
            incident.call(shout(f"busy {number}"))
        wait_for_calls(container, 3)
        time.sleep(0.5)
        victim = container.worker()
        incident.begin()
        os.kill(victim, signal.SIGKILL)
        seen = lets_nobody_down(incident, told).seen
    assert "503 WorkerLost" in seen
    assert set(re.findall(r"× ([^,]+)", seen)) <= {"200", "503 WorkerLost"}


def test_a_call_that_is_stuck_gets_504_and_the_next_ones_are_answered(script: Callable[[bool], Path], told: Told) -> None:
    limit_s = 5
    with (
        Container(script(True), {**ONE, "SAGEMAKER_TS_RESPONSE_TIMEOUT": str(limit_s)}) as container,
        Incident(container, f"model stuck for ever (response timeout {limit_s} s)", shout("probe")) as incident,
    ):
        before = container.worker()
        stuck = incident.call(shout("stuck"))
        wait_for_calls(container, 1)
        incident.begin()
        incident.call(shout("next"))
        seen = lets_nobody_down(incident, told).seen
        assert (stuck.result().status_code, stuck.result().json()["error"]["type"]) == (504, "Timeout")
        assert seen in ("1 × 200, 1 × 504 Timeout", "1 × 503 WorkerLost, 1 × 504 Timeout")
        assert container.worker() != before


def test_what_eats_the_memory_of_the_container_is_refused_and_others_are_served(
    script: Callable[[bool], Path], told: Told
) -> None:
    memory = ("--memory", "1g", "--memory-swap", "1g")
    with (
        Container(script(True), ONE, options=memory) as container,
        Incident(container, "out of memory in the cgroup", shout("probe")) as incident,
    ):
        incident.begin()
        hungry = incident.call(shout("hungry"))
        for number in range(3):
            incident.call(shout(f"other {number}"))
        row = lets_nobody_down(incident, told)
        assert hungry.result().status_code in (422, 503)
        assert "200" in row.seen
        assert container.state()["Running"]


def test_an_error_of_cuda_ends_the_worker_and_not_the_service(script: Callable[[bool], Path], told: Told) -> None:
    with (
        Container(script(True), ONE) as container,
        Incident(container, "error of CUDA (simulated)", shout("probe")) as incident,
    ):
        before = container.worker()
        incident.begin()
        incident.call(shout("cuda"))
        assert lets_nobody_down(incident, told).seen == "1 × 422 PoisonInput"
        assert container.worker() != before


def test_a_full_tmp_stops_nobody_from_being_served(encoder: Path, told: Told) -> None:
    with Container(encoder, options=("--tmpfs", "/tmp:size=64m")) as container:
        text = known(container, TEXT)
        with Incident(container, "/tmp full while serving, then the worker killed", text) as incident:
            container.execute("sh", "-c", "dd if=/dev/zero of=/tmp/full bs=1M count=100 2>/dev/null; true")
            for _ in range(3):
                incident.call(text).result()
            victim = container.worker()
            incident.begin()
            os.kill(victim, signal.SIGKILL)
            incident.served.result()
            for _ in range(3):
                incident.call(text)
            assert lets_nobody_down(incident, told).seen == "6 × 200"


def test_sigterm_twice_ends_it_at_once(script: Callable[[bool], Path], told: Told) -> None:
    with (
        Container(script(True), ONE) as container,
        Incident(container, "SIGTERM twice, a call in flight", shout("probe")) as incident,
    ):
        incident.call(shout("busy busy"))
        wait_for_calls(container, 1)
        docker("kill", "--signal", "TERM", container.name)
        time.sleep(0.5)
        incident.begin()
        docker("kill", "--signal", "TERM", container.name)
        code, seconds = ended(incident, told)
        assert code != 0
        assert seconds < 5


# docker empties a tmpfs at a restart; what the last start left in /tmp stays where the file system is writable.
@pytest.mark.parametrize(("file_system", "locks"), [("read-only", HARDENED), ("writable", NO_RIGHTS)])
@pytest.mark.parametrize("way", ["restart", "kill and start"])
def test_the_same_file_system_serves_again(encoder: Path, told: Told, way: str, file_system: str, locks: Sequence[str]) -> None:
    with Container(encoder, locks=locks) as container:
        text = known(container, TEXT)
        with Incident(container, f"docker {way}, {file_system} file system", text) as incident:
            incident.begin()
            if way == "restart":
                docker("restart", "--time", "30", container.name)
            else:
                docker("kill", "--signal", "KILL", container.name)
                docker("start", container.name)
            container.http.base_url = container._address()
            container.wait_until_ready()
            incident.call(text)
            assert lets_nobody_down(incident, told).seen == "1 × 200"
        left = container.execute("sh", "-c", "ls -d /tmp/byoc-*").split()
        assert len(left) == 1
