"""Transform jobs against the image: as SageMaker's own SDK runs them, killed and resumed, over several containers."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from containers import DOCKER, IMAGE, Container, docker, readable
from models import encoders, translators
from models.language import sentences
from running import ROOT, free_port

sys.path[:0] = [str(ROOT / "tests" / "transform")]

from runner import LINES, Moto, Runner, clean_environment  # noqa: E402 -- after the path above

LOCAL_MODE = ROOT / "tests" / "local_mode"
SDK_PYTHON = Path(os.environ.get("LOCAL_MODE_PYTHON", ROOT / "build" / "local_mode" / "bin" / "python"))
BATCH = {"SAGEMAKER_BATCH": "true"}
TYPES = {"jsonl": "application/jsonlines", "csv": "text/csv"}
MATRIX = list(product(("Line", "None"), ("MultiRecord", "SingleRecord"), TYPES))
"""A job takes the SDK a quarter of a minute: all eight run under `make test-all`."""
CHOSEN = MATRIX if os.environ.get("TEST_ALL") else MATRIX[:1] + MATRIX[3:4]


@pytest.fixture(scope="session")
def client_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH on which `docker` is the client that the tests use."""
    folder = tmp_path_factory.mktemp("bin")
    found = subprocess.run(["bash", "-c", f"type -P {DOCKER}"], capture_output=True, text=True, check=True).stdout.strip()
    (folder / "docker").symlink_to(found)
    return f"{folder}:{os.environ['PATH']}"


@pytest.fixture
def run(tmp_path: Path, client_path: str) -> Runner:
    return Runner(tmp_path / "state", clean_environment(PATH=client_path))


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny classifier that any user may read."""
    return readable(encoders.save(tmp_path_factory.mktemp("classifier") / "model", "bert", num_hidden_layers=1))


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A file of each type, clean and of Unix lines, since the SDK reads files as text; one bad record in each."""
    folder = tmp_path / "in"
    folder.mkdir()
    records = sentences(200, seed=11)
    rows = [json.dumps({"id": number, "inputs": text}, ensure_ascii=False) for number, text in enumerate(records)]
    (folder / "a.jsonl").write_text("\n".join([*rows, '{"id": 200, "inputs": 17}', *rows[:3]]), "utf-8")
    with (folder / "b.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([*([text] for text in records), ["two", "columns"]])
    return folder


def tarball(model: Path, target: Path) -> Path:
    with tarfile.open(target, "w:gz") as packed:
        for path in sorted(model.iterdir()):
            packed.add(path, path.name)
    return target


def platform_job(folder: Path, output: Path, split: str, strategy: str, kind: str) -> dict[str, Any]:
    return {
        "TransformInput": {
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": folder.as_uri()}},
            "ContentType": TYPES[kind],
            "SplitType": split,
        },
        "TransformOutput": {"S3OutputPath": output.as_uri(), "Accept": TYPES[kind], "AssembleWith": split},
        "TransformResources": {"InstanceType": "local", "InstanceCount": 1},
        "BatchStrategy": strategy,
        "MaxPayloadInMB": 6,
    }


def test_the_output_is_that_of_the_sagemaker_sdks_local_mode_byte_by_byte(
    run: Runner, classifier: Path, texts: Path, tmp_path: Path, client_path: str
) -> None:
    assert SDK_PYTHON.is_file(), "the SDK's environment is not there: run `make build/.local_mode`"
    jobs = []
    for split, strategy, kind in CHOSEN:
        folder = tmp_path / f"in-{kind}"
        folder.mkdir(exist_ok=True)
        for path in texts.glob(f"*.{kind}"):
            path.rename(folder / path.name)
        output = tmp_path / f"sdk-{split}-{strategy}-{kind}"
        output.mkdir()
        jobs.append({"name": output.name, "arguments": platform_job(folder, output, split, strategy, kind)})
    asked = {
        "image": IMAGE,
        "model": str(tarball(classifier, tmp_path / "model.tar.gz")),
        "root": str(tmp_path),
        "port": free_port(),
        "jobs": jobs,
        "call": {"body": '{"inputs": "ka ro"}', "content_type": "application/json", "accept": "application/json"},
    }
    environment = clean_environment(PATH=client_path, SAGEMAKER_USER_CONFIG_OVERRIDE=str(LOCAL_MODE / "sdk.yaml"))
    before = sdk_containers()
    try:
        driven = subprocess.run(
            [str(SDK_PYTHON), str(LOCAL_MODE / "drive.py")],
            input=json.dumps(asked),
            env=environment,
            capture_output=True,
            text=True,
            timeout=1200,
        )
    finally:
        if left := sdk_containers() - before:
            docker("rm", "--force", "--volumes", *left)
    assert driven.returncode == 0, driven.stderr[-4000:]
    reported = json.loads(driven.stdout.splitlines()[-1])  # the SDK speaks first, while it is imported
    assert set(reported["states"].values()) == {"Completed"}
    assert set(json.loads(reported["answer"])) == {"label", "score"}

    with Container(classifier, BATCH) as container:
        for job in jobs:
            description = tmp_path / f"{job['name']}.json"
            ours = tmp_path / job["name"].replace("sdk", "ours")
            arguments = json.loads(json.dumps(job["arguments"]))
            arguments["TransformOutput"]["S3OutputPath"] = str(ours)
            del arguments["TransformResources"]
            arguments["MaxConcurrentTransforms"] = 1  # as local mode does: neighbours in a batch change a float's last digits
            description.write_text(json.dumps(arguments))
            done = run(description, "--local", container.base_url)
            assert done.returncode == 0, done.stderr
            assert contents(ours) == contents(tmp_path / job["name"]), job["name"]


def sdk_containers() -> set[str]:
    """What docker-compose leaves behind under the names that the SDK gives."""
    return set(docker("ps", "--all", "--quiet", "--filter", "name=-algo-1-").stdout.split())


def contents(folder: Path) -> dict[str, bytes]:
    """What a job wrote, by name; the lists of errors are ours alone."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.out")}
    assert found
    return found


def test_an_image_is_started_with_the_model_used_by_the_job_and_removed(
    run: Runner, classifier: Path, texts: Path, tmp_path: Path
) -> None:
    before = set(docker("ps", "--all", "--quiet").stdout.split())
    model = tarball(classifier, tmp_path / "model.tar.gz")
    job = ("--input", texts / "a.jsonl", "--output", tmp_path / "out", *LINES, "--local", IMAGE, "--model", model)
    done = run(*job, "--containers", 2, "--env", "BYOC_THREADS=1")
    assert done.returncode == 0, done.stderr
    assert "in flight to each of 2 containers" in done.stderr
    assert len((tmp_path / "out" / "a.jsonl.out").read_text("utf-8").splitlines()) == 204
    assert [json.loads(line)["line"] for line in (tmp_path / "out" / "a.jsonl.errors.jsonl").read_text().splitlines()] == [201]
    assert set(docker("ps", "--all", "--quiet").stdout.split()) <= before


def test_a_container_that_cannot_start_ends_the_job_with_its_own_last_words(run: Runner, texts: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    job = ("--input", texts, "--output", tmp_path / "out", *LINES, "--local", IMAGE, "--model", tmp_path / "empty")
    done = run(*job)
    assert done.returncode == 1
    assert "the container ended before it was ready: " in done.stderr
    assert "Traceback" not in done.stderr


def until(condition: Callable[[], bool], limit_s: float = 120.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_job_whose_container_is_killed_is_resumed_with_identical_output(run: Runner, classifier: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    rows = [{"id": number, "inputs": text} for number, text in enumerate(sentences(4_000, seed=3, longest=12))]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    job = ("--input", path, *LINES, "--batch-strategy", "SingleRecord", "--max-concurrent-transforms", 8)
    with Container(classifier, BATCH) as container:
        whole = run(*job, "--output", tmp_path / "whole", "--local", container.base_url)
        assert whole.returncode == 0, whole.stderr
    part = tmp_path / "out" / ".in.jsonl.out.part"
    with Container(classifier, BATCH) as container:
        killer = threading.Thread(
            target=lambda: (until(lambda: part.exists() and part.stat().st_size > 0), docker("kill", container.name))
        )
        killer.start()
        killed = run(*job, "--output", tmp_path / "out", "--local", container.base_url)
        killer.join()
    assert killed.returncode == 1
    assert "no container answers any more" in killed.stderr
    assert not (tmp_path / "out" / "in.jsonl.out").exists()
    with Container(classifier, BATCH) as container:
        resumed = run(*job, "--output", tmp_path / "out", "--local", container.base_url)
    assert resumed.returncode == 0, resumed.stderr
    done_before = 4_000 - int(resumed.stdout.split("this run ")[1].split(" records")[0].replace(",", ""))
    assert done_before > 0
    whole_rows, resumed_rows = (read(tmp_path / folder / "in.jsonl.out") for folder in ("whole", "out"))
    assert [row["id"] for row in resumed_rows] == list(range(4_000))
    assert [row["label"] for row in resumed_rows] == [row["label"] for row in whole_rows]
    # A float's last digits depend on the neighbours in a forward pass.
    assert [row["score"] for row in resumed_rows] == pytest.approx([row["score"] for row in whole_rows], abs=1e-5)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[Moto]:
    with Moto(tmp_path / "moto.log") as moto:
        yield moto


def test_many_languages_go_from_a_tarball_and_files_in_s3_to_joined_translations_in_s3(
    aws: Moto, client_path: str, tmp_path: Path
) -> None:
    model = readable(translators.save_m2m100(tmp_path / "m2m100"))
    aws.put("translations", model_tar_gz=tarball(model, tmp_path / "model.tar.gz").read_bytes())
    languages = ("de", "fr", "en")
    for target in languages:
        rows = [
            {"id": f"{target}-{number}", "inputs": text, "parameters": {"src_lang": "en", "tgt_lang": target}}
            for number, text in enumerate(sentences(20, seed=5, longest=6))
        ]
        body = "".join(json.dumps(row) + "\n" for row in rows)
        aws.client.put_object(Bucket="translations", Key=f"texts/{target}.jsonl", Body=body)
    run = Runner(tmp_path / "state", clean_environment(PATH=client_path, AWS_ENDPOINT_URL=aws.url))
    done = run(ROOT / "examples" / "translation-job.yaml", "--local", IMAGE, limit_s=600)
    assert done.returncode == 0, done.stderr
    for target in languages:
        rows = [json.loads(line) for line in aws.get("translations", f"translated/{target}.jsonl.out").splitlines()]
        assert [row["id"] for row in rows] == [f"{target}-{number}" for number in range(20)]
        assert all(isinstance(row["SageMakerOutput"]["translation_text"], str) for row in rows)
