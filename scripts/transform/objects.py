"""The input of a job: which objects there are, and their bytes as a stream that survives a broken connection.

An object is a file here or a key in S3; its name below the input's address becomes the name of its output.
"""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter
from urllib3.exceptions import HTTPError

from transform import aws
from transform.faults import FileError, JobError

READ_BYTES = 1 << 20
REOPENINGS = 6
GONE = (404, 412, 416)
"""What S3 answers when the object is not the one that was listed any more."""


@dataclass(frozen=True, slots=True)
class Address:
    """``bucket`` and ``key`` in S3, or a path here when ``bucket`` is empty. Printed as it was written."""

    text: str
    bucket: str
    key: str

    @property
    def path(self) -> Path:
        """The path here."""
        return Path(self.key)


@dataclass(frozen=True, slots=True)
class InputObject:
    """``name`` is relative to the input; ``version`` is the ETag, or the time of the last change in ns; ``size`` in bytes."""

    address: Address
    name: str
    size: int
    version: str


def address(text: str) -> Address:
    """Take an ``s3://bucket/key``, a ``file://`` address or a path apart. Raises JobError."""
    parts = urlsplit(text)
    if parts.scheme == "s3":
        if not parts.netloc:
            raise JobError(f"{text} names no bucket: write s3://bucket/prefix")
        return Address(text, parts.netloc, text.removeprefix(f"s3://{parts.netloc}").removeprefix("/"))
    if parts.scheme == "file":
        return Address(text, "", unquote(parts.path))
    if parts.scheme in ("http", "https"):
        raise JobError(f"{text} is a web address: write s3://bucket/prefix, or a path")
    return Address(text, "", text)


def listed(text: str, data_type: str) -> list[InputObject]:
    """Every object of the input, in the order of names, or in the manifest's. Raises JobError."""
    place = address(text)
    if data_type == "ManifestFile":
        found = list(_of_manifest(place))
    else:
        found = list(_of_prefix(place) if place.bucket else _of_folder(place))
    if not found:
        raise JobError(f"{text} holds no object: check the address")
    return found


def opened(found: InputObject, compression: str, offset: int) -> BinaryIO:
    """The object's bytes from `offset` on, inflated where it is compressed; `offset` then counts inflated bytes.

    Raises FileError, here and while reading, when the object has changed since it was listed or cannot be read.
    """
    if compression == "Gzip":
        inflated = gzip.GzipFile(fileobj=_raw(found, 0))
        inflated.seek(offset)
        return io.BufferedReader(inflated, READ_BYTES)
    return _raw(found, offset)


def _raw(found: InputObject, offset: int) -> BinaryIO:
    if found.address.bucket:
        return io.BufferedReader(S3Stream(found, offset), READ_BYTES)
    try:
        file = found.address.path.open("rb", buffering=READ_BYTES)
        state = os.fstat(file.fileno())
    except OSError as error:
        raise FileError(f"it cannot be read: {error.strerror}") from None
    if (state.st_size, str(state.st_mtime_ns)) != (found.size, found.version):
        raise FileError("it has changed since the job began: run the job again")
    file.seek(offset)
    return file


class S3Stream(io.RawIOBase):
    """An object's bytes from an offset to its end. A connection that breaks is opened again where it broke."""

    def __init__(self, found: InputObject, offset: int) -> None:
        super().__init__()
        self._found = found
        self._offset = offset
        self._body: Any = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        if self._offset >= self._found.size:
            return 0
        try:
            data = self._some_at_last(len(view))
        except (*aws.FAULTS, HTTPError, OSError) as error:
            raise _unreadable(error) from None
        view[: len(data)] = data
        self._offset += len(data)
        return len(data)

    def close(self) -> None:
        if self._body is not None:
            self._body.close()
            self._body = None
        super().close()

    def _some_at_last(self, size: int) -> bytes:
        """At least a byte, after as many connections as it takes, within reason."""
        retrying = Retrying(
            stop=stop_after_attempt(REOPENINGS),
            wait=wait_exponential_jitter(initial=0.1, max=20),
            retry=retry_if_exception_type((*aws.CONNECTION_FAULTS, HTTPError, OSError)),
            reraise=True,
        )
        return retrying(self._some, size)

    def _some(self, size: int) -> bytes:
        """At least a byte. Raises what the connection raises, after which the next call opens another."""
        try:
            if self._body is None:
                self._body = self._open()
            data: bytes = self._body.read(size)
            if not data:
                raise ConnectionResetError("the object ended before its size")
        except (*aws.FAULTS, HTTPError, OSError) as error:
            if self._body is not None:
                self._body.close()
                self._body = None
            if aws.status(error):
                raise _unreadable(error) from None
            raise
        return data

    def _open(self) -> Any:
        place = self._found.address
        asked = {"Bucket": place.bucket, "Key": place.key, "Range": f"bytes={self._offset}-", "IfMatch": self._found.version}
        return aws.client("s3").get_object(**asked)["Body"]


def _unreadable(error: Exception) -> FileError:
    if aws.status(error) in GONE:
        return FileError("it has changed or gone since the job began: run the job again")
    return FileError(f"it cannot be read from S3: {aws.sentence(error)}")


def _of_prefix(place: Address) -> Iterator[InputObject]:
    """Keys that begin with the prefix, as the platform takes it. Their names begin after its last slash."""
    above = place.key.rpartition("/")[0]
    start = len(above) + 1 if above else 0
    try:
        for page in aws.client("s3").get_paginator("list_objects_v2").paginate(Bucket=place.bucket, Prefix=place.key):
            for entry in page.get("Contents", ()):
                if not entry["Key"].endswith("/"):
                    found = Address(f"s3://{place.bucket}/{entry['Key']}", place.bucket, entry["Key"])
                    yield InputObject(found, entry["Key"][start:], entry["Size"], entry["ETag"])
    except aws.FAULTS as error:
        raise JobError(f"{place.text} cannot be listed: {aws.sentence(error)}") from None


def _of_folder(place: Address) -> Iterator[InputObject]:
    """A file, or every file below a folder but hidden ones."""
    root = place.path
    if root.is_file():
        yield _file(root, root.name)
        return
    if not root.is_dir():
        raise JobError(f"{place.text} does not exist: name a file, a folder or s3://bucket/prefix")
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            yield _file(path, str(name))


def _file(path: Path, name: str) -> InputObject:
    state = path.stat()
    return InputObject(Address(str(path), "", str(path)), name, state.st_size, str(state.st_mtime_ns))


def _of_manifest(place: Address) -> Iterator[InputObject]:
    """The objects that a manifest names: ``[{"prefix": "s3://bucket/data/"}, "relative/key", …]``."""
    wrong = f'{place.text} is no manifest: it must be a JSON list, [{{"prefix": "s3://bucket/data/"}}, "relative/key", …]'
    try:
        entries = json.loads(_content(place))
        prefix = entries[0]["prefix"]
        names = entries[1:]
    except (ValueError, LookupError, TypeError):
        raise JobError(wrong) from None
    if not isinstance(prefix, str) or not all(isinstance(name, str) and name for name in names):
        raise JobError(wrong)
    for name in names:
        found = address(prefix + name)
        if not found.bucket:
            if not found.path.is_file():
                raise JobError(f"{found.text}, which {place.text} names, does not exist")
            yield _file(found.path, name)
            continue
        try:
            head = aws.client("s3").head_object(Bucket=found.bucket, Key=found.key)
        except aws.FAULTS as error:
            raise JobError(f"{found.text}, which {place.text} names, cannot be found: {aws.sentence(error)}") from None
        yield InputObject(found, name, head["ContentLength"], head["ETag"])


def _content(place: Address) -> bytes:
    try:
        if place.bucket:
            content: bytes = aws.client("s3").get_object(Bucket=place.bucket, Key=place.key)["Body"].read()
            return content
        return place.path.read_bytes()
    except (*aws.FAULTS, OSError) as error:
        raise JobError(f"{place.text} cannot be read: {aws.sentence(error)}") from None
