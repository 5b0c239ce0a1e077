#!/usr/bin/env python3
"""Unpack a model.tar.gz as SageMaker does for /opt/ml/model, without trusting it.

    unpack_model.py model.tar.gz DIRECTORY

DIRECTORY is made; after a refusal or Ctrl-C it is not there. Files and directories are unpacked and nothing else: no links,
devices or sparse files, no path that leads out, no name twice or longer than a file system takes, at most 100,000 entries.
There is no limit to the size but the disk, and 200 times the archive's own where that is more than 1 GiB.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import sys
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import checkout

sys.path.insert(0, str(checkout.CHECKOUT / "handler"))

from batch_handler.artefact import ArtefactError
from batch_handler.errors import one_line
from batch_handler.settings import MIB
from batch_handler.unpacking import Contents

MAGIC = b"\x1f\x8b"
HEADER_LIMIT = 16 * 1024
"""Bytes between two members; a member's own headers hold names, times and attributes, which fill a few hundred."""
CHUNK = MIB
DAMAGED = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, OverflowError, RecursionError)

Progress = Callable[[int], object]


def main() -> int:
    """The command line; 0 when all was unpacked, 1 with one sentence otherwise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip(), formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, metavar="ARCHIVE")
    parser.add_argument("directory", type=Path, metavar="DIRECTORY")
    options = parser.parse_args()
    try:
        unpack(options.archive, options.directory)
    except ArtefactError as error:
        print(f"unpack_model: {error}", file=sys.stderr)
        return 1
    return 0


def unpack(archive: Path, destination: Path, progress: Progress = lambda _: None) -> None:
    """Unpack a tar file, compressed with gzip or not, into a new directory; `progress` is told how much was read.

    Raises ArtefactError for a damaged archive and for what `unpacking` refuses; then the directory is gone again.
    """
    try:
        with archive.open("rb") as file:
            contents = Contents(archive, destination)
            destination.mkdir()
            _unpacked(file, destination, contents, progress)
    except DAMAGED as error:
        why = one_line(str(error))
        raise ArtefactError(f"{archive} cannot be unpacked ({why}): it is damaged, incomplete or no .tar.gz") from None
    except OSError as error:
        raise ArtefactError(f"{archive} cannot be unpacked: {error.filename or destination}: {error.strerror}") from None


def _unpacked(file: BinaryIO, destination: Path, contents: Contents, progress: Progress) -> None:
    try:
        _unpack_members(file, destination, contents, progress)
    except BaseException:
        shutil.rmtree(destination)
        raise


def _unpack_members(file: BinaryIO, destination: Path, contents: Contents, progress: Progress) -> None:
    compressed = file.read(len(MAGIC)) == MAGIC
    file.seek(0)
    unfolded: BinaryIO = gzip.GzipFile(fileobj=file) if compressed else file  # type: ignore[assignment]  # a file, if no BinaryIO
    headers, told = _Headers(unfolded), 0
    with tarfile.TarFile(fileobj=headers) as archive:  # type: ignore[arg-type]  # it needs no more of a file
        for member in archive:
            directory, size = member.isdir(), 0 if member.isdir() else member.size
            plain = directory or (member.isfile() and not member.issparse())
            path = destination / contents.add(member.name, size, directory=directory, plain=plain)
            if directory:
                path.mkdir(parents=True, exist_ok=True)
            else:
                _write(unfolded, member, path)
            headers.left = HEADER_LIMIT
            progress(file.tell() - told)
            told = file.tell()
    _check_end(headers, unfolded, contents)


class _Headers:
    """What tarfile reads of an archive besides its members: little at a time.

    It takes headers of any length into memory, takes lengths below zero, and looks for a character set in time that grows
    with the square of a header's length; and it takes a broken header for the archive's end.
    """

    def __init__(self, unfolded: BinaryIO) -> None:
        self.left = HEADER_LIMIT
        self.last = b""
        self._unfolded = unfolded

    def read(self, size: int) -> bytes:
        """At most so many bytes. Raises ReadError where they are more than headers need."""
        if not 0 <= size <= self.left:
            raise tarfile.ReadError("a header of impossible length")
        self.left -= size
        self.last = self._unfolded.read(size)
        return self.last

    def seek(self, position: int) -> int:
        """Go on there."""
        return self._unfolded.seek(position)

    def tell(self) -> int:
        """How far it was read."""
        return self._unfolded.tell()


def _write(unfolded: BinaryIO, member: tarfile.TarInfo, path: Path) -> None:
    """The member's bytes as a new file, and whether it may be run. Raises EOFError where they end early."""
    path.parent.mkdir(parents=True, exist_ok=True)
    left = member.size
    with path.open("xb") as target:
        while left:
            piece = unfolded.read(min(left, CHUNK))
            if not piece:
                raise EOFError(f"it ends within {member.name[:80]!r}")
            target.write(piece)
            left -= len(piece)
    path.chmod(0o755 if member.mode & 0o100 else 0o644)


def _check_end(headers: _Headers, unfolded: BinaryIO, contents: Contents) -> None:
    """After the last member come zeros only (POSIX.1, pax, "ustar Interchange Format"), and gzip's checksum is right."""
    if headers.last != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("there is no end mark after the last file")
    while piece := unfolded.read(CHUNK):
        if piece.strip(b"\0"):
            raise tarfile.ReadError("something stands behind its end")
        contents.grow(len(piece), "the end of the archive")


if __name__ == "__main__":
    sys.exit(main())
