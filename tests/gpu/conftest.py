"""Tests that need a GPU. Where there is none they are reported as NOT RUN, each by its name, and never pass in silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from batch_handler.settings import Settings, resolve

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what cannot be run here, with the reason that the summary shows."""
    if torch.cuda.is_available():
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="NOT RUN: no CUDA device can be used here"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The last word, where nobody reads the list of skipped tests."""
    left = [report for report in terminalreporter.getreports("skipped") if "NOT RUN" in str(report.longrepr)]
    if left:
        terminalreporter.write_line(f"##### {len(left)} GPU TESTS DID NOT RUN: no CUDA device can be used here #####", red=True)


@pytest.fixture(scope="session")
def on_gpu() -> Callable[..., Settings]:
    """Settings for the GPU, further ones as keywords."""
    return lambda **variables: resolve({"BYOC_DEVICE": "cuda", "BYOC_THREADS": "2", **variables})
