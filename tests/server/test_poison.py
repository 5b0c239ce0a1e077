"""A request that ends every worker that runs it: found out, refused from then on, and its neighbours answered."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from models.language import opinions
from models.poison import MARK, save_mortal
from models.scripts import save_script
from running import RunningServer, at_once

POISON = f"a {MARK} text"
NEIGHBOURS = opinions(16, seed=11)[0]
SCRIPT = """
import json, os, signal, time

def input_fn(body, content_type):
    return json.loads(body)

def output_fn(answer, accept):
    return json.dumps(answer)

def model_fn(model_dir):
    return {}

def predict_fn(data, model):
    if data == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if data == "slow":
        time.sleep(2)
    return data
"""


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that dies of one word."""
    return save_mortal(tmp_path_factory.mktemp("mortal") / "model")


@pytest.fixture
def server(mortal: Path) -> Iterator[RunningServer]:
    """The mortal classifier, its texts free of the mark answered as ever."""
    with RunningServer(mortal, {"HF_TRUST_REMOTE_CODE": "true"}) as running:
        yield running


def test_a_poison_request_is_refused_and_its_neighbours_are_answered(server: RunningServer) -> None:
    texts = [text for text in NEIGHBOURS if MARK not in text]
    expected = [server.invoke({"inputs": text}).json() for text in texts]
    calls = [lambda text=text: server.invoke({"inputs": text}) for text in (*texts, POISON)]
    *answers, refusal = at_once(calls)
    assert [answer.status_code for answer in answers] == [200] * len(texts)
    for answer, known in zip(answers, expected, strict=True):
        result, wanted = answer.json(), known
        assert result["label"] == wanted["label"]
        assert result["score"] == pytest.approx(wanted["score"], abs=1e-5)
    assert refusal.status_code == 422
    assert refusal.json()["error"]["type"] == "PoisonInput"
    assert refusal.json()["error"]["record"] == 1
    server.wait_for_ping(200)
    (worker,) = server.workers()
    again = server.invoke({"inputs": POISON})
    assert again.status_code == 422
    assert server.workers() == [worker]
    assert "SHA-256" in server.output
    assert MARK not in server.output


def test_the_record_at_fault_is_named(server: RunningServer) -> None:
    lines = [json.dumps({"inputs": text}) for text in NEIGHBOURS if MARK not in text]
    lines[5] = json.dumps({"inputs": POISON})
    answer = server.invoke("\n".join(lines), "application/jsonlines")
    assert answer.status_code == 422
    assert answer.json()["error"]["record"] == 6


def test_in_a_transform_job_a_poison_record_costs_its_own_line(mortal: Path) -> None:
    lines = [json.dumps({"inputs": text}) for text in NEIGHBOURS if MARK not in text]
    lines[5] = lines[9] = json.dumps({"inputs": POISON})
    with RunningServer(mortal, {"HF_TRUST_REMOTE_CODE": "true", "SAGEMAKER_BATCH": "true"}) as server:
        answer = server.invoke("\n".join(lines), "application/jsonlines")
        assert answer.status_code == 200
        results = [json.loads(line) for line in answer.text.splitlines()]
        assert len(results) == len(lines)
        bad = [number for number, result in enumerate(results) if "error" in result]
        assert bad == [5, 9]
        assert results[5]["error"]["type"] == "PoisonInput"
        assert results[5]["error"]["record"] == 6
        server.wait_for_ping(200)
        (worker,) = server.workers()
        again = [json.loads(line) for line in server.invoke("\n".join(lines), "application/jsonlines").text.splitlines()]
        assert [result.get("label") for result in again] == [result.get("label") for result in results]
        assert server.workers() == [worker]


def answered(server: RunningServer, text: str) -> httpx.Response:
    """The answer, asked for again where the call came while the worker was being restarted."""
    deadline = time.monotonic() + 60
    while (answer := server.invoke(json.dumps(text))).status_code == 503 and time.monotonic() < deadline:
        time.sleep(0.2)
    return answer


def test_a_script_is_run_again_only_where_it_says_so(tmp_path: Path) -> None:
    plain = save_script(tmp_path / "plain", SCRIPT)
    with RunningServer(plain, {"SAGEMAKER_MODEL_SERVER_WORKERS": "1"}) as server:
        answer = server.invoke('"die"')
        assert (answer.status_code, answer.json()["error"]["type"]) == (503, "WorkerLost")
        assert answer.headers["retry-after"]
        server.wait_for_ping(200)
    safe = save_script(tmp_path / "safe", "IDEMPOTENT = True\n" + SCRIPT)
    with RunningServer(safe, {"SAGEMAKER_MODEL_SERVER_WORKERS": "1"}) as server:
        dying, *others = at_once([lambda text=text: answered(server, text) for text in ("die", "a", "b", "slow")])
        assert dying.status_code == 422
        assert [answer.json() for answer in others] == ["a", "b", "slow"]
        server.wait_for_ping(200)
        assert server.invoke('"die"').status_code == 422


def test_calls_are_answered_though_the_worker_that_runs_one_again_is_killed_too(tmp_path: Path) -> None:
    model = save_script(tmp_path / "model", f"IDEMPOTENT = True\n{SCRIPT.replace('time.sleep(2)', 'time.sleep(4)')}")
    with RunningServer(model, {"SAGEMAKER_MODEL_SERVER_WORKERS": "1"}) as server, ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(server.invoke, '"slow"') for _ in range(2)]
        for _ in range(2):  # first one runs and one waits for it; then the one that had waited runs, and the other is a suspect
            time.sleep(1)
            (worker,) = server.workers()
            os.kill(worker, signal.SIGKILL)
            server.wait_for_another_worker(worker)
        assert [call.result().status_code for call in calls] == [200, 200]
