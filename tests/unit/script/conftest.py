"""Scripts loaded from their text, each a module of its own."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from batch_handler.script import Script
from batch_handler.settings import Settings
from scripting import MakeScript


@pytest.fixture(autouse=True)
def _own_modules() -> Iterator[None]:
    """Each test imports its own `inference` and leaves no name of it behind."""
    path, modules, writes = list(sys.path), set(sys.modules), sys.dont_write_bytecode
    yield
    sys.path[:] = path
    sys.dont_write_bytecode = writes
    for name in {"inference", "handler", "utils", "config", "formats", "serve"} | (set(sys.modules) - modules):
        if "code" in str(getattr(sys.modules.get(name), "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def script(tmp_path: Path, settings: Callable[..., Settings]) -> MakeScript:
    """Load a script from its text, with files beside it and settings."""

    def make(text: str, files: dict[str, str | bytes] | None = None, **variables: str) -> Script:
        program = f"code/{variables.get('SAGEMAKER_PROGRAM', 'inference.py')}"
        for name, data in {program: textwrap.dedent(text), **(files or {})}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data.encode() if isinstance(data, str) else data)
        return Script(tmp_path, settings(**variables))

    return make
