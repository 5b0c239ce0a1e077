"""What is in the model directory, and which task and loader it needs. Reads file names and small headers, never weights.

Owns the detection table and the sentences about directories that cannot be served.
"""

from __future__ import annotations

import ast
import json
import os
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Any

TREE_LINES = 20
TREE_LEVELS = 2
SEQUENCE_TO_SEQUENCE = ("ForConditionalGeneration", "MTModel")
TRANSLATION_MODELS = {"marian", "m2m_100", "mbart", "nllb-moe", "fsmt"}
TASKS = {
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMaskedLM": "fill-mask",
    "ForImageClassification": "image-classification",
    "ForCausalLM": "text-generation",
    "LMHeadModel": "text-generation",
}
"""The end of an architecture's name → the task it was made for."""

TENSOR_TASK = "tensor"
IMAGE_TASK = "image-feature-extraction"
WEIGHTS = ("*.safetensors", "*.bin")
PICKLED = ("*.pt", "*.pth", "*.bin", "*.ckpt", "*.safetensors")
HANDLER = "batch_handler.service:handle"
PACKAGED_HANDLER = "byoc_handler.py"
"""The handler file by which an archive of our own packaging is known."""

MOST_ENTRIES = 100_000
"""Files and directories that a model may consist of, beyond which it is something else, or an attack."""

CODE = "code"
PROGRAM = "inference.py"
MODULES = "modules.json"


class ArtefactError(Exception):
    """A model directory that cannot be served: one sentence, and the tree where that helps."""


class Kind(Enum):
    """The kinds of artefact that can be served."""

    SCRIPT = "a script (code/inference.py, with model_fn)"
    ARCHIVE = "a TorchServe archive (one .mar file)"
    HUGGING_FACE = "a Hugging Face directory (config.json with its weights and tokenizer files)"
    SENTENCE_TRANSFORMERS = "a sentence-transformers directory (modules.json with a folder for each module)"
    TORCHSCRIPT = "a TorchScript file (model.pt)"
    EXPORTED = "an exported program (model.pt2)"


@dataclass(frozen=True, slots=True)
class Artefact:
    """A model directory that has been looked at. ``path`` is the directory itself, or the ``.mar`` file."""

    kind: Kind
    path: Path
    task: str | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """How one kind is known. ``find`` gives what makes it one: a file or the directory; ``check`` refuses what is broken."""

    kind: Kind
    find: Callable[[Path], Sequence[Path]]
    check: Callable[[Path], None] = lambda _: None


def detect(directory: Path, task: str | None = None, program: str = PROGRAM) -> Artefact:
    """Find out what `directory` holds. A script goes before everything else, since it may load any of it.

    Raises ArtefactError with the tree and what is expected when it holds nothing that can be served, or too much.
    """
    if not directory.is_dir():
        raise ArtefactError(f"there is no model directory {directory}: mount or extract the model there")
    check_readable(directory)
    if script_file(directory, program):
        return Artefact(Kind.SCRIPT, directory)
    if program != PROGRAM and not _archives(directory):
        raise ArtefactError(f"SAGEMAKER_PROGRAM is {program}, and {directory} has no {CODE}/{program}:\n{tree(directory)}")
    found = [(rule, path) for rule in TABLE for path in rule.find(directory)]
    if len(found) > 1:
        raise ArtefactError(_too_many(directory, found))
    if not found:
        raise ArtefactError(_nothing(directory))
    ((rule, path),) = found
    rule.check(path)
    if rule.kind is Kind.ARCHIVE:
        return Artefact(rule.kind, path)
    own = default_task(directory)
    return Artefact(rule.kind, directory, own if own == TENSOR_TASK else task or own)


def script_file(directory: Path, program: str = PROGRAM) -> Path | None:
    """The user's script, when there is one."""
    path = directory / CODE / program
    return path if path.is_file() else None


def torchscript_files(directory: Path) -> list[Path]:
    """Files of torch.jit.save: zip archives of code and constants. A pickled state dict is none."""
    files = sorted(path for pattern in ("*.pt", "*.pth") for path in directory.glob(pattern) if path.is_file())
    return [path for path in files if any(name.endswith("/constants.pkl") for name in _zip_entries(path))]


def exported_files(directory: Path) -> list[Path]:
    """Files of torch.export.save."""
    return sorted(path for path in directory.glob("*.pt2") if path.is_file())


def declares(path: Path, flag: str) -> bool:
    """Whether a script sets a flag (``THREAD_SAFE = True``), without running it. False for one that cannot be read."""
    try:
        statements = ast.parse(path.read_text("utf-8")).body
    except (OSError, ValueError, SyntaxError, RecursionError):
        return False
    return any(
        isinstance(statement, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == flag for target in statement.targets)
        and isinstance(statement.value, ast.Constant)
        and statement.value.value is True
        for statement in statements
    )


def _archives(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("*.mar") if path.is_file())


def _hugging_face(directory: Path) -> list[Path]:
    """A configuration makes one, even without weights: their absence is then told, unless something else can be served."""
    if not (directory / "config.json").is_file() or (directory / MODULES).is_file():
        return []
    other = _archives(directory) or torchscript_files(directory) or exported_files(directory)
    return [directory] if _weights(directory) or not other else []


def _sentence_transformers(directory: Path) -> list[Path]:
    return [directory] if (directory / MODULES).is_file() else []


def _torchscript(directory: Path) -> list[Path]:
    """Training leaves other .pt files beside a whole model: those count only where there is none."""
    return [] if (directory / "config.json").is_file() and _weights(directory) else torchscript_files(directory)


def _exported(directory: Path) -> list[Path]:
    return [] if (directory / "config.json").is_file() and _weights(directory) else exported_files(directory)


def _check_exported(path: Path) -> None:
    if not _zip_entries(path):
        raise ArtefactError(f"{path} is not a readable exported program: it is damaged or incomplete")


def _check_sentence_transformers(directory: Path) -> None:
    check_hugging_face(encoder_directory(directory))


def encoder_directory(directory: Path) -> Path:
    """Where the encoder's own files lie: at the top, or in the folder of the first module (older sentence-transformers'
    ``0_Transformer``). Raises ArtefactError where that is nowhere."""
    if not (directory / MODULES).is_file():
        return directory
    try:
        first = json.loads((directory / MODULES).read_text("utf-8"))[0]["path"]
    except (OSError, ValueError, LookupError, TypeError):
        raise ArtefactError(f"{directory / MODULES} does not list the modules of a sentence-transformers model") from None
    encoder = directory / str(first)
    if not (encoder / "config.json").is_file():
        raise ArtefactError(f"{directory / MODULES} names {str(first)!r}, which has no config.json:\n{tree(directory)}")
    return encoder


TABLE: tuple[Rule, ...] = (
    Rule(Kind.ARCHIVE, _archives),
    Rule(Kind.HUGGING_FACE, _hugging_face, lambda directory: check_hugging_face(directory)),
    Rule(Kind.SENTENCE_TRANSFORMERS, _sentence_transformers, _check_sentence_transformers),
    Rule(Kind.TORCHSCRIPT, _torchscript),
    Rule(Kind.EXPORTED, _exported, _check_exported),
)


def _too_many(directory: Path, found: Sequence[tuple[Rule, Path]]) -> str:
    names = "; ".join(f"{path.name if path != directory else 'config.json'}: {rule.kind.value}" for rule, path in found)
    return f"{directory} holds {len(found)} models ({names}): leave exactly one. It holds:\n{tree(directory)}"


def _nothing(directory: Path) -> str:
    expected = " or ".join(kind.value for kind in Kind)
    return f"{directory} holds no model.{_hint(directory)} Expected {expected}. It holds:\n{tree(directory)}"


def _hint(directory: Path) -> str:
    """What was probably meant."""
    folders = sorted(path for path in directory.iterdir() if path.is_dir() and path.name != CODE)
    nested = [path.name for path in folders if script_file(path) or any(rule.find(path) for rule in TABLE)]
    if len(nested) == 1:
        return f" The model seems to lie one level too deep, in {nested[0]}/."
    scripts = sorted(path.name for path in (directory / CODE).glob("*.py"))
    if scripts:
        return f" Its {CODE}/ has no {PROGRAM} but {', '.join(scripts)}: name the script in SAGEMAKER_PROGRAM."
    pickled = sorted(path.name for pattern in PICKLED for path in directory.glob(pattern))
    if pickled:
        return (
            f" {pickled[0]} holds weights but not the model that they belong to: "
            f"add a {CODE}/{PROGRAM} whose model_fn builds it, or save the model with torch.jit.save."
        )
    return ""


def check_readable(directory: Path) -> None:
    """Refuse what cannot be opened, and links that lead out: neither would be there in a container."""
    root = directory.resolve()
    paths = list(islice(directory.rglob("*"), MOST_ENTRIES + 1))
    if len(paths) > MOST_ENTRIES:
        raise ArtefactError(f"{directory} holds more than {MOST_ENTRIES:,} files and directories: put the model alone there")
    for path in [directory, *sorted(paths)]:
        if path.is_symlink() and path.exists() and not _belongs(path.resolve(), root):
            raise ArtefactError(
                f"{path} is a link that leaves the model directory: put the file itself there.\n"
                f"It leads to {path.resolve()}, and the directory holds:\n{tree(directory)}"
            )
        if path.exists() and not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
            raise ArtefactError(
                f"{path} cannot be read by user {os.getuid()}: make it readable (chmod -R a+rX). It holds:\n{tree(directory)}"
            )


def _belongs(target: Path, root: Path) -> bool:
    """Inside the directory, or among the files that the Hugging Face cache keeps beside its snapshots."""
    cached = root.parents[1] / "blobs" if root.parent.name == "snapshots" else root
    return target.is_relative_to(root) or target.is_relative_to(cached)


def _weights(directory: Path) -> list[Path]:
    return [path for pattern in WEIGHTS for path in sorted(directory.glob(pattern))]


def _zip_entries(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return []


def check_hugging_face(directory: Path) -> None:
    """Refuse what would fail later and less clearly: broken JSON, missing or cut weights, no tokenizer."""
    for path in sorted(directory.glob("*.json")):
        read_json(path)
    weights = _weights(directory)
    if not weights:
        raise ArtefactError(f"{directory} has a config.json but no weights (model.safetensors):\n{tree(directory)}")
    for path in weights:
        if path.suffix == ".safetensors":
            check_safetensors(path)
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        needed = set(read_json(index).get("weight_map", {}).values())
        missing = sorted(name for name in needed if not (directory / name).is_file())
        if missing:
            raise ArtefactError(f"{index} names {', '.join(missing)}, which is not there: the model is incomplete")
    if (directory / "preprocessor_config.json").is_file():  # of images or sounds
        return
    if not any(directory.glob("tokenizer*")) and not any(directory.glob("*.model")) and not any(directory.glob("vocab*")):
        raise ArtefactError(f"{directory} has no tokenizer files (tokenizer.json):\n{tree(directory)}")


def check_safetensors(path: Path) -> None:
    """Compare the size that the header promises (safetensors' format page) with the file's own."""
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            length = struct.unpack("<Q", file.read(8))[0]
            header = json.loads(file.read(length)) if length < size else {}
        needed = 8 + length + max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
    except (struct.error, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, OSError):
        raise ArtefactError(f"{path} is not a readable safetensors file: it is damaged or incomplete") from None
    if size != needed:
        raise ArtefactError(f"{path} is {size:,} bytes long but its header needs {needed:,}: it is damaged or incomplete")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of the artefact; an empty one where another value may stand."""
    value = _json(path)
    if not isinstance(value, dict) and path.name == "config.json":
        raise ArtefactError(f"{path} must hold a JSON object")
    return value if isinstance(value, dict) else {}


def read_json_list(path: Path) -> list[dict[str, Any]]:
    """A JSON list of objects from a file of the artefact, in the order that matters."""
    value = _json(path)
    if not isinstance(value, list):
        raise ArtefactError(f"{path.name} must hold a JSON list")
    return value


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except UnicodeDecodeError:
        raise ArtefactError(f"{path} is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ArtefactError(f"{path} is not valid JSON: {error.msg}, line {error.lineno} column {error.colno}") from None
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error.strerror}") from None


def default_task(directory: Path) -> str:
    """The task that the artefact's own files name."""
    if (directory / MODULES).is_file() and not _is_cross_encoder(directory):
        return "sentence-embeddings"
    if _torchscript(directory) or _exported(directory):
        return TENSOR_TASK
    config = read_json(directory / "config.json")
    architecture = next(iter(config.get("architectures") or []), "")
    if architecture.endswith(SEQUENCE_TO_SEQUENCE):
        return "translation" if config.get("model_type") in TRANSLATION_MODELS else "text2text-generation"
    bare = "feature-extraction" if any(directory.glob("tokenizer*")) or not _is_of_pictures(directory) else IMAGE_TASK
    return next((task for end, task in TASKS.items() if architecture.endswith(end)), bare)


def _is_cross_encoder(directory: Path) -> bool:
    """Whether sentence-transformers' own files say so: such a model judges pairs and embeds nothing."""
    path = directory / "config_sentence_transformers.json"
    return path.is_file() and read_json(path).get("model_type") == "CrossEncoder"


def _is_of_pictures(directory: Path) -> bool:
    path = directory / "preprocessor_config.json"
    processor = read_json(path) if path.is_file() else {}
    return "image_processor_type" in processor or "size" in processor


def tree(directory: Path) -> str:
    """The directory as an indented listing of two levels, cut to 20 lines."""
    lines = list(islice(_tree_lines(directory), TREE_LINES + 1))
    if len(lines) > TREE_LINES:
        lines[TREE_LINES - 1 :] = ["  … and more"]
    return "\n".join(lines) or "  (nothing)"


def _tree_lines(directory: Path, level: int = 1) -> Iterator[str]:
    indent = "  " * level
    try:
        entries = sorted(directory.iterdir())
    except OSError as error:
        yield f"{indent}({error.strerror})"
        return
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            yield f"{indent}{entry.name}/" + ("  …" if level == TREE_LEVELS else "")
            if level < TREE_LEVELS:
                yield from _tree_lines(entry, level + 1)
        else:
            size = f"{entry.stat().st_size:,} bytes" if entry.exists() else "broken link"
            yield f"{indent}{entry.name}  {size}"
