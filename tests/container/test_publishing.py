"""A push by a real engine: built image, password, layers and manifest, to the stand-in for ECR on loopback."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from containers import DOCKER, IMAGE, docker
from deploy.stand_in_aws import StandIn
from running import ROOT

SMALL = "byoc-test-small:1"
LABEL = "com.amazonaws.sagemaker.capabilities.accept-bind-to-port"
SCHEMA_2 = "application/vnd.docker.distribution.manifest.v2+json"


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    """The stand-in, with its registry."""
    with StandIn(tmp_path_factory.mktemp("aws") / "moto.log") as stand_in:
        yield stand_in


@pytest.fixture(scope="module")
def small() -> Iterator[str]:
    """An image of one file and our label: a push of it costs nothing."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as writer:
        entry = tarfile.TarInfo("hello")
        entry.size = 5
        writer.addfile(entry, io.BytesIO(b"hello"))
    command = [DOCKER, "import", "--change", f"LABEL {LABEL}=true", "-", SMALL]
    subprocess.run(command, input=archive.getvalue(), capture_output=True, check=True)
    yield SMALL
    docker("image", "rm", "--force", SMALL, check=False)


def push(aws: StandIn, image: str, tag: str) -> subprocess.CompletedProcess[str]:
    """Push a local image to the repository byoc-test."""
    return run(aws, "build_and_push.sh", "byoc-test", "--image", image, "--tag", tag)


def run(aws: StandIn, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script against the stand-in, with the tests' own client first on the PATH."""
    path = f"{Path(DOCKER).parent}:{os.environ['PATH']}" if "/" in DOCKER else os.environ["PATH"]
    return subprocess.run(
        [str(ROOT / "scripts" / script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **aws.environment, "PATH": path},
        timeout=240,
    )


def test_an_image_arrives_whole_under_its_tag_and_in_dockers_form(aws: StandIn, small: str) -> None:
    ran = push(aws, small, "0.1.0")
    assert ran.returncode == 0, ran.stderr
    uri = ran.stdout.splitlines()[-1]
    assert uri == f"127.0.0.1:{aws.port}/byoc-test:0.1.0"
    try:
        assert aws.registry.pushed == [("byoc-test", "0.1.0", SCHEMA_2)]
        (image,) = aws.client("ecr").describe_images(repositoryName="byoc-test")["imageDetails"]
        assert image["imageTags"] == ["0.1.0"]
        again = push(aws, small, "0.1.0")
        assert again.returncode == 0, again.stderr
        assert again.stdout == ran.stdout
        assert len(aws.registry.pushed) == 1
    finally:
        docker("image", "rm", "--force", uri, check=False)


def test_the_password_stays_neither_here_nor_in_the_clients_configuration(aws: StandIn, small: str) -> None:
    ran = push(aws, small, "0.2.0")
    docker("image", "rm", "--force", ran.stdout.strip(), check=False)
    assert ran.returncode == 0, ran.stderr
    assert aws.registry.password not in ran.stdout + ran.stderr
    configuration = Path.home() / ".docker" / "config.json"
    assert not configuration.exists() or f"127.0.0.1:{aws.port}" not in configuration.read_text("utf-8")


def test_a_wrong_password_is_one_sentence(aws: StandIn, small: str) -> None:
    right, aws.registry.password = aws.registry.password, "changed meanwhile"
    try:
        ran = push(aws, small, "0.3.0")
    finally:
        aws.registry.password = right
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith("build_and_push: docker login failed: ")
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(("image", "words"), [(IMAGE, ""), ("debian:bookworm-slim", "no label accept-bind-to-port=true")])
def test_deploying_reads_the_label_of_an_image_that_the_engine_has(aws: StandIn, tmp_path: Path, image: str, words: str) -> None:
    description = {
        "name": "chained",
        "kind": "pipeline",
        "role": "arn:aws:iam::123456789012:role/sagemaker-execution",
        "image": image,
        "instances": {"type": "ml.c5.xlarge"},
        "containers": [{"hostname": "first"}, {"hostname": "second"}],
    }
    path = tmp_path / "endpoint.yaml"
    path.write_text(json.dumps(description))
    ran = run(aws, "deploy_endpoint.py", str(path), "--dry-run")
    assert ran.returncode == bool(words), ran.stderr
    assert words in ran.stderr
    assert "CreateEndpoint" in ran.stdout or words


def test_a_missing_image_is_one_sentence(aws: StandIn) -> None:
    ran = push(aws, "byoc-test-absent:1", "0.4.0")
    assert ran.returncode == 1
    assert "there is no image byoc-test-absent:1 here" in ran.stderr
