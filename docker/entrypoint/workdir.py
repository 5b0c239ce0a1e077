"""The one place that is written to: a private directory in /tmp for this start, gone when the server ends.

A container that was killed and starts again on the same file system finds the old one and removes it;
servers side by side each have their own.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from entrypoint.failure import StartError

TMP = Path("/tmp")  # noqa: S108 -- the one place a read-only container can write to
PREFIX = "byoc-"
LOCK = "lock"
FULL = (errno.ENOSPC, errno.EDQUOT)
NEEDED = f"give it 64 MB, and beside them the unpacked size of an archive (--tmpfs {TMP}:size=64m)"


@contextmanager
def work_directory(parent: Path = TMP) -> Iterator[Path]:
    """A new directory of mode 700. Raises StartError when it cannot be made, and the OSError of a full disk."""
    remove_abandoned(parent)
    try:
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    except OSError as error:
        if error.errno in FULL:
            raise
        raise StartError(
            f"{parent} cannot be written by user {os.getuid()} ({error.strerror}): mount one there (--tmpfs {parent})"
        ) from None
    with _held_lock(path):
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def remove_abandoned(parent: Path) -> None:
    """Remove the directories of starts that are no more: nobody holds their lock."""
    for lock in parent.glob(f"{PREFIX}*/{LOCK}"):
        with suppress(OSError), lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not lock.is_symlink() and lock.stat().st_uid == os.getuid():
                shutil.rmtree(lock.parent, ignore_errors=True)


@contextmanager
def _held_lock(path: Path) -> Iterator[None]:
    """A lock that appears only once it is held: nobody then mistakes a directory in the making for an abandoned one."""
    making = path / f"{LOCK}.new"
    with making.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        making.rename(path / LOCK)
        yield


class StartTurn:
    """Servers that start side by side choose their ports one after the other, each until its ports are bound.

    Where the lock file cannot be had there is no turn to wait for, and a collision stops the start.
    """

    def __init__(self, parent: Path = TMP) -> None:
        self._path = parent / f".{PREFIX}ports-{os.getuid()}"
        self._file: int | None = None

    def take(self) -> None:
        """Wait for the turn."""
        with suppress(OSError):
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def give(self) -> None:
        """Let the next one choose; harmless when there is nothing to give."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
