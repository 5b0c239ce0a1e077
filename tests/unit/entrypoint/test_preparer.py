"""The preparer without a frontend: models looked at one by one, and what it says of memory."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from batch_handler.artefact import ArtefactError
from batch_handler.resources import Resources, free_memory
from batch_handler.settings import MIB
from entrypoint.home import Home
from entrypoint.log import Log
from entrypoint.model_memory import FIRST_GUESS, LEAST_OVERHEAD, Overheads, private_bytes
from entrypoint.preparer import Preparer, local
from entrypoint.start import Given

MakeModel = Callable[..., Path]
GIB = 1024 * MIB


def preparer(tmp_path: Path, machine: Resources, **variables: str) -> Preparer:
    work = tmp_path / "work"
    (work / "models").mkdir(parents=True)
    environment = {"SAGEMAKER_MULTI_MODEL": "true", **variables}
    return Preparer(Given(environment, {}, machine, Home(tmp_path), work, Log(level="ERROR"), 0.0))


def asked(one: Preparer, artefact: Path, name: str = "m1", url: str = "") -> dict[str, Any]:
    return one.answer({"do": "prepare", "model": name, "url": url or str(artefact)})


def test_a_model_is_written_down_with_an_environment_of_its_own(
    tmp_path: Path, small_machine: Resources, make_model: MakeModel
) -> None:
    artefact = make_model(model__config_yaml="batchSize: 7\ntask: fill-mask\n")
    told = asked(preparer(tmp_path, small_machine), artefact)
    directory = Path(told["directory"])
    assert directory == tmp_path / "work" / "models" / "m1" / "model"
    config = yaml.safe_load((directory / "model-config.yaml").read_text())
    assert (config["batchSize"], config["minWorkers"], told["workers"]) == (7, 1, 1)
    environment = json.loads((directory.parent / "environment.json").read_text())
    assert environment["HF_TASK"] == "fill-mask"
    assert environment["_BYOC_FAILURE_FILE"] == str(directory.parent / "failure")
    assert "SAGEMAKER_MULTI_MODEL" not in environment  # as java has it


def test_what_the_user_set_is_above_what_the_artefact_says(
    tmp_path: Path, small_machine: Resources, make_model: MakeModel
) -> None:
    artefact = make_model(model__config_yaml="batchSize: 7\n")
    told = asked(preparer(tmp_path, small_machine, SAGEMAKER_TS_BATCH_SIZE="3"), artefact)
    assert yaml.safe_load((Path(told["directory"]) / "model-config.yaml").read_text())["batchSize"] == 3


def test_a_refusal_leaves_nothing_and_names_no_place(tmp_path: Path, small_machine: Resources, make_model: MakeModel) -> None:
    one = preparer(tmp_path, small_machine)
    (empty := tmp_path / "empty").mkdir()
    told = asked(one, empty)
    assert set(told) == {"refused"}
    assert str(tmp_path) not in told["refused"]
    assert "\n" not in told["refused"]
    assert "batchSize" in asked(one, make_model(model__config_yaml="batchSize: many\n"))["refused"]
    assert list((tmp_path / "work" / "models").iterdir()) == []


@pytest.mark.parametrize("own", ["/", "", "work"])
def test_a_directory_with_the_containers_own_files_is_no_model(tmp_path: Path, small_machine: Resources, own: str) -> None:
    told = asked(preparer(tmp_path, small_machine), tmp_path / own)
    assert told == {"refused": "the url names a directory that holds more than a model: this container's own files are there"}


@pytest.mark.parametrize("spelled", ["{}", "file://{}", "file://localhost{}"])
def test_a_refusal_names_no_place_however_the_url_is_spelled(
    tmp_path: Path, small_machine: Resources, make_model: MakeModel, spelled: str
) -> None:
    artefact = make_model()
    (artefact / "link").symlink_to("/etc/hostname")
    told = asked(preparer(tmp_path, small_machine), Path(), url=spelled.format(artefact))["refused"]
    assert told == "the model's directory/link is a link that leaves the model directory: put the file itself there."


def test_what_fails_in_this_container_names_no_place(
    tmp_path: Path, small_machine: Resources, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", str(tmp_path / "secret"))

    monkeypatch.setattr("entrypoint.preparation.prepare", fail)
    told = asked(preparer(tmp_path, small_machine), make_model())
    assert told == {"refused": "the preparation failed: No such file or directory", "fault": True}


def test_a_model_that_is_discarded_leaves_nothing(tmp_path: Path, small_machine: Resources, make_model: MakeModel) -> None:
    one = preparer(tmp_path, small_machine)
    artefact = make_model()
    asked(one, artefact)
    (tmp_path / "work" / "models" / "m1" / "failure").write_text("the weights\nare wet")
    assert one.answer({"do": "explain", "model": "m1"})["sentence"] == "the weights are wet"
    assert one.answer({"do": "discard", "model": "m1"}) == {}
    assert list((tmp_path / "work" / "models").iterdir()) == []
    assert (artefact / "config.json").is_file()
    assert one.answer({"do": "discard", "model": "m1"}) == {}


@pytest.mark.parametrize("identifier", ["../m1", "/etc", "", "m 1"])
def test_an_identifier_is_no_path(tmp_path: Path, small_machine: Resources, make_model: MakeModel, identifier: str) -> None:
    assert asked(preparer(tmp_path, small_machine), make_model(), identifier)["fault"] is True


def test_every_question_gets_its_own_answer(tmp_path: Path, small_machine: Resources, make_model: MakeModel) -> None:
    artefact = make_model()
    questions = [{"id": number, "do": "prepare", "model": f"m{number}", "url": str(artefact)} for number in range(20)]
    lines = io.StringIO("".join(json.dumps(question) + "\n" for question in [*questions, {"id": 99, "do": "nonsense"}]))
    preparer(tmp_path, small_machine).serve(lines, replies := io.StringIO())
    answers = {answer["id"]: answer for answer in map(json.loads, replies.getvalue().splitlines())}
    assert answers.pop(99)["fault"] is True
    assert {number: Path(answer["directory"]).parent.name for number, answer in answers.items()} == {
        number: f"m{number}" for number in range(20)
    }


def test_a_url_is_an_absolute_path(tmp_path: Path) -> None:
    (spaced := tmp_path / "a b").mkdir()
    assert local(str(spaced)) == local(f"file://{tmp_path}/a%20b") == spaced
    for url in ("relative/path", "s3://bucket/key", "https://host/x", "file://host/opt", ""):
        with pytest.raises(ArtefactError, match="absolute path"):
            local(url)
    (tmp_path / "file").touch()
    with pytest.raises(ArtefactError, match="there is a file at the url"):
        local(str(tmp_path / "file"))


def test_what_a_worker_takes_is_learnt_from_those_before() -> None:
    overheads = Overheads()
    guess = overheads.needed(ours=True, model_bytes=0)
    assert guess == FIRST_GUESS[True]
    overheads.learn(True, 100 * MIB, [180 * MIB])
    assert 80 * MIB < overheads.needed(ours=True, model_bytes=0) < 100 * MIB
    assert overheads.needed(ours=False, model_bytes=0) == FIRST_GUESS[False]
    for _ in range(50):
        overheads.learn(True, 100 * MIB, [100 * MIB])
    assert overheads.needed(ours=True, model_bytes=0) == pytest.approx(1.15 * LEAST_OVERHEAD)


def test_a_process_tells_what_is_its_alone() -> None:
    before = private_bytes(os.getpid())
    ballast = bytearray(b"x" * (64 * MIB))
    after = private_bytes(os.getpid())
    assert before is not None
    assert after is not None
    assert 60 * MIB < after - before < 80 * MIB
    assert len(ballast)
    assert private_bytes(2**22 + 1) is None


V2 = {"memory.max": f"{GIB}", "memory.current": f"{800 * MIB}"}
V1 = {"memory/memory.limit_in_bytes": f"{GIB}", "memory/memory.usage_in_bytes": f"{800 * MIB}"}
CACHED = {"active_file": 100 * MIB, "inactive_file": 200 * MIB}


@pytest.mark.parametrize(
    ("files", "stat", "expected"),
    [
        (V2, {**CACHED, "file_mapped": 50 * MIB, "anon": 450 * MIB}, 474 * MIB),
        (V1, {**{f"total_{name}": size for name, size in CACHED.items()}, "total_mapped_file": 50 * MIB, **CACHED}, 474 * MIB),
        ({"memory.max": "max", "memory.current": "5"}, {}, 2_000 * 1024),
        ({}, {}, 2_000 * 1024),
    ],
)
def test_free_memory_counts_files_that_nobody_maps(
    tmp_path: Path, files: Mapping[str, str], stat: Mapping[str, int], expected: int
) -> None:
    folder = tmp_path / "memory" if any("/" in name for name in files) else tmp_path
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (folder / "memory.stat").write_text("".join(f"{name} {value}\n" for name, value in stat.items()))
    (tmp_path / "meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable: {2_000 if expected == 2_000 * 1024 else 9_000_000} kB\n")
    assert free_memory(tmp_path, tmp_path / "meminfo") == expected
