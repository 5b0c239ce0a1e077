"""Unpacking a TorchServe archive (a zip file, by the ``torch-model-archiver`` format) without trusting it."""

from __future__ import annotations

import stat
import zipfile
import zlib
from pathlib import Path

from batch_handler.artefact import ArtefactError, read_json
from batch_handler.unpacking import Contents

MANIFEST = Path("MAR-INF") / "MANIFEST.json"
PLAIN = (0, stat.S_IFREG, stat.S_IFDIR)
DAMAGED = "it is damaged or incomplete"


def unpack(archive: Path, destination: Path) -> int:
    """Unpack into a new directory and return the unpacked size in bytes.

    Raises ArtefactError for a damaged archive and for what `unpacking` refuses, before anything is written.
    """
    destination.mkdir()
    try:
        contents = Contents(archive, destination)
        with zipfile.ZipFile(archive) as opened:
            for entry in opened.infolist():
                plain = stat.S_IFMT(entry.external_attr >> 16) in PLAIN
                name = entry.filename.replace("\\", "/")
                contents.add(name, entry.file_size, directory=entry.is_dir(), plain=plain)
            opened.extractall(destination)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise ArtefactError(f"{archive} is not a readable archive: {DAMAGED} ({error})") from None
    except OSError as error:
        raise ArtefactError(f"{archive} cannot be unpacked: {error.strerror}") from None
    return contents.size


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
