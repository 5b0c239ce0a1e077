"""How a container ends: orderly, with every answer given, or at once with a sentence that says why."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from containers import Container, docker

LONG_BODY = b"\n".join(b'{"inputs": "line %d: %b"}' % (number, b"words and more words " * 20) for number in range(250))


def test_sigterm_loses_no_request_in_flight(encoder: Path) -> None:
    with Container(encoder) as container:
        with ThreadPoolExecutor(3) as pool:
            slow = [pool.submit(container.invoke, LONG_BODY, "application/jsonlines") for _ in range(3)]
            time.sleep(1.5)
            docker("kill", "--signal", "TERM", container.name)
            time.sleep(0.5)
            refused = container.invoke({"inputs": "too late"})
            answers = [each.result() for each in slow]
        assert [answer.status_code for answer in answers] == [200, 200, 200]
        assert all(len(answer.content.splitlines()) == 250 for answer in answers)
        assert refused.status_code == 503
        assert refused.headers["Retry-After"]
        assert container.wait() == 0


def test_an_idle_container_stops_at_once(encoder: Path) -> None:
    with Container(encoder) as container:
        started = time.monotonic()
        docker("stop", "--time", "30", container.name)
        assert time.monotonic() - started < 10
        assert container.state()["ExitCode"] == 0


def test_sigterm_during_the_start_ends_it(encoder: Path) -> None:
    with Container(encoder, wait=False) as container:
        time.sleep(1.0)
        docker("stop", "--time", "30", container.name)
        assert container.state()["ExitCode"] == 0


def test_a_killed_worker_shows_in_ping_and_is_replaced(encoder: Path) -> None:
    with Container(encoder) as container:
        before = container.invoke({"inputs": "before"}).json()
        ((worker, _),) = container.processes("model_service_worker.py")
        os.kill(worker, signal.SIGKILL)
        container.wait_for_ping(503, 10)
        refused = container.invoke({"inputs": "meanwhile"})
        assert refused.status_code == 503
        assert refused.headers["Retry-After"]
        container.wait_for_ping(200, 60)
        assert container.invoke({"inputs": "before"}).json() == pytest.approx(before, abs=1e-5)


def truncate(path: Path) -> None:
    """Cut a file in the middle."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGE: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "wrong JSON": (lambda model: (model / "config.json").write_text("{'a': 1}") and None, ("config.json", "not valid JSON")),
    "no weights": (lambda model: (model / "model.safetensors").unlink(), ("no weights",)),
    "half the weights": (lambda model: truncate(model / "model.safetensors"), ("model.safetensors", "damaged or incomplete")),
    "no tokenizer": (
        lambda model: [path.unlink() for path in (*model.glob("tokenizer*"), *model.glob("vocab*"))] and None,
        ("no tokenizer",),
    ),
    "nothing at all": (
        lambda model: [path.unlink() for path in model.rglob("*") if path.is_file()] and None,
        ("holds no model",),
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_model_that_cannot_be_loaded_ends_the_start_with_a_sentence(broken: Callable[[str], Path], damage: str) -> None:
    harm, words = DAMAGE[damage]
    model = broken("model")
    harm(model)
    with Container(model, wait=False) as container:
        assert container.wait() != 0
        logs = container.logs()
    for word in words:
        assert word in logs
    assert "Traceback" not in logs


def test_a_truncated_archive_ends_the_start_with_its_name(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "model.mar").write_bytes(b"PK\x03\x04 and then nothing of use")
    (tmp_path / "model.mar").chmod(0o644)
    with Container(tmp_path, wait=False) as container:
        assert container.wait() != 0
        assert "model.mar" in container.logs().splitlines()[-1]


def test_too_little_memory_is_named(encoder: Path) -> None:
    with Container(encoder, options=("--memory", "250m", "--memory-swap", "250m"), wait=False) as container:
        assert container.wait(120) != 0
        last = container.logs().splitlines()[-3:]
    assert any("memory" in line and "250" in line for line in last)


def test_ping_answers_quickly_while_the_model_is_busy(encoder: Path) -> None:
    with Container(encoder) as container:
        busy = threading.Thread(target=container.invoke, args=(LONG_BODY, "application/jsonlines"))
        busy.start()
        slowest = 0.0
        while busy.is_alive():
            started = time.monotonic()
            assert container.ping() == 200
            slowest = max(slowest, time.monotonic() - started)
        assert slowest < 2.0
