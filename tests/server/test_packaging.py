"""scripts/package_model.py from the command line: what it adds to a model, and the check that batches change no answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest
import yaml

from models import encoders, scripts
from models.language import BAD, GOOD, opinions
from running import ROOT, RunningServer

STEADY = """
import json
BATCHABLE = True
def model_fn(model_dir): return None
def input_fn(data, content_type): return json.loads(data)
def batch_predict_fn(inputs, model): return [{"score": len(text) + 1e-7 * len(inputs)} for text in inputs]
def output_fn(prediction, accept): return prediction
"""
MIXED_UP = STEADY.replace("len(text) +", "len(inputs[0]) +")
FAILING = STEADY.replace("return json.loads(data)", "return json.loads(data).upper()")
SAMPLES = '"a"\n"four"\n\n"seven letters"\n'


def package(tmp_path: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        str(ROOT / "scripts" / "package_model.py"),
        *map(str, arguments),
        "--output",
        str(tmp_path / "out"),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def script(tmp_path: Path, text: str) -> Path:
    return scripts.save_script(tmp_path / "given", text) / "code"


def samples(tmp_path: Path, text: str = SAMPLES) -> Path:
    (tmp_path / "samples.jsonl").write_text(text, "utf-8")
    return tmp_path / "samples.jsonl"


def test_a_script_that_answers_alike_is_packaged_with_a_table(tmp_path: Path) -> None:
    done = package(tmp_path, "--script", script(tmp_path, STEADY), "--verify", samples(tmp_path), "--formats", "directory,tar")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["line", "alone", "batched", "ms", "alone", "ms", "batched", "difference"]
    assert [line.split()[0] for line in lines[1:4]] == ["1", "2", "4"]
    assert all(line.endswith("same") for line in lines[1:4])
    assert len({line.index("same") for line in lines[1:4]}) == 1
    with tarfile.open(tmp_path / "out" / "model.tar.gz") as archive:
        assert archive.getnames() == ["code/inference.py"]


@pytest.mark.parametrize(("text", "verdict"), [(MIXED_UP, "DIFFERENT"), (FAILING, "FAILED")])
def test_nothing_is_packaged_when_a_sample_differs_or_fails(tmp_path: Path, text: str, verdict: str) -> None:
    wrong = samples(tmp_path, SAMPLES if verdict == "DIFFERENT" else '"a"\n7\n')
    done = package(tmp_path, "--script", script(tmp_path, text), "--verify", wrong)
    assert done.returncode == 1
    assert verdict in done.stdout
    assert "nothing is packaged" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_script_that_does_not_start_is_told_by_its_last_line(tmp_path: Path) -> None:
    done = package(tmp_path, "--script", script(tmp_path, "import no_such_kettle"), "--verify", samples(tmp_path))
    assert done.returncode == 1
    assert "the artefact does not start:" in done.stderr
    assert "No module named 'no_such_kettle'" in done.stderr


def test_task_and_configuration_travel_with_the_package_and_are_obeyed(tmp_path: Path) -> None:
    model = encoders.save_trained(tmp_path / "trained")
    (tmp_path / "own.yaml").write_text("batchSize: 7\n", "utf-8")
    done = package(tmp_path, model, "--task", "feature-extraction", "--config", tmp_path / "own.yaml")
    assert done.returncode == 0, done.stderr
    packaged = tmp_path / "out" / "model"
    assert yaml.safe_load((packaged / "model-config.yaml").read_text()) == {"batchSize": 7, "task": "feature-extraction"}
    assert not (model / "model-config.yaml").exists()
    with RunningServer(packaged) as server:
        assert "batch_size=7 (model-config.yaml)" in server.output
        assert "task=feature-extraction" in server.output
        assert isinstance(server.invoke({"inputs": GOOD[0]}).json()[0][0], list | float)


def test_a_handler_of_ones_own_is_packaged_as_an_archive_and_verified(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "def handle(data, context):\n    return [row['body'][::-1] for row in data] if data else None\n", "utf-8"
    )
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "words.json").write_text(json.dumps([*GOOD, *BAD]), "utf-8")
    done = package(tmp_path, tmp_path / "files", "--handler", tmp_path / "own.py", "--verify", samples(tmp_path))
    assert done.returncode == 0, done.stderr
    for place in ("model.mar", "model/model.mar"):
        with zipfile.ZipFile(tmp_path / "out" / place) as archive:
            assert {"own.py", "words.json"} <= set(archive.namelist())
    with RunningServer(tmp_path / "out" / "model") as server:
        assert server.invoke("abc", "text/plain").text == "cba"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--script", "{tmp}/files"], "has no inference.py"),
        (["{tmp}/files", "--handler", "{tmp}/none.py"], "none.py does not exist"),
        (["{tmp}/files", "--config", "{tmp}/broken.yaml"], "is not valid YAML"),
        (["--script", "{tmp}/given/code", "--verify", "{tmp}/empty.jsonl"], "holds no samples"),
    ],
)
def test_what_cannot_be_packaged_is_one_sentence(tmp_path: Path, arguments: list[str], said: str) -> None:
    script(tmp_path, STEADY)
    (tmp_path / "files").mkdir()
    (tmp_path / "broken.yaml").write_text("a: [", "utf-8")
    (tmp_path / "empty.jsonl").write_text("\n", "utf-8")
    done = package(tmp_path, *(argument.format(tmp=tmp_path) for argument in arguments))
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def bodies(path: Path, count: int, seed: int) -> Path:
    path.write_text("".join(json.dumps({"inputs": text}) + "\n" for text in opinions(count, seed=seed)[0]), "utf-8")
    return path


@pytest.mark.timeout(900)  # exports, starts three servers
def test_an_engine_is_exported_measured_and_served_from_the_package(tmp_path: Path) -> None:
    model = encoders.save_trained(tmp_path / "trained")
    given = ("--calibrate", bodies(tmp_path / "seen.jsonl", 40, 1), "--verify", bodies(tmp_path / "others.jsonl", 24, 2))
    done = package(tmp_path, model, "--engine", "openvino", "--precision", "int8", *given, "--formats", "directory")
    assert done.returncode == 0, done.stderr
    headings, packed, exported = done.stdout.splitlines()[:3]
    assert headings.split() == ["engine", "records/s", "on", "one", "core", "×", "cosine", "worst", "top-1", "label", "flips"]
    assert (packed.split()[:2], exported.split()[:2]) == (["packed", "fp32"], ["openvino", "int8"])
    assert len({len(line) for line in (headings, packed, exported)}) == 1
    assert not (model / "engine").exists()
    with RunningServer(tmp_path / "out" / "model") as server:
        assert "engine=openvino-int8" in server.output
        assert server.invoke({"inputs": GOOD[0]}).json()["label"] == "good"
    with RunningServer(tmp_path / "out" / "model", {"BYOC_ENGINE": "packed"}) as server:
        assert "engine=packed" in server.output


@pytest.mark.timeout(900)
def test_too_little_agreement_packages_nothing(tmp_path: Path) -> None:
    model = encoders.save_trained(tmp_path / "trained")
    given = ("--calibrate", bodies(tmp_path / "seen.jsonl", 40, 1), "--verify", bodies(tmp_path / "others.jsonl", 8, 2))
    done = package(tmp_path, model, "--engine", "openvino", "--precision", "int8", *given, "--agreement", "1.0")
    assert done.returncode == 1
    assert "where 1.0 is asked for" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--engine", "onnx", "--precision", "int8"], "answers would depend on their neighbours"),
        (["--engine", "openvino", "--precision", "int8"], "--precision int8 needs --calibrate"),
        (["--engine", "openvino", "--task", "text-generation"], "--engine is for encoders"),
    ],
)
def test_an_engine_that_cannot_be_made_is_one_sentence(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = package(tmp_path, encoders.save_trained(tmp_path / "trained"), *arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def everything(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{out}/model"], "is read and cannot be written as well"),
        (["{out}"], "lie one inside the other"),
        (["{out}/model/1"], "lie one inside the other"),
        (["--script", "{out}/model/code"], "lie one inside the other"),
        (["{out}/link"], "is read and cannot be written as well"),
    ],
)
def test_a_source_is_never_overwritten(tmp_path: Path, arguments: list[str], said: str) -> None:
    model = encoders.save_trained(tmp_path / "out" / "model")
    (model / "1").mkdir()
    scripts.save_script(model, STEADY)
    (tmp_path / "out" / "link").symlink_to("model")
    before = everything(tmp_path)
    done = package(tmp_path, *(argument.format(out=tmp_path / "out") for argument in arguments), "--overwrite")
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert everything(tmp_path) == before


def test_overwriting_replaces_all_and_only_when_told(tmp_path: Path) -> None:
    model = encoders.save_trained(tmp_path / "trained")
    stale = tmp_path / "out" / "model" / "stale"
    stale.parent.mkdir(parents=True)
    stale.touch()
    (tmp_path / "out" / "model.mar").write_bytes(b"stale")
    before = everything(tmp_path)
    refused = package(tmp_path, model)
    assert "model exists already: remove it, pass --overwrite" in refused.stderr
    assert everything(tmp_path) == before, "not even the format that was not in the way"
    assert package(tmp_path, model, "--overwrite").returncode == 0
    assert everything(tmp_path / "out" / "model") == everything(model)
    assert zipfile.is_zipfile(tmp_path / "out" / "model.mar")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["model", "model.mar", "model.tar.gz"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    model = encoders.save_trained(tmp_path / "trained")
    (model / "batch_handler").mkdir()  # the archive's own, so that the second format fails after the first is complete
    old = tmp_path / "out" / "model" / "old"
    old.parent.mkdir(parents=True)
    old.touch()
    before = everything(tmp_path)
    assert package(tmp_path, model, "--overwrite").returncode == 1
    assert everything(tmp_path) == before
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_on_the_way_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    model = encoders.save_trained(tmp_path / "trained")
    (model / "large.txt").write_bytes(os.urandom(1 << 28))
    out = tmp_path / "out"
    command = [str(ROOT / "scripts" / "package_model.py"), str(model), "--formats", "tar", "--output", str(out)]
    process = subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not any(out.glob(".package-*/model.tar.gz")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said == "package_model: stopped before anything was written\n"
    assert not out.exists()


def outside(tmp_path: Path, script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run by a Python that has nothing but its standard library, from another directory."""
    command = [getattr(sys, "_base_executable", sys.executable), "-S", str(script), *arguments]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)


def test_any_python_finds_the_checkouts_environment_and_writes_where_it_stands(tmp_path: Path) -> None:
    encoders.save_trained(tmp_path / "my-model")
    done = outside(tmp_path, ROOT / "scripts" / "package_model.py", "./my-model")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "model.mar", "model.tar.gz", "my-model"]


def test_without_the_environment_one_sentence_names_make(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    for name in ("package_model.py", "checkout.py"):
        (tmp_path / "scripts" / name).write_bytes((ROOT / "scripts" / name).read_bytes())
    done = outside(tmp_path, tmp_path / "scripts" / "package_model.py")
    assert done.returncode == 1
    assert done.stderr.startswith("package_model: Python has no yaml, tqdm, model_archiver here: run make serve or make model")
    assert len(done.stderr.strip().splitlines()) == 1
