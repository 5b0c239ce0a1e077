"""The image under the conditions that users run it in: other users, no root file system, no network, little memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from containers import HARDENED, NO_DISK, UNLOCKED, WORKER, Container

CONDITIONS = {
    "as any user": ("--user", "12345:0"),
    "read-only": NO_DISK,
    "hardened, as root": (*HARDENED, "--user", "0:0"),
    "hardened, small": (*HARDENED, "--memory", "1500m", "--cpus", "1"),
}
ASK_INSIDE = """
import json, urllib.request
request = urllib.request.Request("http://127.0.0.1:8080/invocations", json.dumps({"inputs": "a quiet kettle"}).encode(),
                                 {"Content-Type": "application/json"})
print(urllib.request.urlopen(request, timeout=30).read().decode())
"""


@pytest.fixture(scope="module")
def ordinary(encoder: Path) -> Iterator[Container]:
    """A container of no condition: it starts as root."""
    with Container(encoder, locks=UNLOCKED) as container:
        yield container


@pytest.fixture(scope="module")
def expected(ordinary: Container) -> list[float]:
    """Its answer."""
    vector: list[float] = ordinary.invoke({"inputs": "a quiet kettle"}).json()
    return vector


@pytest.mark.parametrize("condition", CONDITIONS)
def test_the_answer_is_the_same(encoder: Path, expected: list[float], condition: str) -> None:
    with Container(encoder, locks=CONDITIONS[condition]) as container:
        answer = container.invoke({"inputs": "a quiet kettle"})
        assert answer.status_code == 200
        assert answer.json() == pytest.approx(expected, abs=1e-5)
        assert container.http.get("/models").status_code == 404


def test_it_serves_without_any_network(encoder: Path, expected: list[float]) -> None:
    with Container(encoder, options=("--network", "none")) as container:
        assert json.loads(container.python(ASK_INSIDE)) == pytest.approx(expected, abs=1e-5)


def test_the_server_gives_up_root_when_it_may(ordinary: Container) -> None:
    users = {user for word in ("byoc.endpoints.Frontend", WORKER) for _, user in ordinary.processes(word)}
    assert users == {"10001"}


@pytest.mark.parametrize(("cpus", "threads"), [("1", 1), ("2", 2)])
def test_workers_and_threads_follow_the_cgroup(encoder: Path, cpus: str, threads: int) -> None:
    with Container(encoder, options=("--cpus", cpus, "--memory", "1500m")) as container:
        start = container.logs()
    assert f"threads={threads}" in start
    assert "max_workers=1" in start
    assert f"({cpus} CPU{'s' if threads > 1 else ''}, 1,500 MiB)" in start


def test_settings_override_what_follows_from_the_cgroup(encoder: Path) -> None:
    settings = {"SAGEMAKER_TS_MIN_WORKERS": "2", "SAGEMAKER_TS_MAX_WORKERS": "2", "SAGEMAKER_TS_BATCH_SIZE": "7"}
    with Container(encoder, settings) as container:
        start = container.logs()
    assert "max_workers=2 (SAGEMAKER_TS_MAX_WORKERS)" in start
    assert "batch_size=7 (SAGEMAKER_TS_BATCH_SIZE)" in start


def test_docker_sees_it_healthy(encoder: Path) -> None:
    with Container(encoder, options=("--health-interval", "1s")) as container:
        deadline = 30
        while deadline and container.state()["Health"]["Status"] != "healthy":
            container.python("import time; time.sleep(1)")
            deadline -= 1
        assert container.state()["Health"]["Status"] == "healthy"
