"""What an image says about itself: whether it moves its port, and which CUDA it holds.

Read from the local Docker engine, else from ECR through boto3: the manifest names the configuration, a signed URL gives it.
"""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from deployment.errors import DeploymentError

BIND_TO_PORT = "com.amazonaws.sagemaker.capabilities.accept-bind-to-port"
MULTI_MODELS = "com.amazonaws.sagemaker.capabilities.multi-models"
MANIFESTS = ("application/vnd.docker.distribution.manifest.v2+json", "application/vnd.oci.image.manifest.v1+json")
ECR_URI = re.compile(
    r"(?P<registry>(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?)"
    r"/(?P<repository>[^:@]+)(?::(?P<tag>[^@]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
TIMEOUT_S = 30
NO_GPU = ("void", "none")


@dataclass(frozen=True, slots=True)
class Image:
    """``cuda`` is (major, minor), or None where the image does not say; ``gpu`` whether it is made for one."""

    uri: str
    binds_to_port: bool
    gpu: bool
    cuda: tuple[int, int] | None
    architecture: str
    multi_models: bool = False


def inspect(uri: str, session: Any) -> Image:
    """The image's own words. Raises DeploymentError when neither Docker nor ECR has it."""
    configuration = from_docker(uri)
    if configuration is None:
        configuration = from_ecr(uri, session)
    return read(uri, configuration)


def read(uri: str, configuration: Mapping[str, Any]) -> Image:
    """What matters in an image's configuration, whose form is the same in Docker and in the OCI image specification."""
    config = configuration.get("config") or configuration.get("Config") or {}
    labels = config.get("Labels") or {}
    environment = dict(entry.partition("=")[::2] for entry in config.get("Env") or [])
    cuda = re.match(r"(\d+)\.(\d+)", environment.get("CUDA_VERSION", "")) or re.search(
        r"cuda>=(\d+)\.(\d+)", environment.get("NVIDIA_REQUIRE_CUDA", "")
    )
    devices = environment.get("NVIDIA_VISIBLE_DEVICES", "")
    return Image(
        uri=uri,
        binds_to_port=labels.get(BIND_TO_PORT) == "true",
        gpu=cuda is not None or (bool(devices) and devices not in NO_GPU),
        cuda=(int(cuda[1]), int(cuda[2])) if cuda else None,
        architecture=configuration.get("architecture") or configuration.get("Architecture") or "amd64",
        multi_models=labels.get(MULTI_MODELS) == "true",
    )


def from_docker(uri: str) -> dict[str, Any] | None:
    """The configuration of an image that the local engine has; None where there is no engine or no such image."""
    try:
        found = subprocess.run(
            ["docker", "image", "inspect", uri], capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if found.returncode != 0:
        return None
    described: list[dict[str, Any]] = json.loads(found.stdout)
    return described[0] if described else None


def from_ecr(uri: str, session: Any) -> dict[str, Any]:
    """The configuration that the image's manifest in ECR points to. Raises DeploymentError."""
    place = ECR_URI.fullmatch(uri)
    if not place:
        raise DeploymentError(f"{uri}: its labels cannot be read; pull it, or use an image in ECR")
    client = session.client("ecr", region_name=place["region"])
    wanted = {"imageDigest": place["digest"]} if place["digest"] else {"imageTag": place["tag"] or "latest"}
    here = {"registryId": place["account"], "repositoryName": place["repository"]}
    try:
        answer = client.batch_get_image(**here, imageIds=[wanted], acceptedMediaTypes=list(MANIFESTS))
        images = answer.get("images", [])
        if not images:
            reasons = ", ".join(each.get("failureReason", "") for each in answer.get("failures", []))
            raise DeploymentError(f"{uri} is not in ECR ({reasons or 'no such image'}): push it with build_and_push.sh first")
        manifest = json.loads(images[0]["imageManifest"])
        if "config" not in manifest:
            raise DeploymentError(f"{uri} is a list of images, which SageMaker refuses: push one with --provenance=false")
        url = client.get_download_url_for_layer(**here, layerDigest=manifest["config"]["digest"])["downloadUrl"]
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:  # noqa: S310 -- signed by ECR
            configuration: dict[str, Any] = json.load(response)
    except (BotoCoreError, ClientError, OSError, ValueError) as error:
        raise DeploymentError(f"{uri}: its labels cannot be read from ECR: {error}") from None
    return configuration
