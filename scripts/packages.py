"""The files of a package: a directory, a TorchServe archive and a model.tar.gz, each written aside and moved into place."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tqdm import tqdm

import checkout
from batch_handler.artefact import PACKAGED_HANDLER, Artefact, Kind

HANDLER_ROOT = checkout.CHECKOUT / "handler"

NAME = "model"
VERSION = "1.0"
CONFIG = "model-config.yaml"
REQUIREMENTS = "requirements.txt"
HIDDEN = {"__pycache__", ".git", ".gitattributes", ".cache"}
COMPRESSION = 1  # weights hardly shrink: the fastest level costs a tenth of the default's time


class PackagingError(Exception):
    """One sentence: what could not be packaged, and what to do."""


def write(artefact: Artefact, output: Path, chosen: Sequence[str]) -> list[tuple[str, Path]]:
    """Write the chosen formats beside their places, then put all of them there; each with where it lies now.

    Whatever stops this before the end leaves everything as it was.
    """
    created = not output.exists()
    output.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".package-", dir=output) as beside:
            new = Path(beside)
            for form in chosen:
                WRITERS[form](artefact, new / FILES[form])
            return [(form, replaced(new / FILES[form], output / FILES[form])) for form in chosen]
    except BaseException:
        if created and not any(output.iterdir()):
            output.rmdir()
        raise


def replaced(new: Path, target: Path) -> Path:
    """The target, now `new`. A directory cannot be renamed over another: the old one steps aside, and back on failure."""
    if not (new.is_dir() or target.is_dir()) or not (target.exists() or target.is_symlink()):
        return new.replace(target)
    old = new.with_name(f"{new.name}.old")
    target.rename(old)
    try:
        return new.rename(target)
    except BaseException:
        old.rename(target)
        raise


def write_directory(artefact: Artefact, target: Path) -> None:
    """The files as SageMaker would lay them out in /opt/ml/model."""
    files = contents(artefact)
    with bar("directory", sum(path.stat().st_size for path in files)) as progress:
        for path in files:
            copy = target / path.relative_to(root(artefact))
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            progress(path.stat().st_size)


def write_tar(artefact: Artefact, target: Path) -> None:
    """For ModelDataUrl: the directory's files at the top."""
    files = contents(artefact)
    with (
        bar("tar", sum(path.stat().st_size for path in files)) as progress,
        tarfile.open(target, "w:gz", compresslevel=COMPRESSION, dereference=True) as archive,
    ):
        for path in files:
            entry = archive.gettarinfo(path.resolve(), str(path.relative_to(root(artefact))))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = "root"
            with Counted(path, progress) as file:
                archive.addfile(entry, file)


def write_mar(artefact: Artefact, target: Path) -> None:
    """By torch-model-archiver, with our handler inside."""
    if artefact.kind is Kind.ARCHIVE:
        shutil.copyfile(artefact.path, target)
        return
    staging = target.with_name("extra")
    staging.mkdir()
    for entry in sorted(artefact.path.iterdir()):
        if entry.name not in HIDDEN:
            (staging / entry.name).symlink_to(entry.resolve())
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(HANDLER_ROOT / "batch_handler", staging / "batch_handler", ignore=ignore)
    with watched("mar", target, sum(path.stat().st_size for path in contents(artefact))):
        archive(staging, target.parent)


def archive(staging: Path, export: Path, handler: Path = HANDLER_ROOT / PACKAGED_HANDLER) -> None:
    """Run torch-model-archiver; raises PackagingError with its last words."""
    command = [sys.executable, "-m", "model_archiver.model_packaging", "--model-name", NAME, "--version", VERSION]
    command += ["--handler", str(handler), "--extra-files", str(staging)]
    command += ["--export-path", str(export)]
    if (staging / CONFIG).is_file():
        command += ["--config-file", str(staging / CONFIG)]
    if handler.name != PACKAGED_HANDLER and (staging / REQUIREMENTS).is_file():
        command += ["--requirements-file", str(staging / REQUIREMENTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not (export / f"{NAME}.mar").is_file():
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise PackagingError(f"torch-model-archiver failed: {last}")


Writer = Callable[[Artefact, Path], None]
WRITERS: dict[str, Writer] = {"directory": write_directory, "mar": write_mar, "tar": write_tar}
FILES = {"directory": NAME, "mar": f"{NAME}.mar", "tar": f"{NAME}.tar.gz"}


def root(artefact: Artefact) -> Path:
    """The directory that the artefact's file names are relative to."""
    return artefact.path.parent if artefact.kind is Kind.ARCHIVE else artefact.path


def contents(artefact: Artefact) -> list[Path]:
    """Every file that belongs to the artefact."""
    if artefact.kind is Kind.ARCHIVE:
        return [artefact.path]
    return [
        path
        for path in sorted(artefact.path.rglob("*"))
        if path.is_file() and not HIDDEN.intersection(path.relative_to(artefact.path).parts)
    ]


def size_of(path: Path) -> int:
    """Bytes in a file, or in all files of a directory."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path.is_dir() else path.stat().st_size


class Counted:
    """A file that reports how much of it was read."""

    def __init__(self, path: Path, progress: Callable[[int], object]) -> None:
        self._file = path.open("rb")
        self._progress = progress

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes."""
        piece = self._file.read(size)
        self._progress(len(piece))
        return piece


@contextmanager
def bar(label: str, total: int) -> Iterator[Callable[[int], object]]:
    """A progress bar over bytes, gone when it is done; silent where nobody looks."""
    with tqdm(total=total, desc=label, unit="B", unit_scale=True, leave=False, disable=not sys.stderr.isatty()) as shown:
        yield shown.update


@contextmanager
def watched(label: str, growing: Path, total: int) -> Iterator[None]:
    """A bar that follows a file which another program writes."""
    stop = threading.Event()
    with bar(label, total) as progress:

        def follow() -> None:
            seen = 0
            while not stop.wait(0.2):
                size = growing.stat().st_size if growing.exists() else 0
                progress(size - seen)
                seen = size

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
