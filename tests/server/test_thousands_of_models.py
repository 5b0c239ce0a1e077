"""Thousands of models through one endpoint: each loaded, called, listed and unloaded, and nothing of any of them left.

The short version runs with the suite; ``TEST_ALL=1`` takes 2,000. Most share the directory of their artefact.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from footprint import Sample, look
from models import many
from running import RunningServer, descendants
from shelf import Shelf, error, together

LONG = bool(os.environ.get("TEST_ALL"))
MODELS = 2_000 if LONG else 120
WAVE = 20
WARM_UP = 2 * WAVE
TEXT = {"inputs": "good day"}
# What lasts as long as the endpoint does, by a word of its command.
LASTING = {"frontend": "byoc.endpoints.Frontend", "preparer": "prepare-models", "template": "entrypoint.template"}
# Idle threads of pools and files of idle connections come and go; what leaks by the model shows in hundreds.
FEW = 24
HEAP_MB = 200.0
"""Java fills its heap before it collects."""
GROWTH_MB = 30.0


@pytest.mark.timeout(3_000 if LONG else 300)
def test_of_thousands_of_models_nothing_is_left(multi_model: RunningServer, shelf: Shelf, tmp_path: Path) -> None:
    words = ("one", "two", "three")
    shared = [many.save_script(tmp_path / word, word) for word in words]
    names = [f"model-{number:05}" for number in range(WARM_UP + MODELS)]
    pages = [names[first : first + WAVE] for first in range(0, len(names), WAVE)]
    for page in pages[: WARM_UP // WAVE]:
        come_and_go(shelf, page, shared, words)
    before, files = looked_at(multi_model), left_files(multi_model)
    for page in pages[WARM_UP // WAVE :]:
        come_and_go(shelf, page, shared, words)
    time.sleep(1.0)
    assert multi_model.workers() == []
    assert left_files(multi_model) == files
    assert 'model="model-' not in multi_model.http.get("/metrics").text
    for name, after in looked_at(multi_model).items():
        assert after.threads <= before[name].threads + FEW, name
        assert after.files <= before[name].files + FEW, name
        assert after.memory_mb <= before[name].memory_mb + (HEAP_MB if name == "frontend" else GROWTH_MB), name


def come_and_go(shelf: Shelf, names: list[str], artefacts: list[Path], words: Iterable[str]) -> None:
    """Load them side by side, call each, list them, and unload them again; one more cannot be loaded."""
    own = list(zip(names, [*zip(artefacts, words, strict=True)] * WAVE, strict=False))
    loaded = together([lambda name=name, path=path: shelf.load(name, path) for name, (path, _) in own])
    assert [answer.status_code for answer in loaded] == [200] * len(names), [answer.text for answer in loaded]
    called = together([lambda name=name: shelf.call(name, TEXT) for name in names])
    assert [many.word_of(answer) for answer in called] == [word for _, (_, word) in own]
    assert shelf.names(limit=7) == names
    assert error(shelf.load(names[0] + "!", broken(artefacts[0])))[:2] == (500, "ModelError")
    gone = together([lambda name=name: shelf.unload(name) for name in names])
    assert [answer.status_code for answer in gone] == [200] * len(names)


def broken(neighbour: Path) -> Path:
    """An artefact that no worker can load."""
    code = neighbour.parent / "broken" / "code"
    code.mkdir(parents=True, exist_ok=True)
    (code / "inference.py").write_text("def model_fn(model_dir): raise ValueError('not today')", "utf-8")
    return code.parent


def looked_at(server: RunningServer) -> Mapping[str, Sample]:
    """The processes that last, as they are now."""
    commands = descendants(server.pid)
    return {name: look(next(pid for pid, command in commands if word in command)) for name, word in LASTING.items()}


def left_files(server: RunningServer) -> set[Path]:
    """All that is in the work directory."""
    frontend = next(pid for pid, command in descendants(server.pid) if LASTING["frontend"] in command)
    words = Path(f"/proc/{frontend}/cmdline").read_text().split("\0")
    temporary = next(word.partition("=")[2] for word in words if word.startswith("-Djava.io.tmpdir="))
    return set(Path(temporary).parent.rglob("*"))
