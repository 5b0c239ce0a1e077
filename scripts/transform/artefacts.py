"""The model of a local job as a directory: as it is here, or unpacked from a tarball here or in S3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from batch_handler.artefact import ArtefactError
from transform import aws
from transform.faults import JobError
from transform.objects import address, listed
from unpack_model import unpack

TARBALLS = (".tar.gz", ".tgz", ".tar")


def source(container: dict[str, Any] | Any) -> str:
    """Where a create_model container says its model is; empty when it does not."""
    stored = container.get("ModelDataSource", {}).get("S3DataSource", {})
    return str(container.get("ModelDataUrl") or stored.get("S3Uri") or "")


def directory(text: str, scratch: Path) -> Path:
    """The model's files as SageMaker would lay them out. Downloads and unpacks into `scratch`. Raises JobError."""
    place = address(text)
    if not place.bucket and place.path.is_dir():
        return place.path
    target = scratch / "model"
    if not text.endswith(TARBALLS):
        if not place.bucket:
            raise JobError(f"{text} is no directory and no .tar.gz: name the model")
        target.mkdir()
        _copied(text, target)
        return target
    archive = place.path
    if place.bucket:
        archive = scratch / "model.tar.gz"
        try:
            aws.client("s3").download_file(place.bucket, place.key, str(archive))
        except aws.FAULTS as error:
            raise JobError(f"{text} cannot be fetched: {aws.sentence(error)}") from None
    try:
        unpack(archive, target)
    except ArtefactError as error:
        raise JobError(str(error).replace(str(archive), text)) from None
    return target


def _copied(text: str, target: Path) -> None:
    """An uncompressed prefix, object by object."""
    for found in listed(text.rstrip("/") + "/", "S3Prefix"):
        path = target / found.name
        if not path.resolve().is_relative_to(target.resolve()):
            raise JobError(f"{found.address.text} would leave the model's directory: rename it")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            aws.client("s3").download_file(found.address.bucket, found.address.key, str(path))
        except aws.FAULTS as error:
            raise JobError(f"{found.address.text} cannot be fetched: {aws.sentence(error)}") from None
