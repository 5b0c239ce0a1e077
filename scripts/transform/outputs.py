"""Where the output of one object grows until it is whole: a file beside its place, or the parts of an upload to S3.

Nobody sees it under its name before. Its position, a JSON object, is what the journal keeps to go on from there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Protocol

from transform import aws
from transform.faults import JobError
from transform.journal import ObjectJournal, sync_folder
from transform.objects import Address

PART_BYTES = 8 * 1024 * 1024
"""An upload has at most 10,000 parts of at least 5 MiB: their size doubles every thousand, so that 5 TiB fit."""
DOUBLING = 1000
PART_FACT = "part"
UPLOAD_FACT = "upload"


class Output(Protocol):
    """The growing output of one object."""

    def resume(self, position: Mapping[str, Any]) -> bool:
        """Go back to a position of an earlier run; False when what it wrote is gone."""

    def write(self, data: bytes) -> None:
        """Add bytes to the end."""

    def sync(self) -> dict[str, Any]:
        """Make all bytes so far safe; the position behind them."""

    def complete(self, errors: Path | None) -> None:
        """Put the list of errors, where there is one, and then the output in their places."""

    def present(self, position: Mapping[str, Any]) -> bool:
        """Whether the completed output of an earlier run is in its place."""

    def discard(self) -> None:
        """Remove what is not complete."""

    def close(self) -> None:
        """Let files go; what is not complete stays for another run."""


def output(target: Address, name: str, kms_key: str | None, journal: ObjectJournal) -> Output:
    """The output ``<name>.out`` below the job's output address, its errors in ``<name>.errors.jsonl``."""
    if not target.bucket:
        return LocalOutput(target.path, name)
    prefix = f"{target.key.rstrip('/')}/" if target.key.strip("/") else ""
    return S3Output(target.bucket, prefix + name, kms_key, journal)


class LocalOutput:
    """A file: ``.<name>.out.part`` until it is renamed."""

    def __init__(self, root: Path, name: str) -> None:
        place = root / name
        self._final = place.with_name(f"{place.name}.out")
        self._errors = place.with_name(f"{place.name}.errors.jsonl")
        self._part = place.with_name(f".{place.name}.out.part")
        self._file: IO[bytes] | None = None

    def resume(self, position: Mapping[str, Any]) -> bool:
        length = int(position.get("bytes", 0))
        try:
            self._part.parent.mkdir(parents=True, exist_ok=True)
            if length and (not self._part.exists() or self._part.stat().st_size < length):
                return False
            self._file = self._part.open("r+b" if self._part.exists() else "w+b")
            self._file.truncate(length)
            self._file.seek(length)
        except OSError as error:
            raise JobError(f"{self._part} cannot be written: {error.strerror}") from None
        return True

    def write(self, data: bytes) -> None:
        assert self._file is not None  # noqa: S101 -- resume comes first
        try:
            self._file.write(data)
        except OSError as error:
            raise JobError(f"{self._part} cannot be written: {error.strerror}") from None

    def sync(self) -> dict[str, Any]:
        assert self._file is not None  # noqa: S101 -- resume comes first
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise JobError(f"{self._part} cannot be written: {error.strerror}") from None
        return {"bytes": self._file.tell()}

    def complete(self, errors: Path | None) -> None:
        assert self._file is not None  # noqa: S101 -- resume comes first
        try:
            self._file.close()
            if errors:
                beside = self._errors.with_name(f".{self._errors.name}.part")
                shutil.copyfile(errors, beside)
                beside.replace(self._errors)
            else:
                self._errors.unlink(missing_ok=True)
            self._part.replace(self._final)
            sync_folder(self._final.parent)
        except OSError as error:
            raise JobError(f"{self._final} cannot be written: {error.strerror}") from None

    def present(self, position: Mapping[str, Any]) -> bool:
        return self._final.is_file() and self._final.stat().st_size == position.get("bytes")

    def discard(self) -> None:
        if self._file is not None:
            self._file.close()
        self._part.unlink(missing_ok=True)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class S3Output:
    """A multipart upload. What is not yet a part lies in the journal's folder, one part at most; small outputs are one PUT."""

    def __init__(self, bucket: str, key: str, kms_key: str | None, journal: ObjectJournal) -> None:
        self._bucket = bucket
        self._key = f"{key}.out"
        self._errors = f"{key}.errors.jsonl"
        self._encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key} if kms_key else {}
        self._journal = journal
        self._upload: str | None = None
        self._parts: list[dict[str, Any]] = []
        self._uploaded = 0
        self._tail: IO[bytes] | None = None

    def resume(self, position: Mapping[str, Any]) -> bool:
        uploads = self._journal.facts(UPLOAD_FACT)
        count, length = int(position.get("parts", 0)), int(position.get("tail", 0))
        self._upload = uploads[-1] if uploads else None
        tags = {part["PartNumber"]: part for part in self._journal.facts(PART_FACT)}
        self._parts = [tags[number] for number in range(1, count + 1)]
        self._uploaded = int(position.get("bytes", 0)) - length
        path = self._tail_path()
        if self._upload and not self._upload_lives():
            return False
        if length and (not path.exists() or path.stat().st_size < length):
            return False
        self._tail = path.open("r+b" if path.exists() else "w+b")
        self._tail.truncate(length)
        self._tail.seek(length)
        return True

    def write(self, data: bytes) -> None:
        assert self._tail is not None  # noqa: S101 -- resume comes first
        self._tail.write(data)

    def sync(self) -> dict[str, Any]:
        assert self._tail is not None  # noqa: S101 -- resume comes first
        self._forget_parts(len(self._parts))
        self._tail.flush()
        os.fsync(self._tail.fileno())
        if self._tail.tell() >= PART_BYTES << (len(self._parts) // DOUBLING):
            self._upload_part()
        length = self._tail.tell()
        return {"parts": len(self._parts), "tail": length, "bytes": self._uploaded + length}

    def complete(self, errors: Path | None) -> None:
        assert self._tail is not None  # noqa: S101 -- resume comes first
        try:
            if errors:
                aws.client("s3").upload_file(str(errors), self._bucket, self._errors, ExtraArgs=self._encryption)
            else:
                aws.client("s3").delete_object(Bucket=self._bucket, Key=self._errors)
            if self._upload is None:
                self._tail.seek(0)
                aws.client("s3").put_object(Bucket=self._bucket, Key=self._key, Body=self._tail, **self._encryption)
            else:
                if self._tail.tell():
                    self._upload_part()
                named = {"Bucket": self._bucket, "Key": self._key, "UploadId": self._upload}
                aws.client("s3").complete_multipart_upload(**named, MultipartUpload={"Parts": self._parts})
                self._abort_lost_uploads()
        except aws.FAULTS as error:
            raise self._unwritable(error) from None
        self._tail.close()
        self._forget_parts(len(self._parts) + 1)

    def present(self, position: Mapping[str, Any]) -> bool:
        try:
            head = aws.client("s3").head_object(Bucket=self._bucket, Key=self._key)
        except aws.FAULTS as error:
            if aws.status(error) == 404:
                return False
            raise self._unwritable(error) from None
        return bool(head["ContentLength"] == position.get("bytes"))

    def discard(self) -> None:
        for upload in self._journal.facts(UPLOAD_FACT):
            try:
                aws.client("s3").abort_multipart_upload(Bucket=self._bucket, Key=self._key, UploadId=upload)
            except aws.FAULTS as error:
                if aws.code(error) != "NoSuchUpload":
                    raise self._unwritable(error) from None
        if self._tail is not None:
            self._tail.close()
        self._upload, self._parts, self._uploaded = None, [], 0

    def close(self) -> None:
        if self._tail is not None:
            self._tail.close()

    def _upload_part(self) -> None:
        """The tail becomes a part, whose tag is safe at once; its bytes stay here until the journal has moved on."""
        assert self._tail is not None  # noqa: S101 -- only called with a tail
        size = self._tail.tell()
        self._tail.seek(0)
        try:
            if self._upload is None:
                begun = aws.client("s3").create_multipart_upload(Bucket=self._bucket, Key=self._key, **self._encryption)
                self._upload = str(begun["UploadId"])
                self._journal.keep(self._journal.progress, **{UPLOAD_FACT: self._upload})
            named = {"Bucket": self._bucket, "Key": self._key, "UploadId": self._upload}
            done = aws.client("s3").upload_part(**named, PartNumber=len(self._parts) + 1, Body=self._tail)
        except aws.FAULTS as error:
            raise self._unwritable(error) from None
        part = {"PartNumber": len(self._parts) + 1, "ETag": done["ETag"]}
        self._journal.keep(self._journal.progress, **{PART_FACT: part})
        self._parts.append(part)
        self._uploaded += size
        self._tail.close()
        self._tail = self._tail_path().open("w+b")

    def _abort_lost_uploads(self) -> None:
        """Uploads of this key whose identifiers never arrived here, since the answer to their creation was lost: they cost."""
        try:
            found = aws.client("s3").list_multipart_uploads(Bucket=self._bucket, Prefix=self._key).get("Uploads", [])
            for upload in found:
                if upload["Key"] == self._key and upload["UploadId"] != self._upload:
                    aws.client("s3").abort_multipart_upload(Bucket=self._bucket, Key=self._key, UploadId=upload["UploadId"])
        except aws.FAULTS:
            return  # the right to list uploads is not needed to write, and the output is whole

    def _tail_path(self) -> Path:
        """The bytes of the next part; each part has a file of its own."""
        return self._journal.folder / f"part-{len(self._parts) + 1:05}"

    def _forget_parts(self, count: int) -> None:
        for number in range(count, 0, -1):
            path = self._journal.folder / f"part-{number:05}"
            if not path.exists():
                return
            path.unlink()

    def _upload_lives(self) -> bool:
        try:
            aws.client("s3").list_parts(Bucket=self._bucket, Key=self._key, UploadId=self._upload, MaxParts=1)
        except aws.FAULTS as error:
            if aws.code(error) == "NoSuchUpload":
                return False
            raise self._unwritable(error) from None
        return True

    def _unwritable(self, error: Exception) -> JobError:
        return JobError(f"s3://{self._bucket}/{self._key} cannot be written: {aws.sentence(error)}")
