"""Workers that are forked from the template, behind real TorchServe: they answer, end, fail and are replaced as any others."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from batch_handler.internal import WORKER_TEMPLATE
from models import encoders, flores, scripts
from running import RunningServer, descendants

FORKED = {WORKER_TEMPLATE: "always"}
FRESH = {WORKER_TEMPLATE: "never"}
TEXT = '"a text whose vector is known"'
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encoders.save(tmp_path_factory.mktemp("small") / "model", head=False)


@pytest.fixture
def server(small: Path) -> Iterator[RunningServer]:
    with RunningServer(small, FORKED) as running:
        yield running


def template_of(server: RunningServer) -> int:
    return next(pid for pid, command in descendants(server.pid) if "entrypoint.template" in command)


def parent(pid: int) -> int:
    found = re.search(r"^PPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1])


def test_a_forked_worker_answers_like_any_other_and_its_words_reach_the_log(small: Path, server: RunningServer) -> None:
    (worker,) = server.workers()
    assert parent(worker) == template_of(server)
    assert "INFO model loaded: " in server.output
    assert "Torch worker started" not in server.output
    forked = server.invoke(TEXT).json()
    with RunningServer(small) as other:
        assert other.invoke(TEXT).json() == forked


def test_a_worker_that_is_killed_is_replaced_from_the_same_template(server: RunningServer) -> None:
    template, (worker,) = template_of(server), server.workers()
    before = server.invoke(TEXT).json()
    os.kill(worker, signal.SIGKILL)
    another = server.wait_for_another_worker(worker)
    assert parent(another) == template == template_of(server)
    assert server.invoke(TEXT).json() == before


def test_a_template_that_is_killed_comes_back_with_its_worker(server: RunningServer) -> None:
    template, (worker,) = template_of(server), server.workers()
    before = server.invoke(TEXT).json()
    os.kill(template, signal.SIGKILL)
    another = server.wait_for_another_worker(worker)
    assert parent(another) == template_of(server) != template
    assert "The worker template ended; it is started again" in server.output
    assert server.invoke(TEXT).json() == before


def test_the_template_waits_for_the_first_worker_that_ends(small: Path) -> None:
    with RunningServer(small) as server:
        assert not [pid for pid, command in descendants(server.pid) if "entrypoint.template" in command]
        before = server.invoke(TEXT).json()
        template = None
        for _ in range(2):
            (worker,) = server.workers()
            os.kill(worker, signal.SIGKILL)
            another = server.wait_for_another_worker(worker)
            template = template or template_of(server)
            assert parent(another) == template == template_of(server)
        assert server.invoke(TEXT).json() == before


def test_nothing_is_left_after_a_stop(server: RunningServer) -> None:
    below = [pid for pid, _ in descendants(server.pid)]
    assert server.stop() == 0
    assert not [pid for pid in below if Path(f"/proc/{pid}").exists()]


def test_two_workers_share_one_template_and_both_answer(small: Path) -> None:
    with RunningServer(small, {**FORKED, "SAGEMAKER_TS_MIN_WORKERS": "2", "SAGEMAKER_TS_MAX_WORKERS": "2"}) as server:
        deadline = time.monotonic() + LIMIT_S
        while server.output.count("model loaded: ") < 2:
            assert time.monotonic() < deadline, server.output
            time.sleep(0.1)
        assert {parent(worker) for worker in server.workers()} == {template_of(server)}
        assert len({server.invoke(TEXT).text for _ in range(20)}) == 1


def test_a_worker_computes_with_as_many_threads_as_it_is_given(tmp_path: Path) -> None:
    model = scripts.save_script(
        tmp_path / "model",
        """
        import torch
        from pathlib import Path
        def model_fn(model_dir): return torch.ones(1_500, 1_500)
        def predict_fn(data, model):
            total = float((model @ model).double().sum())
            return {"sum": total, "threads": torch.get_num_threads(), "tasks": len(list(Path("/proc/self/task").iterdir()))}
        """,
    )
    answers = []
    for settings in (FORKED, FRESH):
        with RunningServer(model, {**settings, "SAGEMAKER_TS_MAX_WORKERS": "1", "BYOC_THREADS": "2"}) as server:
            answers.append(server.invoke("[1]").json())
    forked, fresh = answers
    assert forked["sum"] == fresh["sum"] == 1_500.0**3
    assert forked["threads"] == fresh["threads"] == 2
    assert forked["tasks"] >= 2


def test_a_script_and_its_neighbours_run_in_a_fork(tmp_path: Path) -> None:
    text = """
        from weights import FACTOR
        def model_fn(model_dir): return FACTOR
        def predict_fn(data, model): return [model * one for one in data]
        """
    model = scripts.save_script(tmp_path / "model", text, weights__py="FACTOR = 3\n")
    with RunningServer(model, FORKED) as server:
        assert server.invoke("[1, 2]").json() == [3, 6]
        assert {parent(worker) for worker in server.workers()} == {template_of(server)}


def test_a_foreign_archive_runs_in_a_fork(tmp_path: Path) -> None:
    translator = scripts.save_translator(tmp_path / "translator")
    samples = flores.samples()[:2]
    with RunningServer(scripts.save_translation_archive(translator, tmp_path / "archive"), FORKED) as server:
        answer = server.invoke(flores.body(samples), flores.MEDIA_TYPE)
        assert server.workers()
    assert [json.loads(line)["translatedText"] for line in answer.text.splitlines()] == flores.translations(translator, samples)


def test_a_model_that_cannot_be_loaded_says_so_as_in_a_fresh_worker(tmp_path: Path) -> None:
    model = scripts.save_script(
        tmp_path / "model", "def model_fn(model_dir): raise ValueError('the weights are of another model')"
    )
    endings = []
    for settings in (FORKED, FRESH):
        server = RunningServer(model, settings, wait=False)
        code = server.wait(LIMIT_S)
        endings.append((code, server.lines[-1].partition(" ")[2]))
    assert endings[0] == endings[1]
    assert "the weights are of another model" in endings[0][1]
    assert endings[0][0] != 0
