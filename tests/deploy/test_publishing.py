"""build_and_push.sh up to the push itself, which tests/container/test_publishing.py shows with a real engine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.stand_in_aws import StandIn
from publishing.errors import PublishingError
from publishing.naming import tag
from publishing.repository import LIFECYCLE, check_manifest, credentials, ensured
from running import ROOT

SCRIPT = "build_and_push.sh"
Run = Callable[..., Any]


@pytest.fixture
def new_docker(tmp_path: Path) -> dict[str, str]:
    """A client that knows --provenance, first on the PATH."""
    (tmp_path / "docker").symlink_to(ROOT / "tests" / "deploy" / "stand_in_docker.py")
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}", "STAND_IN_DOCKER_LOG": str(tmp_path / "log")}


def calls(new_docker: dict[str, str]) -> list[dict[str, Any]]:
    """How the client was called."""
    return [json.loads(line) for line in Path(new_docker["STAND_IN_DOCKER_LOG"]).read_text().splitlines()]


def test_a_missing_repository_is_made_with_scans_fixed_tags_and_a_lifecycle(aws: StandIn) -> None:
    ecr = aws.client("ecr")
    uri, made = ensured(ecr, "torchserve-byoc")
    assert made
    assert uri.endswith("/torchserve-byoc")
    (found,) = ecr.describe_repositories()["repositories"]
    assert found["imageTagMutability"] == "IMMUTABLE"
    assert found["imageScanningConfiguration"] == {"scanOnPush": True}
    policy = ecr.get_lifecycle_policy(repositoryName="torchserve-byoc")["lifecyclePolicyText"]
    assert json.loads(policy) == LIFECYCLE


def test_a_repository_that_is_there_keeps_its_settings(aws: StandIn) -> None:
    ecr = aws.client("ecr")
    ecr.create_repository(repositoryName="mine", imageTagMutability="MUTABLE")
    assert ensured(ecr, "mine")[1] is False
    assert ecr.describe_repositories()["repositories"][0]["imageTagMutability"] == "MUTABLE"


def test_the_password_shows_nowhere(aws: StandIn) -> None:
    key = credentials(aws.client("ecr"))
    assert (key.user, key.password) == ("AWS", aws.registry.password)
    assert key.password not in repr(key)


def test_the_tag_says_version_device_platform_and_revision() -> None:
    usual = tag("cpu", "linux/amd64", allow_changes=True)
    other = tag("gpu", "linux/arm64", allow_changes=True)
    assert usual.startswith("0.1.0-cpu-")
    assert other == usual.replace("-cpu-", "-gpu-arm64-")


def test_the_password_goes_to_the_clients_input_and_to_a_folder_that_vanishes(
    aws: StandIn, run: Run, new_docker: dict[str, str]
) -> None:
    ran = run(SCRIPT, "--image", "anything", "--tag", "1", **new_docker)
    made = calls(new_docker)
    assert [each["arguments"][0] for each in made] == ["image", "context", "login", "tag", "push"]
    assert all(aws.registry.password not in word for each in made for word in each["arguments"])
    login, push = made[2], made[4]
    assert login["given"] == aws.registry.password
    assert login["arguments"][-1] == f"127.0.0.1:{aws.port}"
    assert push["arguments"][-1] == f"127.0.0.1:{aws.port}/torchserve-byoc:1"
    assert push["config"] == login["config"]
    assert push["config_was_there"]
    assert not Path(push["config"]).exists()
    assert ran.returncode == 1
    assert "torchserve-byoc:1 was pushed and is not in ECR" in ran.stderr


def test_an_image_of_another_platform_is_not_pushed(aws: StandIn, run: Run, new_docker: dict[str, str]) -> None:
    ran = run(SCRIPT, "--image", "anything", "--tag", "1", "--platform", "linux/arm64", **new_docker)
    assert ran.returncode == 1
    assert "anything is for linux/amd64" in ran.stderr
    assert [each["arguments"][0] for each in calls(new_docker)] == ["image"]


def test_a_tag_that_is_there_is_not_pushed_again(aws: StandIn, run: Run, new_docker: dict[str, str]) -> None:
    put(aws, "application/vnd.docker.distribution.manifest.v2+json")
    ran = run(SCRIPT, "--tag", "1", **new_docker)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"127.0.0.1:{aws.port}/torchserve-byoc:1\n"
    assert not Path(new_docker["STAND_IN_DOCKER_LOG"]).exists()


def put(aws: StandIn, media_type: str) -> None:
    """A manifest of this type under the tag 1."""
    ecr = aws.client("ecr")
    ensured(ecr, "torchserve-byoc")
    manifest = {"schemaVersion": 2, "mediaType": media_type, "config": {"digest": "sha256:0"}, "layers": []}
    ecr.put_image(
        repositoryName="torchserve-byoc",
        imageManifest=json.dumps(manifest),
        imageManifestMediaType=media_type,
        imageTag="1",
    )


def test_a_manifest_that_sagemaker_refuses_is_found_out(aws: StandIn) -> None:
    put(aws, "application/vnd.oci.image.manifest.v1+json")
    with pytest.raises(PublishingError, match=r"oci\.image\.manifest.*SageMaker refuses"):
        check_manifest(aws.client("ecr"), "torchserve-byoc", "1")


def test_a_dry_run_shows_every_step_and_does_none(aws: StandIn, run: Run, new_docker: dict[str, str]) -> None:
    ran = run(SCRIPT, "mine", "--dry-run", "--tag", "1", "--platform", "linux/arm64", **new_docker)
    steps = json.loads(ran.stdout)
    shown = [step.get("operation") or step["run"][1] for step in steps]
    assert shown == ["CreateRepository", "PutLifecyclePolicy", "image", "GetAuthorizationToken", "login", "tag", "push"]
    assert steps[2]["DOCKER_BUILD_FLAGS"] == "--platform linux/arm64 --provenance=false"
    assert aws.calls == []
    assert not Path(new_docker["STAND_IN_DOCKER_LOG"]).exists()


def test_a_missing_client_is_one_sentence(run: Run, tmp_path: Path) -> None:
    for program in ("bash", "python3", "env", "dirname", "realpath", "git"):
        (tmp_path / program).symlink_to(
            next(Path(folder) / program for folder in ("/usr/bin", "/bin") if (Path(folder) / program).exists())
        )
    ran = run(SCRIPT, "--tag", "1", PATH=str(tmp_path))
    assert ran.returncode == 1
    assert ran.stderr == (
        "build_and_push: no docker client with BuildKit is on the PATH; on Debian 12: apt-get install docker.io\n"
    )
