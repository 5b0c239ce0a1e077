"""Compares two images file by file (path, kind, mode, owner, size, contents), all times left aside.

Exit code 0: equal. 1: they differ, and how is printed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

SHOWN = 40


def main() -> int:
    """Save both images with docker, read their layers, print what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", nargs=2, metavar="IMAGE")
    parser.add_argument("--docker", default="docker", help="the docker client")
    given = parser.parse_args()
    first, second = (layers(image, given.docker) for image in given.images)
    found = differences(first, second)
    for line in found[:SHOWN]:
        print(line)
    files = sum(len(layer) for layer in first)
    print(
        f"{len(first)} layers, {files:,} entries: {len(found):,} differ"
        if found
        else f"{len(first)} layers, {files:,} entries: equal"
    )
    return 1 if found else 0


def layers(image: str, docker: str) -> list[dict[str, str]]:
    """For each layer: path → all that is true of it, except times."""
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "image.tar"
        subprocess.run([docker, "save", "--output", str(saved), image], check=True)
        with tarfile.open(saved) as archive:
            (manifest,) = json.loads(_read(archive, "manifest.json"))
            return [_layer(archive, name) for name in manifest["Layers"]]


def differences(first: list[dict[str, str]], second: list[dict[str, str]]) -> list[str]:
    """A line for each entry that only one has, or that both have and differ in."""
    found = [] if len(first) == len(second) else [f"{len(first)} layers against {len(second)}"]
    for number, (one, other) in enumerate(zip(first, second, strict=False), 1):
        for path in sorted(one.keys() | other.keys()):
            before, after = one.get(path, "absent"), other.get(path, "absent")
            if before != after:
                found += [f"layer {number}: {path}: {before} | {after}"]
    return found


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is no file in what docker saved")
    return file.read()


def _layer(archive: tarfile.TarFile, name: str) -> dict[str, str]:
    entries = {}
    with tarfile.open(fileobj=archive.extractfile(name)) as layer:
        for member in layer:
            content = layer.extractfile(member) if member.isreg() else None
            digest = hashlib.sha256(content.read()).hexdigest()[:16] if content else member.linkname
            entries[member.name] = f"{member.type.decode()} {member.mode:o} {member.uid}:{member.gid} {member.size} {digest}"
    return entries


if __name__ == "__main__":
    sys.exit(main())
