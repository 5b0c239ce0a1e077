"""The repository in ECR: made when it is missing, with the password to push to it, and what it holds."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from publishing.errors import PublishingError

SCHEMA_2 = "application/vnd.docker.distribution.manifest.v2+json"
MANIFESTS = (
    SCHEMA_2,
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
)
KEPT_UNTAGGED_DAYS = 7
# SageMaker pulls an image whenever it starts an instance: those with a tag stay.
LIFECYCLE = {
    "rules": [
        {
            "rulePriority": 1,
            "description": f"images without a tag go after {KEPT_UNTAGGED_DAYS} days",
            "selection": {
                "tagStatus": "untagged",
                "countType": "sinceImagePushed",
                "countUnit": "days",
                "countNumber": KEPT_UNTAGGED_DAYS,
            },
            "action": {"type": "expire"},
        }
    ]
}


@dataclass(frozen=True, slots=True)
class Credentials:
    """For the Docker client; never shown."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials({self.user!r})"


def creation(name: str) -> dict[str, Any]:
    """CreateRepository: every image scanned when it comes, and no tag ever moved."""
    return {
        "repositoryName": name,
        "imageTagMutability": "IMMUTABLE",
        "imageScanningConfiguration": {"scanOnPush": True},
    }


def lifecycle(name: str) -> dict[str, Any]:
    """PutLifecyclePolicy."""
    return {"repositoryName": name, "lifecyclePolicyText": json.dumps(LIFECYCLE)}


def ensured(ecr: Any, name: str) -> tuple[str, bool]:
    """The repository's URI, and whether it was made just now. One that was there keeps its settings."""
    try:
        return str(ecr.describe_repositories(repositoryNames=[name])["repositories"][0]["repositoryUri"]), False
    except ClientError as error:
        if error.response["Error"]["Code"] != "RepositoryNotFoundException":
            raise
    uri = ecr.create_repository(**creation(name))["repository"]["repositoryUri"]
    ecr.put_lifecycle_policy(**lifecycle(name))
    return str(uri), True


def credentials(ecr: Any) -> Credentials:
    """A password of twelve hours, by GetAuthorizationToken."""
    (answer,) = ecr.get_authorization_token()["authorizationData"][:1]
    user, _, password = base64.b64decode(answer["authorizationToken"]).decode().partition(":")
    return Credentials(user, password)


def manifest_type(ecr: Any, name: str, tag: str) -> str | None:
    """The media type of the manifest under this tag, or None where there is none."""
    asked = {"repositoryName": name, "imageIds": [{"imageTag": tag}], "acceptedMediaTypes": list(MANIFESTS)}
    images = ecr.batch_get_image(**asked).get("images", [])
    if not images:
        return None
    declared = images[0].get("imageManifestMediaType") or json.loads(images[0]["imageManifest"]).get("mediaType")
    return str(declared)


def check_manifest(ecr: Any, name: str, tag: str) -> None:
    """Raises PublishingError unless what lies there is one image in Docker's form."""
    found = manifest_type(ecr, name, tag)
    if found is None:
        raise PublishingError(f"{name}:{tag} was pushed and is not in ECR: look at the engine's log")
    if found != SCHEMA_2:
        raise PublishingError(
            f"{name}:{tag} has a manifest of type {found}, which SageMaker refuses: "
            "switch the engine's containerd image store off, build again and push under another --tag"
        )
