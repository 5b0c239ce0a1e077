"""Many models in the image, under the flags of the platform's strictest users: memory that comes back, and a bound kept."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from containers import Container, readable
from models import many
from shelf import MULTI_MODEL, Shelf, error

MIB = 1 << 20
SMALL = ("--memory", "900m", "--memory-swap", "900m")
TEXT = {"inputs": "good day"}
INSIDE = Path("/opt/ml/model")
LOADS = 2_000 if os.environ.get("TEST_ALL") else 80


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("artefacts")
    for number in range(3):
        many.save_script(directory / f"script-{number}", f"script-{number}")
    many.save_encoder(directory / "encoder", "encoder")
    many.save_archive(directory / "archive", "archive")
    return readable(directory)


@pytest.mark.timeout(600)
def test_memory_comes_back_when_a_model_goes(artefacts: Path) -> None:
    with Container(artefacts, MULTI_MODEL) as container:
        shelf = Shelf(container)
        for name in ("encoder", "archive"):  # what the first load of a kind leaves in java stays
            assert shelf.load(name, INSIDE / name).status_code == 200
            assert shelf.unload(name).status_code == 200
        before = container.memory()
        for _ in range(2):
            for name in ("encoder", "script-0", "archive"):
                loaded = shelf.load(name, INSIDE / name)
                assert loaded.status_code == 200, loaded.text
                assert many.word_of(shelf.call(name, TEXT)) == name
            taken = container.memory() - before
            for name in ("encoder", "script-0", "archive"):
                assert shelf.unload(name).status_code == 200
            left = container.memory() - before
            assert taken > 50 * MIB
            assert left < taken // 10
        assert container.processes("model_service_worker") == []


@pytest.mark.timeout(600)
def test_a_load_that_does_not_fit_is_refused_before_memory_is_short(artefacts: Path) -> None:
    with Container(artefacts, MULTI_MODEL, SMALL) as container:
        shelf = Shelf(container)
        answers = []
        for number in range(60):
            answers.append(shelf.load(f"m{number}", INSIDE / f"script-{number % 3}"))
            if answers[-1].status_code != 200:
                break
        assert answers[0].status_code == 200
        assert len(container.processes("entrypoint.template")) == 1, "workers are forked, so that a model takes little"
        status, kind, message = error(answers[-1])
        assert (status, kind) == (507, "InsufficientMemory"), message
        assert "unload other models first" in message
        held = [f"m{number}" for number in range(len(answers) - 1)]
        assert sorted(shelf.names()) == sorted(held)
        assert {shelf.call(name, TEXT).status_code for name in held} == {200}
        for name in held[:3]:  # their neighbours have grown with the calls
            assert shelf.unload(name).status_code == 200
        assert shelf.load("another", INSIDE / "script-0").status_code == 200
        state = container.state()
        assert (state["OOMKilled"], state["Running"]) == (False, True)


@pytest.mark.timeout(600)
def test_the_model_called_longest_ago_makes_room_where_that_is_wanted(artefacts: Path) -> None:
    with Container(artefacts, {**MULTI_MODEL, "BYOC_EVICT_MODELS": "true"}, SMALL) as container:
        shelf = Shelf(container)
        evicted = False
        for number in range(60):
            assert shelf.load(f"m{number}", INSIDE / f"script-{number % 3}").status_code == 200
            assert shelf.call("m0", TEXT).status_code == 200  # never the one that is called longest ago
            time.sleep(0.01)
            if evicted := "makes room for another" in container.logs():
                break
        assert evicted
        assert "m0" in shelf.names()
        assert shelf.call("m1", TEXT).status_code == 404
        assert "model m1 makes room for another" in container.logs()


@pytest.mark.timeout(3_600 if LOADS > 1_000 else 600)
def test_far_more_models_than_fit_are_loaded_one_after_the_other(artefacts: Path) -> None:
    with Container(artefacts, {**MULTI_MODEL, "BYOC_EVICT_MODELS": "true"}, SMALL) as container:
        shelf = Shelf(container)
        for number in range(LOADS):
            loaded = shelf.load(f"m{number:05}", INSIDE / f"script-{number % 3}")
            assert loaded.status_code == 200, (number, loaded.text)
            assert many.word_of(shelf.call(f"m{number:05}", TEXT)) == f"script-{number % 3}"
        held = shelf.names(limit=7)
        assert held == [f"m{number:05}" for number in range(LOADS - len(held), LOADS)]
        assert len(held) < LOADS
        assert container.logs().count("makes room for another") == LOADS - len(held)
        assert len(container.processes("model_service_worker")) == len(held)
        state = container.state()
        assert (state["OOMKilled"], state["Running"]) == (False, True)
