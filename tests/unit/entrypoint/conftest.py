"""Builders that several of these tests share."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from batch_handler.resources import Resources
from batch_handler.settings import MIB

GIB = 1024 * MIB
MakeArchive = Callable[..., Path]
MakeModel = Callable[..., Path]


@pytest.fixture
def small_machine() -> Resources:
    """Two and a half CPUs and 4 GiB."""
    return Resources(cpus=2.5, memory_bytes=4 * GIB, memory_is_limited=True)


@pytest.fixture
def make_archive(tmp_path: Path) -> MakeArchive:
    """Write a .mar file: entries by name, and a manifest with these keys of ``model``."""

    def make(entries: Mapping[str, str | bytes] | None = None, **model: Any) -> Path:
        path = tmp_path / "artefact" / "some.mar"
        path.parent.mkdir(exist_ok=True)
        manifest = {"runtime": "python", "model": {"modelName": "some", "modelVersion": "3.0", **model}}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("MAR-INF/MANIFEST.json", json.dumps(manifest))
            for name, content in (entries or {}).items():
                archive.writestr(name, content)
        return path

    return make


@pytest.fixture
def make_model(tmp_path: Path) -> MakeModel:
    """Write a Hugging Face directory that passes the checks, with these files added."""

    def make(**files: str) -> Path:
        directory = tmp_path / "artefact"
        directory.mkdir(exist_ok=True)
        header = json.dumps({"weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
        (directory / "config.json").write_text('{"model_type": "bert", "architectures": ["BertForSequenceClassification"]}')
        (directory / "tokenizer.json").write_text("{}")
        for name, content in files.items():
            (directory / name.replace("__", "-").replace("_yaml", ".yaml")).write_text(content)
        return directory

    return make
