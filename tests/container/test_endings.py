"""How a container ends: orderly, with every answer given, or at once with a sentence that says why."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from containers import Container, docker
from incidents import JSON_LINES, SAID_SO_LIMIT_S, Call, Incident, Told, ended, known, wait_for_calls

LONG_BODY = b"\n".join(b'{"inputs": "line %d: %b"}' % (number, b"words and more words " * 20) for number in range(100))
TEXT = {"inputs": "a quiet kettle"}
NOTHING = Call(TEXT, None)
"""A call that nobody expects to be answered."""


def last_words(incident: Incident, container: Container, told: Told) -> str:
    """Wait for an end that is no success; the container's last line."""
    code, _ = ended(incident, told)
    assert code != 0
    return container.logs().splitlines()[-1]


def test_sigterm_loses_no_request_in_flight(encoder: Path, told: Told) -> None:
    with Container(encoder) as container:
        long = known(container, LONG_BODY, JSON_LINES)
        with Incident(container, "SIGTERM while busy", NOTHING) as incident:
            for _ in range(3):
                incident.call(long)
            wait_for_calls(container, 3)
            incident.begin()
            docker("kill", "--signal", "TERM", container.name)
            container.wait_for_ping(503, SAID_SO_LIMIT_S)
            incident.call(NOTHING)
            code, _ = ended(incident, told)
        row = incident.row()
    assert (row.seen, row.lost, code) == ("3 × 200, 1 × 503 Stopping", 0, 0)


def test_an_idle_container_stops_at_once(encoder: Path, told: Told) -> None:
    with Container(encoder) as container, Incident(container, "SIGTERM while idle", NOTHING) as incident:
        incident.begin()
        docker("stop", "--time", "30", container.name)
        code, seconds = ended(incident, told)
    assert code == 0
    assert seconds < 10


def test_sigterm_during_the_start_ends_it(encoder: Path, told: Told) -> None:
    with Container(encoder, wait=False) as container, Incident(container, "SIGTERM during the start", NOTHING) as incident:
        time.sleep(1.0)
        incident.begin()
        docker("stop", "--time", "30", container.name)
        code, _ = ended(incident, told)
    assert code == 0


def test_a_killed_worker_shows_in_ping_and_calls_are_refused_until_it_is_replaced(encoder: Path) -> None:
    with Container(encoder) as container:
        os.kill(container.worker(), signal.SIGKILL)
        container.wait_for_ping(503, 10)
        refused = container.invoke(TEXT)
        assert refused.status_code == 503
        assert refused.headers["Retry-After"]


def test_without_java_the_container_ends_with_a_reason(encoder: Path, told: Told) -> None:
    with Container(encoder) as container:
        long = known(container, LONG_BODY, JSON_LINES)
        with Incident(container, "java killed, a call in flight", NOTHING) as incident:
            incident.call(long)
            wait_for_calls(container, 1)
            ((java, _),) = container.processes("byoc.endpoints.Frontend")
            incident.begin()
            os.kill(java, signal.SIGKILL)
            assert "java was killed" in last_words(incident, container, told)


@pytest.mark.parametrize("loading_s", [0.0, 1.0])
def test_a_worker_killed_while_it_loads_first_ends_the_container_with_a_reason(
    encoder: Path, told: Told, loading_s: float
) -> None:
    with Container(encoder, wait=False) as container:
        victim = container.worker()
        time.sleep(loading_s)
        assert container.ping() != 200
        with Incident(container, f"worker killed {loading_s:g} s after its first start", NOTHING) as incident:
            incident.begin()
            os.kill(victim, signal.SIGKILL)
            last = last_words(incident, container, told)
    assert "the model could not be loaded: its worker was killed" in last


def test_workers_that_cannot_start_again_end_the_container_with_a_reason(broken: Callable[[str], Path], told: Told) -> None:
    model = broken("model")
    with (
        Container(model, {"BYOC_MAX_RESTARTS": "2"}) as container,
        Incident(container, "worker killed, none can start again", NOTHING) as incident,
    ):
        weights = model / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:1000])
        victim = container.worker()
        incident.begin()
        os.kill(victim, signal.SIGKILL)
        assert "the model cannot be loaded" in last_words(incident, container, told)
        assert incident.said_so is not None
        assert incident.said_so < SAID_SO_LIMIT_S


def test_a_full_tmp_at_the_start_is_one_sentence(encoder: Path, told: Told) -> None:
    with (
        Container(encoder, options=("--tmpfs", "/tmp:size=4k"), wait=False) as container,
        Incident(container, "/tmp full at the start", NOTHING) as incident,
    ):
        incident.begin()
        last = last_words(incident, container, told)
    assert "/tmp" in last
    assert "Traceback" not in last


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


def test_too_little_memory_is_named(encoder: Path, told: Told) -> None:
    with (
        Container(encoder, options=("--memory", "250m", "--memory-swap", "250m"), wait=False) as container,
        Incident(container, "too little memory to start", NOTHING) as incident,
    ):
        incident.begin()
        last_words(incident, container, told)
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
