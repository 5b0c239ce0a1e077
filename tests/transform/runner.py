"""The script as a person runs it, and an S3 API over HTTP: what the tests of transform jobs share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import boto3
from botocore.exceptions import BotoCoreError

from running import ROOT, free_port

SCRIPT = ROOT / "scripts" / "batch_transform.py"
ACCOUNT = {"AWS_ACCESS_KEY_ID": "made-up", "AWS_SECRET_ACCESS_KEY": "made-up", "AWS_DEFAULT_REGION": "us-east-1"}
LINES = ("--content-type", "application/jsonlines", "--split-type", "Line", "--assemble-with", "Line")
BATCH = {"SAGEMAKER_BATCH": "true"}


@dataclass(frozen=True)
class Runner:
    """`batch_transform.py` in a state folder of its own."""

    state: Path
    environment: Mapping[str, str]

    def command(self, *arguments: object) -> list[str]:
        state = () if "--dry-run" in arguments and "--local" not in arguments else ("--state", self.state)
        return [sys.executable, str(SCRIPT), *map(str, (*arguments, *state))]

    def __call__(self, *arguments: object, limit_s: float = 240.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), capture_output=True, text=True, env=self.environment, timeout=limit_s, check=False
        )

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment
        )


def peak_memory(process: subprocess.Popen[str]) -> list[int]:
    """Resident bytes of a process, read until it ends, in the order of time; the kernel's own peak is the last."""
    seen = []
    peak = 0
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        found = {
            line.split(":")[0]: int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(("VmRSS", "VmHWM"))
        }
        if found:
            seen.append(found["VmRSS"])
            peak = found["VmHWM"]
        time.sleep(0.05)
    process.wait()
    return [*seen, peak]


def clean_environment(**more: str) -> dict[str, str]:
    """This process's variables without an AWS account's, and more."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {**kept, **ACCOUNT, **more}


class S3:
    """An S3 API over HTTP, and boto3 as it is to ask it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client: Any = boto3.client(
            "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
        )

    def put(self, bucket: str, **objects: bytes | str) -> None:
        """A new bucket with objects; `__` in a name is a slash and `_` a dot."""
        self.client.create_bucket(Bucket=bucket)
        for name, content in objects.items():
            self.client.put_object(Bucket=bucket, Key=name.replace("__", "/").replace("_", "."), Body=content)

    def get(self, bucket: str, key: str) -> bytes:
        content: bytes = self.client.get_object(Bucket=bucket, Key=key)["Body"].read()
        return content

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        return [entry["Key"] for entry in self.client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])]

    def unfinished(self, bucket: str) -> list[str]:
        return [upload["Key"] for upload in self.client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])]


class Moto(S3):
    """moto's server: S3, SageMaker and CloudWatch Logs as one process. Use it as a context manager."""

    def __init__(self, log: Path) -> None:
        port = free_port()
        with log.open("w") as file:
            self._process = subprocess.Popen([sys.executable, "-m", "moto.server", "--port", str(port)], stdout=file, stderr=file)
        super().__init__(f"http://127.0.0.1:{port}")
        deadline = time.monotonic() + 60
        while True:
            try:
                self.client.list_buckets()
                return
            except BotoCoreError:
                assert self._process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(20)
