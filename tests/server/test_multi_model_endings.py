"""Models of a multi-model endpoint that come, go and crash: each waits for its own calls, and none costs another anything."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from models import many
from running import RunningServer, descendants
from shelf import MULTI_MODEL, NO_MODEL, Shelf, error

TEXT = {"inputs": "good day"}


def test_an_unload_waits_for_the_calls_in_flight(shelf: Shelf, small_script: Path) -> None:
    assert shelf.load("one", small_script).status_code == 200
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(shelf.call, "one", {"inputs": "wait", "seconds": 2})
        time.sleep(0.7)
        unload = pool.submit(shelf.unload, "one")
        time.sleep(0.5)
        assert error(shelf.call("one", TEXT))[0] == 404
        assert not unload.done()
        assert (slow.result().status_code, unload.result().status_code) == (200, 200)


def test_a_load_waits_for_the_unload_of_the_same_name(shelf: Shelf, small_script: Path, small_encoder: Path) -> None:
    assert shelf.load("one", small_script).status_code == 200
    with ThreadPoolExecutor(3) as pool:
        slow = pool.submit(shelf.call, "one", {"inputs": "wait", "seconds": 1})
        time.sleep(0.5)
        unload = pool.submit(shelf.unload, "one")
        time.sleep(0.2)
        load = pool.submit(shelf.load, "one", small_encoder)
        assert [future.result().status_code for future in (slow, unload, load)] == [200, 200, 200]
    assert many.word_of(shelf.call("one", TEXT)) == "encoder"


def test_a_model_in_the_making_is_told_to_come_back_for(shelf: Shelf, tmp_path: Path) -> None:
    slow = many.save_script(tmp_path / "slow", "slow")
    with (slow / "code" / "inference.py").open("a", encoding="utf-8") as script:
        script.write("\ntime.sleep(2)\n")
    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(shelf.load, "one", slow)
        time.sleep(0.3)
        early = shelf.call("one", TEXT)
        assert error(early)[:2] == (503, "NotReady")
        assert early.headers["retry-after"]
        assert error(shelf.load("one", slow)) == (409, "Conflict", "The model one is being loaded.")
        assert shelf.names() == []
        assert load.result().status_code == 200


def test_a_crash_costs_its_own_model_one_call_and_others_nothing(
    multi_model: RunningServer, shelf: Shelf, small_script: Path, small_encoder: Path
) -> None:
    assert {shelf.load("one", small_script).status_code, shelf.load("two", small_encoder).status_code} == {200}
    before = shelf.call("one", TEXT).json()["pid"]
    assert error(shelf.call("one", {"inputs": "end"}))[0] == 503
    assert shelf.call("two", TEXT).status_code == 200
    assert multi_model.ping() == 200
    deadline = time.monotonic() + 60
    while (after := shelf.call("one", TEXT)).status_code != 200:
        assert error(after)[0] == 503
        assert shelf.call("two", TEXT).status_code == 200
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert after.json()["pid"] != before


def test_a_model_whose_worker_keeps_failing_says_so_until_it_is_loaded_again(tmp_path: Path, small_encoder: Path) -> None:
    flag = tmp_path / "broken-now"
    unlucky = many.save_script(tmp_path / "unlucky", "unlucky")
    with (unlucky / "code" / "inference.py").open("a") as file:
        file.write(f"\nif os.path.exists({str(flag)!r}): raise RuntimeError('the shelf is wet')\n")
    with RunningServer(NO_MODEL, {**MULTI_MODEL, "BYOC_MAX_RESTARTS": "1"}) as server:
        shelf = Shelf(server)
        assert {shelf.load("one", unlucky).status_code, shelf.load("two", small_encoder).status_code} == {200}
        flag.touch()
        shelf.call("one", {"inputs": "end"})
        deadline = time.monotonic() + 90
        while "the shelf is wet" not in error(answer := shelf.call("one", TEXT))[2]:
            assert answer.status_code == 503
            assert time.monotonic() < deadline, answer.text
            time.sleep(0.3)
        assert answer.status_code == 503
        assert (shelf.call("two", TEXT).status_code, server.ping()) == (200, 200)
        assert shelf.unload("one").status_code == 200
        flag.unlink()
        assert shelf.load("one", unlucky).status_code == 200
        assert many.word_of(shelf.call("one", TEXT)) == "unlucky"


def test_a_stop_answers_calls_in_flight_and_ends_every_worker(small_script: Path, small_encoder: Path) -> None:
    with RunningServer(NO_MODEL, MULTI_MODEL) as server, ThreadPoolExecutor(1) as pool:
        shelf = Shelf(server)
        assert {shelf.load("one", small_script).status_code, shelf.load("two", small_encoder).status_code} == {200}
        workers = server.workers()
        slow = pool.submit(shelf.call, "one", {"inputs": "wait", "seconds": 2})
        time.sleep(0.7)
        assert server.stop() == 0
        assert slow.result().status_code == 200
        assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    assert len(workers) == 2


def test_nothing_of_a_model_stays_behind(multi_model: RunningServer, shelf: Shelf, tmp_path: Path) -> None:
    work = next(Path(word.partition("=")[2]) for word in _java(multi_model) if word.startswith("-Djava.io.tmpdir=")).parent

    def left() -> tuple[int, set[str]]:
        threads = len(list(Path(f"/proc/{_java_pid(multi_model)}/task").iterdir()))
        return threads, {str(path) for path in work.rglob("*")}

    artefact = many.save_archive(tmp_path / "archive", "word")
    for _ in range(2):
        assert shelf.load("one", artefact).status_code == 200
        assert shelf.unload("one").status_code == 200
    time.sleep(0.5)
    threads, files = left()
    assert 'model="one"' not in multi_model.http.get("/metrics").text
    for _ in range(6):
        assert shelf.load("one", artefact).status_code == 200
        assert shelf.unload("one").status_code == 200
    time.sleep(0.5)
    assert left()[1] == files
    assert left()[0] < threads + 12  # idle threads of pools, not three for each of six models


def _java_pid(server: RunningServer) -> int:
    return next(pid for pid, command in descendants(server.pid) if "byoc.endpoints.Frontend" in command)


def _java(server: RunningServer) -> list[str]:
    return Path(f"/proc/{_java_pid(server)}/cmdline").read_bytes().decode().split("\0")
