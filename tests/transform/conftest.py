"""What transform jobs need: a server in batch mode, an S3 that is a process of its own, and the script as a person runs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from models import encoders
from running import ROOT, RunningServer

sys.path[:0] = [str(ROOT / "scripts"), str(Path(__file__).parent)]

from runner import BATCH, Moto, Runner, clean_environment  # noqa: E402 -- after the path above

collect_ignore_glob = [] if os.environ.get("TEST_ALL") else ["long/*"]


@pytest.fixture
def run(tmp_path: Path) -> Runner:
    """The script for jobs on folders."""
    return Runner(tmp_path / "state", clean_environment())


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier small enough that thousands of records a second go through it on a core."""
    return encoders.save(tmp_path_factory.mktemp("tiny") / "model", "bert", num_hidden_layers=1)


@pytest.fixture(scope="session")
def server(tiny: Path) -> Iterator[RunningServer]:
    """The classifier as a transform job's container."""
    with RunningServer(tiny, BATCH) as running:
        yield running


@pytest.fixture(scope="session")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    """AWS's stand-in, ended with the session."""
    with Moto(tmp_path_factory.mktemp("moto") / "log") as moto:
        yield moto


@pytest.fixture
def run_s3(tmp_path: Path, aws: Moto) -> Runner:
    """The script for jobs on S3."""
    return Runner(tmp_path / "state", clean_environment(AWS_ENDPOINT_URL=aws.url))
