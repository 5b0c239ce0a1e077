"""scripts/compare_images.py finds what differs between two images, and nothing but times where nothing does."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from running import ROOT

SETTINGS = {
    "Env": ["PATH=/bin"],
    "Labels": {"version": "1"},
    "Entrypoint": ["/bin/serve"],
    "User": "10001",
}
LAYERS = {
    "ADD base": {"etc/hosts": b"localhost"},
    "RUN install": {"bin/serve": b"#!", "bin/stop": b"#!"},
    "COPY config": {"config": b"batch_size=8"},
}
Layers = dict[str, dict[str, bytes]]
Compare = Callable[[Path, Path], tuple[int, list[str]]]


@pytest.fixture
def compare(tmp_path: Path) -> Compare:
    """Runs the script on two saved images; for a docker client, a copy."""
    client = tmp_path / "docker"
    client.write_text('#!/bin/sh\n# save --output FILE IMAGE\nexec cp "$4" "$3"\n', "utf-8")
    client.chmod(0o755)

    def run(first: Path, second: Path) -> tuple[int, list[str]]:
        command = [sys.executable, str(ROOT / "scripts/compare_images.py"), "--docker", str(client), str(first), str(second)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not done.stderr
        *lines, _ = done.stdout.splitlines()
        return done.returncode, lines

    return run


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """The image that the others are compared with."""
    return image(tmp_path / "first.tar")


def image(path: Path, layers: Layers = LAYERS, time: int = 0, mode: int = 0o644, **settings: Any) -> Path:
    """What docker saves of an image with these layers (step → files) and settings."""
    history: list[dict[str, Any]] = [{"created_by": step} for step in layers]
    history.insert(1, {"created_by": "ENV PATH=/bin", "empty_layer": True})
    config = {"architecture": "amd64", "created": str(time), "config": SETTINGS | settings, "history": history}
    files = {f"layer{number}": archive(content, time, mode) for number, content in enumerate(layers.values())}
    manifest = [{"Config": "config.json", "Layers": list(files)}]
    documents = {"manifest.json": json.dumps(manifest).encode(), "config.json": json.dumps(config).encode()}
    path.write_bytes(archive(files | documents, time, mode))
    return path


def archive(files: dict[str, bytes], time: int, mode: int) -> bytes:
    """A tar archive of these files."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as target:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(content), time, mode
            target.addfile(member, io.BytesIO(content))
    return written.getvalue()


def test_images_that_differ_in_times_alone_are_equal(compare: Compare, first: Path, tmp_path: Path) -> None:
    assert compare(first, image(tmp_path / "second.tar", time=1_700_000_000)) == (0, [])


@pytest.mark.parametrize(
    ("name", "value"),
    [("Env", ["PATH=/sbin"]), ("Labels", {}), ("Entrypoint", ["/bin/sh"]), ("User", "0"), ("StopSignal", "INT")],
)
def test_a_setting_that_differs_is_named(compare: Compare, first: Path, tmp_path: Path, name: str, value: Any) -> None:
    before = json.dumps(SETTINGS[name]) if name in SETTINGS else "absent"
    code, lines = compare(first, image(tmp_path / "second.tar", **{name: value}))
    assert (code, lines) == (1, [f"settings: {name}: {before} | {json.dumps(value)}"])


def test_a_file_with_other_contents_is_named(compare: Compare, first: Path, tmp_path: Path) -> None:
    code, (line,) = compare(first, image(tmp_path / "second.tar", LAYERS | {"COPY config": {"config": b"batch_size=9"}}))
    assert code == 1
    assert line.startswith("layer 3: config: ")


def test_a_file_with_another_mode_is_named(compare: Compare, first: Path, tmp_path: Path) -> None:
    code, lines = compare(first, image(tmp_path / "second.tar", mode=0o666))
    assert code == 1
    assert [line.split(": ")[1] for line in lines] == ["etc/hosts", "bin/serve", "bin/stop", "config"]


def test_a_file_that_one_image_lacks_is_absent(compare: Compare, first: Path, tmp_path: Path) -> None:
    code, (line,) = compare(first, image(tmp_path / "second.tar", LAYERS | {"RUN install": {"bin/serve": b"#!"}}))
    assert code == 1
    assert line.startswith("layer 2: bin/stop: ")
    assert line.endswith(" | absent")


def test_a_missing_layer_is_told_as_such_and_spares_those_after_it(compare: Compare, first: Path, tmp_path: Path) -> None:
    fewer = image(tmp_path / "second.tar", {step: files for step, files in LAYERS.items() if step != "RUN install"})
    assert compare(first, fewer) == (1, ["only in the first image: layer 2: RUN install"])
    assert compare(fewer, first) == (1, ["only in the second image: layer 2: RUN install"])
