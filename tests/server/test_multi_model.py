"""A multi-model endpoint: models loaded, called and unloaded as the platform does it, over a real server."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from models import many
from running import RunningServer, at_once, descendants
from shelf import MULTI_MODEL, NO_MODEL, Shelf, error, together

TEXT = {"inputs": "good day"}
ODD_NAMES = ("a" * 64, "ä b/c", "../../etc/passwd", "..", "100%", "a+b", 'quotes"\\', "模型", "invoke", "x/invoke", "?q=1#f")


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with RunningServer(NO_MODEL, MULTI_MODEL) as running:
        yield running


@pytest.fixture
def shelf(server: RunningServer) -> Iterator[Shelf]:
    """The module's server, empty before and after."""
    shelf = Shelf(server)
    yield shelf
    for name in shelf.names():
        assert shelf.unload(name).status_code == 200


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("artefacts")


@pytest.fixture(scope="module")
def script(artefacts: Path) -> Path:
    return many.save_script(artefacts / "script", "script")


@pytest.fixture(scope="module")
def encoder(artefacts: Path) -> Path:
    return many.save_encoder(artefacts / "encoder", "encoder")


def test_a_model_is_ready_when_its_load_returns_and_gone_when_its_unload_does(
    server: RunningServer, shelf: Shelf, script: Path
) -> None:
    assert server.ping() == 200
    assert shelf.page() == {"models": []}
    loaded = shelf.load("one", script)
    entry = {"modelName": "one", "modelUrl": str(script)}
    assert (loaded.status_code, loaded.json()) == (200, entry)
    first = shelf.call("one", TEXT)
    assert (first.status_code, many.word_of(first)) == (200, "script")
    assert shelf.describe("one").json() == entry
    assert shelf.page() == {"models": [entry]}
    assert server.workers() == [first.json()["pid"]]
    assert shelf.unload("one").status_code == 200
    assert server.workers() == []
    assert not Path(f"/proc/{first.json()['pid']}").exists()
    for answer in (shelf.describe("one"), shelf.unload("one"), shelf.call("one", TEXT)):
        assert error(answer)[:2] == (404, "NotFound")


def test_a_model_that_is_loaded_is_not_loaded_twice(shelf: Shelf, script: Path) -> None:
    answers = at_once([lambda: shelf.load("one", script)] * 4)
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
    assert error(shelf.load("one", script)) == (409, "Conflict", "The model one is loaded already.")
    assert shelf.names() == ["one"]


@pytest.mark.parametrize("kind", many.KINDS)
def test_every_kind_of_artefact_can_be_loaded(shelf: Shelf, tmp_path: Path, kind: str) -> None:
    loaded = shelf.load("one", many.KINDS[kind](tmp_path / kind, "its word"))
    assert loaded.status_code == 200, loaded.text
    answer = shelf.call("one", TEXT)
    assert (answer.status_code, many.word_of(answer)) == (200, "its word")


def test_any_printable_name_is_a_name_and_none_is_a_path(shelf: Shelf, script: Path) -> None:
    names = list(ODD_NAMES)
    answers = together([lambda name=name: shelf.load(name, script) for name in names])
    assert [answer.status_code for answer in answers] == [200] * len(names)
    for name in names:
        assert shelf.describe(name).json()["modelName"] == name
        assert shelf.call(name, TEXT).status_code == 200
    assert shelf.names(limit=3) == sorted(names, key=lambda name: name.encode("utf-16-be"))


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\0b", "\x7f", "a" * 1_025])
def test_what_cannot_be_a_name_is_refused(shelf: Shelf, script: Path, name: str) -> None:
    assert error(shelf.load(name, script)) == (400, "BadRequest", "A model's name is 1 to 1024 printable characters in UTF-8.")


@pytest.mark.parametrize("path", ["/models/%ff", "/models/%4", "/models//", "/models/a/b", "/models/a/b/invoke"])
def test_a_path_that_names_no_model_is_refused_with_a_sentence(shelf: Shelf, path: str) -> None:
    assert error(shelf.http.get(path))[:2] == (400, "BadRequest")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("nonsense", "JSON object with model_name and url"),
        ("[]", "JSON object with model_name and url"),
        ('{"model_name": "a"}', "no url"),
        ('{"url": "/opt"}', "no model_name"),
        ('{"model_name": "a", "url": {}}', "no url"),
        ('{"model_name": "a", "url": "s3://bucket/model"}', "is not accepted: use the absolute path"),
        ('{"model_name": "a", "url": "/opt/nothing/here"}', "there is nothing at the url"),
    ],
)
def test_a_load_that_cannot_be_is_refused_with_what_is_wrong(shelf: Shelf, body: str, said: str) -> None:
    status, kind, message = error(shelf.http.post("/models", content=body))
    assert (status, kind) == (400, "BadRequest")
    assert said in message
    assert shelf.names() == []


def test_the_list_comes_in_pages_that_hold_every_model_once(shelf: Shelf, script: Path) -> None:
    names = [f"m{number:02}" for number in range(5)]
    together([lambda name=name: shelf.load(name, script) for name in names])
    first = shelf.page(limit=2)
    assert [model["modelName"] for model in first["models"]] == names[:2]
    last = shelf.page(limit=3, nextPageToken=first["nextPageToken"])
    assert [model["modelName"] for model in last["models"]] == names[2:]
    assert "nextPageToken" not in last
    assert error(shelf.http.get("/models?limit=0"))[0] == 400
    assert error(shelf.http.get("/models?nextPageToken=***"))[0] == 400


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("PUT", "/models", "GET, POST"), ("POST", "/models/a", "GET, DELETE"), ("GET", "/models/a/invoke", "POST")],
)
def test_a_wrong_method_is_told_the_right_ones(shelf: Shelf, method: str, path: str, allowed: str) -> None:
    answer = shelf.http.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


def test_a_call_without_a_model_is_told_where_models_are_called(server: RunningServer) -> None:
    status, _, message = error(server.invoke(TEXT, X_Amzn_SageMaker_Target_Model="one"))
    assert status == 404
    assert "/models/{name}/invoke" in message
    assert server.http.get("/execution-parameters").status_code == 200


def test_a_model_that_cannot_be_loaded_leaves_nothing_but_its_reason(server: RunningServer, shelf: Shelf, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    (broken / "code").mkdir(parents=True)
    (broken / "code" / "inference.py").write_text("def model_fn(model_dir): raise ValueError('no luck today')")
    status, kind, message = error(shelf.load("broken", broken))
    assert (status, kind) == (500, "ModelError")
    assert "no luck today" in message
    (tmp_path / "empty").mkdir()
    status, kind, message = error(shelf.load("empty", tmp_path / "empty"))
    assert (status, kind) == (400, "BadRequest")
    assert str(tmp_path) not in message
    assert "\n" not in message
    assert (shelf.names(), server.workers(), error(shelf.describe("broken"))[0]) == ([], [], 404)
    (broken / "code" / "inference.py").write_text(many.SCRIPT.format(word="better"))
    assert shelf.load("broken", broken).status_code == 200
    assert many.word_of(shelf.call("broken", TEXT)) == "better"


def test_a_foreign_handler_that_cannot_be_imported_is_told_so(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "HANDLER", "import no_such_module\n")
    status, _, message = error(shelf.load("foreign", many.save_archive(tmp_path / "archive", "")))
    assert status == 500
    assert "no_such_module" in message


def test_settings_in_an_artefact_are_its_own(shelf: Shelf, tmp_path: Path) -> None:
    for name, threads in (("one", 1), ("two", 2)):
        directory = many.save_script(tmp_path / name, name)
        (directory / "model-config.yaml").write_text(f"task: task-{name}\nbatchSize: {threads}\nminWorkers: {threads}\n")
        assert shelf.load(name, directory).status_code == 200
    one, two = shelf.call("one", TEXT).json(), shelf.call("two", TEXT).json()
    assert (one["task"], two["task"]) == ("task-one", "task-two")
    assert (one["threads"], two["threads"]) != (two["threads"], one["threads"])


def test_formats_streams_and_headers_go_through_as_on_an_endpoint_of_one_model(shelf: Shelf, encoder: Path) -> None:
    assert shelf.load("one", encoder).status_code == 200
    lines = shelf.call("one", '{"inputs": "a"}\n{"inputs": "b"}', "application/jsonlines")
    assert [json.loads(line)["label"].split()[0] for line in lines.text.splitlines()] == ["encoder", "encoder"]
    zipped = shelf.call("one", gzip.compress(b'{"inputs": "a"}'), Content_Encoding="gzip")
    assert zipped.json()["score"] == pytest.approx(json.loads(lines.text.splitlines()[0])["score"], abs=1e-5)
    named = shelf.call("one", TEXT, X_Amzn_SageMaker_Inference_Id="42", X_Request_Id="mine")
    assert (named.headers["x-amzn-sagemaker-inference-id"], named.headers["x-request-id"]) == ("42", "mine")
    assert shelf.call("one", TEXT, Accept="image/png").status_code == 406
    assert shelf.call("one", "a\nb", "text/csv").headers["content-type"] == "text/csv"


def test_calls_of_one_model_share_batches(tmp_path: Path, encoder: Path) -> None:
    with RunningServer(
        NO_MODEL, {**MULTI_MODEL, "SAGEMAKER_TS_BATCH_SIZE": "8", "SAGEMAKER_TS_MAX_BATCH_DELAY": "5000"}
    ) as server:
        shelf = Shelf(server)
        other = many.save_encoder(tmp_path / "other", "other")
        assert {shelf.load("one", encoder).status_code, shelf.load("two", other).status_code} == {200}
        answers = at_once([lambda name=name: shelf.call(name, TEXT) for name in ("one", "two") * 8])
        metrics = {name: server.metrics(name) for name in ("one", "two")}
    assert [many.word_of(answer) for answer in answers] == ["encoder", "other"] * 8
    for name in ("one", "two"):
        assert metrics[name]["byoc_batch_requests_count"] == 1
        assert metrics[name]['byoc_requests_total{status="200"}'] == 8


def test_an_unload_waits_for_the_calls_in_flight(shelf: Shelf, script: Path) -> None:
    assert shelf.load("one", script).status_code == 200
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(shelf.call, "one", {"inputs": "wait", "seconds": 2})
        time.sleep(0.7)
        unload = pool.submit(shelf.unload, "one")
        time.sleep(0.5)
        assert error(shelf.call("one", TEXT))[0] == 404
        assert not unload.done()
        assert (slow.result().status_code, unload.result().status_code) == (200, 200)


def test_a_load_waits_for_the_unload_of_the_same_name(shelf: Shelf, script: Path, encoder: Path) -> None:
    assert shelf.load("one", script).status_code == 200
    with ThreadPoolExecutor(3) as pool:
        slow = pool.submit(shelf.call, "one", {"inputs": "wait", "seconds": 1})
        time.sleep(0.5)
        unload = pool.submit(shelf.unload, "one")
        time.sleep(0.2)
        load = pool.submit(shelf.load, "one", encoder)
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
    server: RunningServer, shelf: Shelf, script: Path, encoder: Path
) -> None:
    assert {shelf.load("one", script).status_code, shelf.load("two", encoder).status_code} == {200}
    before = shelf.call("one", TEXT).json()["pid"]
    assert error(shelf.call("one", {"inputs": "end"}))[0] == 503
    assert shelf.call("two", TEXT).status_code == 200
    assert server.ping() == 200
    deadline = time.monotonic() + 60
    while (after := shelf.call("one", TEXT)).status_code != 200:
        assert error(after)[0] == 503
        assert shelf.call("two", TEXT).status_code == 200
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert after.json()["pid"] != before


def test_a_model_whose_worker_keeps_failing_says_so_until_it_is_loaded_again(tmp_path: Path, encoder: Path) -> None:
    flag = tmp_path / "broken-now"
    unlucky = many.save_script(tmp_path / "unlucky", "unlucky")
    with (unlucky / "code" / "inference.py").open("a") as file:
        file.write(f"\nif os.path.exists({str(flag)!r}): raise RuntimeError('the shelf is wet')\n")
    with RunningServer(NO_MODEL, {**MULTI_MODEL, "BYOC_MAX_RESTARTS": "1"}) as server:
        shelf = Shelf(server)
        assert {shelf.load("one", unlucky).status_code, shelf.load("two", encoder).status_code} == {200}
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


def test_a_stop_answers_calls_in_flight_and_ends_every_worker(script: Path, encoder: Path) -> None:
    with RunningServer(NO_MODEL, MULTI_MODEL) as server, ThreadPoolExecutor(1) as pool:
        shelf = Shelf(server)
        assert {shelf.load("one", script).status_code, shelf.load("two", encoder).status_code} == {200}
        workers = server.workers()
        slow = pool.submit(shelf.call, "one", {"inputs": "wait", "seconds": 2})
        time.sleep(0.7)
        assert server.stop() == 0
        assert slow.result().status_code == 200
        assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    assert len(workers) == 2


def test_nothing_of_a_model_stays_behind(server: RunningServer, shelf: Shelf, tmp_path: Path) -> None:
    work = next(Path(word.partition("=")[2]) for word in _java(server) if word.startswith("-Djava.io.tmpdir=")).parent

    def left() -> tuple[int, set[str]]:
        threads = len(list(Path(f"/proc/{_java_pid(server)}/task").iterdir()))
        return threads, {str(path) for path in work.rglob("*")}

    artefact = many.save_archive(tmp_path / "archive", "word")
    for _ in range(2):
        assert shelf.load("one", artefact).status_code == 200
        assert shelf.unload("one").status_code == 200
    time.sleep(0.5)
    threads, files = left()
    assert 'model="one"' not in server.http.get("/metrics").text
    for _ in range(6):
        assert shelf.load("one", artefact).status_code == 200
        assert shelf.unload("one").status_code == 200
    time.sleep(0.5)
    assert left()[1] == files
    assert left()[0] < threads + 6  # idle threads of pools, not three for each of six models


def _java_pid(server: RunningServer) -> int:
    return next(pid for pid, command in descendants(server.pid) if "byoc.endpoints.Frontend" in command)


def _java(server: RunningServer) -> list[str]:
    return Path(f"/proc/{_java_pid(server)}/cmdline").read_bytes().decode().split("\0")
