"""Unpacking a TorchServe archive (a zip file, by the ``torch-model-archiver`` format) without trusting it."""

from __future__ import annotations

import shutil
import stat
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from batch_handler.artefact import MOST_ENTRIES, ArtefactError, read_json

MANIFEST = Path("MAR-INF") / "MANIFEST.json"
# Deflate reaches 1,032 : 1 on zeros; weights shrink by little. Small archives may be as repetitive as they like.
HIGHEST_RATIO = 200
ALWAYS_ALLOWED = 1 << 30
LONGEST_NAME = 255  # bytes in a part of a path, by any of Linux's file systems
KEPT_FREE = 64 << 20
DAMAGED = "it is damaged or incomplete"


def unpack(archive: Path, destination: Path) -> int:
    """Unpack into a new directory and return the unpacked size in bytes.

    Raises ArtefactError for a damaged archive, a path that leads out, a link, a name that comes twice or is too long, too
    many entries, or more than the disk holds.
    """
    destination.mkdir()
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = opened.infolist()
            _check_entries(archive, entries)
            size = sum(entry.file_size for entry in entries)
            _check_size(archive, size, destination)
            opened.extractall(destination)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise ArtefactError(f"{archive} is not a readable archive: {DAMAGED} ({error})") from None
    except OSError as error:
        raise ArtefactError(f"{archive} cannot be unpacked: {error.strerror}") from None
    return size


def read_manifest(archive: Path, directory: Path) -> dict[str, object]:
    """The ``model`` part of the manifest. Raises ArtefactError when it is missing or names no Python handler."""
    path = directory / MANIFEST
    if not path.is_file():
        raise ArtefactError(f"{archive} has no {MANIFEST}: make it with scripts/package_model or torch-model-archiver")
    manifest = read_json(path)
    model = manifest.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("handler"), str) or not model["handler"]:
        raise ArtefactError(f"{archive} names no handler in its {MANIFEST}")
    if manifest.get("runtime", "python") not in ("python", "python3"):
        raise ArtefactError(f"{archive} needs the runtime {manifest['runtime']!r}; this image has python only")
    return dict(model)


def _check_entries(archive: Path, entries: Sequence[zipfile.ZipInfo]) -> None:
    if len(entries) > MOST_ENTRIES:
        raise ArtefactError(f"{archive} holds {len(entries):,} entries, more than {MOST_ENTRIES:,}: it is not unpacked")
    seen: set[PurePosixPath] = set()
    for entry in entries:
        path = PurePosixPath(entry.filename.replace("\\", "/"))
        _check_entry(archive, entry, path)
        if path in seen and not entry.is_dir():
            raise ArtefactError(f"{archive} holds {entry.filename[:80]!r} twice: it is not unpacked")
        seen.add(path)


def _check_entry(archive: Path, entry: zipfile.ZipInfo, path: PurePosixPath) -> None:
    if path.is_absolute() or ".." in path.parts or "\0" in entry.filename:
        raise ArtefactError(f"{archive} holds a path that leads out of it, {entry.filename[:80]!r}: it is not unpacked")
    if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise ArtefactError(f"{archive} holds a link or a device, {entry.filename[:80]!r}: it is not unpacked")
    if any(len(part.encode()) > LONGEST_NAME for part in path.parts):
        raise ArtefactError(f"{archive} holds a name of over {LONGEST_NAME} bytes, {entry.filename[:80]!r}: it is not unpacked")


def _check_size(archive: Path, size: int, destination: Path) -> None:
    if size > max(ALWAYS_ALLOWED, HIGHEST_RATIO * archive.stat().st_size):
        raise ArtefactError(f"{archive} would unpack to {size:,} bytes, more than {HIGHEST_RATIO} times its own size")
    free = shutil.disk_usage(destination).free - KEPT_FREE
    if size > free:
        where = destination.parent.parent
        raise ArtefactError(f"{archive} needs {size:,} bytes in {where}, which has {max(0, free):,} to spare")
