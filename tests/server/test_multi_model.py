"""A multi-model endpoint: models loaded, called and unloaded as the platform does it, over a real server."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from models import many
from running import RunningServer, at_once
from shelf import MULTI_MODEL, NO_MODEL, Shelf, error

TEXT = {"inputs": "good day"}


def test_a_model_is_ready_when_its_load_returns_and_gone_when_its_unload_does(
    multi_model: RunningServer, shelf: Shelf, small_script: Path
) -> None:
    assert multi_model.ping() == 200
    assert shelf.page() == {"models": []}
    loaded = shelf.load("one", small_script)
    entry = {"modelName": "one", "modelUrl": str(small_script)}
    assert (loaded.status_code, loaded.json()) == (200, entry)
    first = shelf.call("one", TEXT)
    assert (first.status_code, many.word_of(first)) == (200, "script")
    assert shelf.describe("one").json() == entry
    assert shelf.page() == {"models": [entry]}
    assert multi_model.workers() == [first.json()["pid"]]
    assert shelf.unload("one").status_code == 200
    assert multi_model.workers() == []
    assert not Path(f"/proc/{first.json()['pid']}").exists()
    for answer in (shelf.describe("one"), shelf.unload("one"), shelf.call("one", TEXT)):
        assert error(answer)[:2] == (404, "NotFound")


def test_a_model_that_is_loaded_is_not_loaded_twice(shelf: Shelf, small_script: Path) -> None:
    answers = at_once([lambda: shelf.load("one", small_script)] * 4)
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
    assert error(shelf.load("one", small_script)) == (409, "Conflict", "The model one is loaded already.")
    assert shelf.names() == ["one"]


@pytest.mark.parametrize("kind", many.KINDS)
def test_every_kind_of_artefact_can_be_loaded(shelf: Shelf, tmp_path: Path, kind: str) -> None:
    loaded = shelf.load("one", many.KINDS[kind](tmp_path / kind, "its word"))
    assert loaded.status_code == 200, loaded.text
    answer = shelf.call("one", TEXT)
    assert (answer.status_code, many.word_of(answer)) == (200, "its word")


def test_a_model_that_cannot_be_loaded_leaves_nothing_but_its_reason(
    multi_model: RunningServer, shelf: Shelf, tmp_path: Path
) -> None:
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
    assert (shelf.names(), multi_model.workers(), error(shelf.describe("broken"))[0]) == ([], [], 404)
    (broken / "code" / "inference.py").write_text(many.SCRIPT.format(word="better"))
    assert shelf.load("broken", broken).status_code == 200
    assert many.word_of(shelf.call("broken", TEXT)) == "better"


def test_a_foreign_handler_that_cannot_be_imported_is_told_so(shelf: Shelf, tmp_path: Path) -> None:
    broken = many.save_archive(tmp_path / "archive", "", handler="import no_such_module\n")
    status, _, message = error(shelf.load("foreign", broken))
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


def test_formats_streams_and_headers_go_through_as_on_an_endpoint_of_one_model(shelf: Shelf, small_encoder: Path) -> None:
    assert shelf.load("one", small_encoder).status_code == 200
    lines = shelf.call("one", '{"inputs": "a"}\n{"inputs": "b"}', "application/jsonlines")
    assert [json.loads(line)["label"].split()[0] for line in lines.text.splitlines()] == ["encoder", "encoder"]
    zipped = shelf.call("one", gzip.compress(b'{"inputs": "a"}'), Content_Encoding="gzip")
    assert zipped.json()["score"] == pytest.approx(json.loads(lines.text.splitlines()[0])["score"], abs=1e-5)
    named = shelf.call("one", TEXT, X_Amzn_SageMaker_Inference_Id="42", X_Request_Id="mine")
    assert (named.headers["x-amzn-sagemaker-inference-id"], named.headers["x-request-id"]) == ("42", "mine")
    assert shelf.call("one", TEXT, Accept="image/png").status_code == 406
    assert shelf.call("one", "a\nb", "text/csv").headers["content-type"] == "text/csv"


def test_calls_of_one_model_share_batches(tmp_path: Path, small_encoder: Path) -> None:
    with RunningServer(
        NO_MODEL, {**MULTI_MODEL, "SAGEMAKER_TS_BATCH_SIZE": "8", "SAGEMAKER_TS_MAX_BATCH_DELAY": "5000"}
    ) as server:
        shelf = Shelf(server)
        other = many.save_encoder(tmp_path / "other", "other")
        assert {shelf.load("one", small_encoder).status_code, shelf.load("two", other).status_code} == {200}
        answers = at_once([lambda name=name: shelf.call(name, TEXT) for name in ("one", "two") * 8])
        metrics = {name: server.metrics(name) for name in ("one", "two")}
    assert [many.word_of(answer) for answer in answers] == ["encoder", "other"] * 8
    for name in ("one", "two"):
        assert metrics[name]["byoc_batch_requests_count"] == 1
        assert metrics[name]['byoc_requests_total{status="200"}'] == 8
