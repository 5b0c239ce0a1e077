"""Compares two images: their settings, their build steps, and file by file what each step wrote; all times left aside.

Of a file: path, kind, mode, owner, size, contents. Exit code 0: equal. 1: they differ, and how is printed.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHOWN = 40
ABSENT = "absent"
# What says when and from what the image was made: its layers are compared themselves.
NO_SETTINGS = ("config", "created", "history", "rootfs")

Entries = dict[str, str]


@dataclass(frozen=True, slots=True)
class Image:
    """``settings``: name → value. ``steps[i]`` is the instruction that wrote ``layers[i]``: path → what is true of it."""

    settings: Entries
    steps: list[str]
    layers: list[Entries]


def main() -> int:
    """Save both images with docker, read them, print what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", nargs=2, metavar="IMAGE")
    parser.add_argument("--docker", default="docker", help="the docker client")
    given = parser.parse_args()
    first, second = (saved(image, given.docker) for image in given.images)
    found = list(differences(first, second))
    for line in found[:SHOWN]:
        print(line)
    entries = sum(len(layer) for layer in first.layers)
    verdict = f"{len(found):,} differ" if found else "equal"
    print(f"{len(first.layers)} layers, {entries:,} entries: {verdict}")
    return 1 if found else 0


def saved(image: str, docker: str) -> Image:
    """What docker saves of an image."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "image.tar"
        subprocess.run([docker, "save", "--output", str(path), image], check=True)
        with tarfile.open(path) as archive:
            (manifest,) = json.loads(_read(archive, "manifest.json"))
            config = json.loads(_read(archive, manifest["Config"]))
            steps = [step.get("created_by", "") for step in config["history"] if not step.get("empty_layer")]
            return Image(_settings(config), steps, [_layer(archive, name) for name in manifest["Layers"]])


def differences(first: Image, second: Image) -> Iterator[str]:
    """A line for each setting, layer or entry that only one image has, or that both have and differ in."""
    yield from _compared("settings", first.settings, second.settings)
    # By their steps and not by their numbers: a layer too many must not shift all that follow.
    matcher = difflib.SequenceMatcher(None, first.steps, second.steps, autojunk=False)
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        if kind != "equal":
            yield from (f"only in the first image: layer {i + 1}: {first.steps[i]}" for i in range(start, end))
            yield from (f"only in the second image: layer {i + 1}: {second.steps[i]}" for i in range(other_start, other_end))
            continue
        for i, j in zip(range(start, end), range(other_start, other_end), strict=True):
            yield from _compared(f"layer {i + 1}", first.layers[i], second.layers[j])


def _compared(where: str, first: Entries, second: Entries) -> Iterator[str]:
    for name in sorted(first.keys() | second.keys()):
        before, after = first.get(name, ABSENT), second.get(name, ABSENT)
        if before != after:
            yield f"{where}: {name}: {before} | {after}"


def _settings(config: dict[str, Any]) -> Entries:
    """The environment, labels, entry point, user and so on, and the platform."""
    found = {name: value for name, value in config.items() if name not in NO_SETTINGS} | config["config"]
    return {name: json.dumps(value, sort_keys=True) for name, value in found.items()}


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is no file in what docker saved")
    return file.read()


def _layer(archive: tarfile.TarFile, name: str) -> Entries:
    entries = {}
    with tarfile.open(fileobj=archive.extractfile(name)) as layer:
        for member in layer:
            content = layer.extractfile(member) if member.isreg() else None
            digest = hashlib.sha256(content.read()).hexdigest()[:16] if content else member.linkname
            entries[member.name] = f"{member.type.decode()} {member.mode:o} {member.uid}:{member.gid} {member.size} {digest}"
    return entries


if __name__ == "__main__":
    sys.exit(main())
