"""What an archive of a model may unfold to: which names, how many entries, how many bytes.

Reading zip and tar is left to those who unpack them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PurePosixPath

from batch_handler.artefact import MOST_ENTRIES, ArtefactError
from batch_handler.settings import MIB

# Deflate reaches 1,032 : 1 on zeros; weights shrink by little. Small archives may be as repetitive as they like.
HIGHEST_RATIO = 200
ALWAYS_ALLOWED = 1024 * MIB
LONGEST_NAME = 255  # bytes in a part of a path, by any of Linux's file systems
LONGEST_PATH = 1_024  # bytes, and a quarter of Linux's PATH_MAX, so that the destination has room before it
KEPT_FREE = 64 * MIB
SHOWN = 80


class Contents:
    """An archive's entries as they are met, each refused by an ArtefactError that names it before it is written.

    ``size`` are the bytes of all files so far. There is no limit to it but the disk and the ratio to the archive.
    """

    def __init__(self, archive: Path, destination: Path) -> None:
        """`destination` is where the files will lie; the directory it is in must exist."""
        self.size = 0
        self._archive = archive
        self._where = destination.parent
        self._most = max(ALWAYS_ALLOWED, HIGHEST_RATIO * archive.stat().st_size)
        self._free = max(0, shutil.disk_usage(self._where).free - KEPT_FREE)
        self._entries = 0
        self._paths: set[PurePosixPath] = set()

    def add(self, name: str, size: int, *, directory: bool, plain: bool) -> PurePosixPath:
        """One entry and the path that it gets; ``plain`` says that it is a file or a directory and nothing else."""
        path = PurePosixPath(name)
        self._check_name(name, path)
        if not plain:
            raise self._refused("a link, a device or a sparse file", name, "pack the file itself in its place")
        if path in self._paths and not directory:
            raise ArtefactError(f"{self._archive} holds {_shown(name)} twice: pack each file once")
        self._count(path)
        self.grow(size, name)
        return path

    def grow(self, size: int, name: str) -> None:
        """So many bytes more, which are those of an entry or stand behind it."""
        self.size += size
        if size < 0 or self.size > self._most:
            raise ArtefactError(
                f"{self._archive} would unpack to {self.size:,} bytes and more with {_shown(name)}, over {HIGHEST_RATIO} "
                "times its own size: leave that out"
            )
        if self.size > self._free:
            raise ArtefactError(
                f"{self._archive} needs {self.size:,} bytes or more for {_shown(name)} in {self._where}, "
                f"which has {self._free:,} to spare: make room there"
            )

    def _check_name(self, name: str, path: PurePosixPath) -> None:
        if path.is_absolute() or ".." in path.parts or "\0" in name:
            raise self._refused("a path that leads out of it", name, "pack names relative to the model's directory")
        if any(len(os.fsencode(part)) > LONGEST_NAME for part in path.parts):
            raise self._refused(f"a name of over {LONGEST_NAME} bytes", name, "shorten it")
        if len(os.fsencode(path)) > LONGEST_PATH:
            raise self._refused(f"a path of over {LONGEST_PATH:,} bytes", name, "shorten it")

    def _count(self, path: PurePosixPath) -> None:
        """An entry makes the directories above it as well, whether or not they have entries of their own."""
        self._entries += 1
        self._paths.update((path, *path.parents))
        if max(self._entries, len(self._paths)) > MOST_ENTRIES:
            raise ArtefactError(
                f"{self._archive} holds more than {MOST_ENTRIES:,} entries: pack the model alone, or its small files in one"
            )

    def _refused(self, what: str, name: str, advice: str) -> ArtefactError:
        return ArtefactError(f"{self._archive} holds {what}, {_shown(name)}: {advice}")


def _shown(name: str) -> str:
    return repr(name if len(name) <= SHOWN else f"{name[: SHOWN - 1]}…")
