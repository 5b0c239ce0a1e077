"""Settings and small artefacts for the unit tests. Models are built once a session, and only when a test asks for them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batch_handler.settings import Settings, resolve

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

Resolved = Callable[..., Settings]


@pytest.fixture(scope="session")
def settings() -> Resolved:
    """Settings from environment variables given as keywords: ``settings(SAGEMAKER_BATCH="true")``."""
    return lambda **variables: resolve({"BYOC_DEVICE": "cpu", "BYOC_THREADS": "1", **variables})


@pytest.fixture(scope="session")
def single_threaded() -> None:
    """One thread per kernel, as in the container, so that sums come out in one order."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def artefact(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Callable[..., Path]:
    """A tiny artefact by name, built once: an encoder's architecture, ``trained`` or a translator's name."""
    request.getfixturevalue("single_threaded")
    built: dict[tuple[Any, ...], Path] = {}

    def find(name: str, **options: Any) -> Path:
        key = (name, *sorted((option, str(value)) for option, value in options.items()))
        if key not in built:
            built[key] = _build(name, tmp_path_factory.mktemp(name) / "model", options)
        return built[key]

    return find


def _build(name: str, directory: Path, options: dict[str, Any]) -> Path:
    from models import encoders, translators

    if name == "trained":
        return encoders.save_trained(directory)
    if name in encoders.CONFIGURATIONS:
        return encoders.save(directory, name, **options)
    build: Callable[..., Path] = getattr(translators, f"save_{name}")
    return build(directory, **options)


@pytest.fixture(scope="module")
def loaded(settings: Resolved) -> Callable[[str, Path], Any]:
    """A task over an artefact by name and directory, loaded once a module."""
    tasks: dict[tuple[str, Path], Any] = {}

    def find(kind: str, directory: Path) -> Any:
        if (kind, directory) not in tasks:
            from batch_handler.tasks import load

            tasks[kind, directory] = load(kind, directory, settings())
        return tasks[kind, directory]

    return find
