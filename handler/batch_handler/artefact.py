"""What is in the model directory, and which task and loader it needs. Reads file names and small headers, never weights.

Owns the detection table and the sentences about directories that cannot be served.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Any

TREE_LINES = 40
SEQUENCE_TO_SEQUENCE = ("ForConditionalGeneration", "MTModel")
TRANSLATION_MODELS = {"marian", "m2m_100", "mbart", "nllb-moe", "fsmt"}
WEIGHTS = ("*.safetensors", "*.bin")
HANDLER = "batch_handler.service:handle"
PACKAGED_HANDLER = "byoc_handler.py"
"""The handler file by which an archive of our own packaging is known."""


class ArtefactError(Exception):
    """A model directory that cannot be served: one sentence, and the tree where that helps."""


class Kind(Enum):
    """The kinds of artefact that can be served."""

    HUGGING_FACE = "a Hugging Face directory (config.json with its weights and tokenizer files)"
    ARCHIVE = "a TorchServe archive (one .mar file)"


@dataclass(frozen=True, slots=True)
class Artefact:
    """A model directory that has been looked at. ``path`` is the directory itself, or the ``.mar`` file."""

    kind: Kind
    path: Path
    task: str | None = None


def detect(directory: Path, task: str | None = None) -> Artefact:
    """Find out what `directory` holds.

    Raises ArtefactError with the tree and what is expected when it holds nothing that can be served, or too much.
    """
    if not directory.is_dir():
        raise ArtefactError(f"there is no model directory {directory}: mount or extract the model there")
    archives = sorted(path for path in directory.glob("*.mar") if path.is_file())
    if (directory / "config.json").is_file():
        check_hugging_face(directory)
        return Artefact(Kind.HUGGING_FACE, directory, task or default_task(directory))
    if len(archives) == 1:
        return Artefact(Kind.ARCHIVE, archives[0])
    if len(archives) > 1:
        names = ", ".join(archive.name for archive in archives)
        raise ArtefactError(f"{directory} holds {len(archives)} archives ({names}): leave exactly one")
    nested = {path.parent.name for pattern in ("*/config.json", "*/*.mar") for path in directory.glob(pattern)}
    hint = f" The model seems to lie one level too deep, in {min(nested)}/." if len(nested) == 1 else ""
    expected = " or ".join(kind.value for kind in Kind)
    raise ArtefactError(f"{directory} holds no model.{hint} Expected {expected}. It holds:\n{tree(directory)}")


def check_hugging_face(directory: Path) -> None:
    """Refuse what would fail later and less clearly: broken JSON, missing or cut weights, no tokenizer."""
    for path in sorted(directory.glob("*.json")):
        read_json(path)
    weights = [path for pattern in WEIGHTS for path in sorted(directory.glob(pattern))]
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
    """A JSON object from a file of the artefact."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except UnicodeDecodeError:
        raise ArtefactError(f"{path} is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ArtefactError(f"{path} is not valid JSON: {error.msg}, line {error.lineno} column {error.colno}") from None
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error.strerror}") from None
    if not isinstance(value, dict) and path.name == "config.json":
        raise ArtefactError(f"{path} must hold a JSON object")
    return value if isinstance(value, dict) else {}


def default_task(directory: Path) -> str:
    """The task that the artefact's own files name."""
    if (directory / "modules.json").is_file():
        return "sentence-embeddings"
    config = read_json(directory / "config.json")
    architecture = next(iter(config.get("architectures") or []), "")
    if architecture.endswith("ForSequenceClassification"):
        return "text-classification"
    if architecture.endswith(SEQUENCE_TO_SEQUENCE):
        return "translation" if config.get("model_type") in TRANSLATION_MODELS else "text2text-generation"
    return "feature-extraction"


def tree(directory: Path) -> str:
    """The directory as an indented listing, cut after 40 lines."""
    lines = list(islice(_tree_lines(directory, "  "), TREE_LINES + 1))
    if len(lines) > TREE_LINES:
        lines[TREE_LINES] = "  … and more"
    return "\n".join(lines) or "  (nothing)"


def _tree_lines(directory: Path, indent: str) -> Iterator[str]:
    try:
        entries = sorted(directory.iterdir())
    except OSError as error:
        yield f"{indent}({error.strerror})"
        return
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            yield f"{indent}{entry.name}/"
            yield from _tree_lines(entry, indent + "  ")
        else:
            size = f"{entry.stat().st_size:,} bytes" if entry.exists() else "broken link"
            yield f"{indent}{entry.name}  {size}"
