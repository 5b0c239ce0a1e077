"""recommender_payload.py: an archive that the Recommender reads, and a job that its API accepts."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deployment.calls import Call, check

SCRIPT = "recommender_payload.py"
ROLE = "arn:aws:iam::123456789012:role/sagemaker-execution"


@pytest.fixture
def prepare(run: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Runs the script with what it needs; the files go to the test's own folder."""

    def call(samples: Path, *more: str) -> Any:
        places = ("--archive", tmp_path / "payload.tar.gz", "--job", tmp_path / "job.json")
        needed = ("--payload", "s3://bucket/payload.tar.gz", "--role", ROLE, "--model-name", "sentences-0123456789ab")
        return run(SCRIPT, samples, *needed, *places, *more)

    return call


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two bodies, a hidden file and a folder."""
    samples = tmp_path / "samples"
    (samples / "inner").mkdir(parents=True)
    (samples / "a.json").write_text('{"inputs": "rain"}')
    (samples / "b.json").write_text('{"inputs": "snow"}')
    (samples / ".hidden").write_text("no")
    return samples


def test_the_archive_is_flat_and_the_same_every_time(prepare: Callable[..., Any], folder: Path, tmp_path: Path) -> None:
    assert prepare(folder).returncode == 0
    first = (tmp_path / "payload.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "payload.tar.gz") as archive:
        assert archive.getnames() == ["a.json", "b.json"]
        member = archive.extractfile("b.json")
        assert member is not None
        assert member.read() == b'{"inputs": "snow"}'
    assert prepare(folder).returncode == 0
    assert (tmp_path / "payload.tar.gz").read_bytes() == first


def test_lines_become_bodies(prepare: Callable[..., Any], tmp_path: Path) -> None:
    lines = tmp_path / "bodies.jsonl"
    lines.write_text('{"inputs": "rain"}\n\n{"inputs": "snow"}\n')
    assert prepare(lines).returncode == 0
    with tarfile.open(tmp_path / "payload.tar.gz") as archive:
        assert archive.getnames() == ["sample-0001.json", "sample-0002.json"]


def test_the_job_varies_batch_size_and_delay_on_every_instance(prepare: Callable[..., Any], folder: Path, tmp_path: Path) -> None:
    ran = prepare(
        folder, "--instance-types", "ml.c5.xlarge,ml.m5.large", "--batch-sizes", "4,16", "--delays", "1", "--latency-ms", "80"
    )
    assert ran.returncode == 0, ran.stderr
    job = json.loads((tmp_path / "job.json").read_text())
    check(Call("sagemaker", "CreateInferenceRecommendationsJob", job))
    settings = {"SAGEMAKER_TS_BATCH_SIZE": ["4", "16"], "SAGEMAKER_TS_MAX_BATCH_DELAY": ["1"]}
    for configuration in job["InputConfig"]["EndpointConfigurations"]:
        ranges = configuration["EnvironmentParameterRanges"]["CategoricalParameterRanges"]
        assert {each["Name"]: each["Value"] for each in ranges} == settings
    assert [each["InstanceType"] for each in job["InputConfig"]["EndpointConfigurations"]] == ["ml.c5.xlarge", "ml.m5.large"]
    assert job["InputConfig"]["ResourceLimit"] == {"MaxNumberOfTests": 4}
    assert job["StoppingConditions"]["ModelLatencyThresholds"] == [{"Percentile": "P95", "ValueInMilliseconds": 80}]
    assert f"--cli-input-json file://{tmp_path / 'job.json'}" in ran.stdout


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--instance-types", "ml.c5.huge"), "InstanceType is 'ml.c5.huge'"),
        (("--batch-sizes", "1,2,3,4"), "at most 3 values"),
        (("--delays", "soon"), "write whole numbers from 1"),
        (("--role", "me"), "RoleArn"),
    ],
)
def test_a_job_that_would_be_refused_is_not_written(
    prepare: Callable[..., Any], folder: Path, tmp_path: Path, more: tuple[str, ...], words: str
) -> None:
    ran = prepare(folder, *more)
    assert ran.returncode != 0
    assert words in ran.stderr
    assert not (tmp_path / "job.json").exists()
    assert not (tmp_path / "payload.tar.gz").exists()


def test_samples_that_are_not_there_or_empty_are_one_sentence(prepare: Callable[..., Any], tmp_path: Path) -> None:
    absent = prepare(tmp_path / "absent")
    assert absent.returncode == 1
    assert "does not exist" in absent.stderr
    (tmp_path / "empty").mkdir()
    assert "holds no samples" in prepare(tmp_path / "empty").stderr
    (tmp_path / "blank").mkdir()
    (tmp_path / "blank" / "a.json").touch()
    assert "a.json has 0 bytes" in prepare(tmp_path / "blank").stderr
