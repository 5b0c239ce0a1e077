"""AWS's stand-in, started once, and the scripts as a person runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from running import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

from deploy.stand_in_aws import StandIn

Ran = subprocess.CompletedProcess[str]
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/torchserve-byoc:0.1.0"
ROLE = "arn:aws:iam::123456789012:role/sagemaker-execution"


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    """One stand-in for all tests."""
    with StandIn(tmp_path_factory.mktemp("aws") / "moto.log") as stand_in:
        yield stand_in


@pytest.fixture
def aws(started: StandIn) -> StandIn:
    """An empty account."""
    started.reset()
    return started


@pytest.fixture
def run(started: StandIn) -> Callable[..., Ran]:
    """Runs a script of scripts/ against the stand-in."""

    def call(script: str, *arguments: object, **more: str) -> Ran:
        command = [str(ROOT / "scripts" / script), *map(str, arguments)]
        environment = {**os.environ, **started.environment, **more}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)

    return call


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """A description's file: a real-time endpoint with these changes; None removes a key."""

    def write(**changes: Any) -> Path:
        values = {
            "name": "sentences",
            "role": ROLE,
            "image": IMAGE,
            "model": "s3://bucket/model.tar.gz",
            "instances": {"type": "ml.c5.xlarge"},
        } | changes
        path = tmp_path / "endpoint.yaml"
        path.write_text(yaml.safe_dump({key: value for key, value in values.items() if value is not None}), "utf-8")
        return path

    return write


@pytest.fixture
def deploy(run: Callable[..., Ran]) -> Callable[..., Ran]:
    """Runs the script and expects it to succeed."""

    def call(*arguments: object) -> Ran:
        ran = run("deploy_endpoint.py", *arguments, "--pause", "0.05")
        assert ran.returncode == 0, ran.stderr
        return ran

    return call
