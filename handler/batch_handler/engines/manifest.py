"""What an exported engine is: ``engine/`` in the model directory, and the JSON file in it that tells how to run it.

Written by ``scripts/package_model.py --engine``; read here, with the sentences about one that cannot be used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from batch_handler.artefact import WEIGHTS, ArtefactError, read_json

FOLDER = "engine"
FILE = "manifest.json"
FORMAT = 1
CHUNK = 1 << 20
AGAIN = "package the model again with scripts/package_model.py --engine, or set BYOC_ENGINE=packed"
PRECISIONS = ("fp32", "bf16", "int8-weights", "int8")
"""From the exact one to the fastest. The weights of the first two are the same; what differs is how they are multiplied."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the encoder between two attentions: a file of ``engine/``, and the names of what goes in and comes out."""

    file: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention over (query, key, value), each 1 × tokens × heads × width; comes out as 1 × tokens × (heads · width)."""

    inputs: tuple[str, str, str]
    output: str
    scale: float
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The engine's library and precision, its steps in order (``packed`` has none), and what was measured when it was made.

    ``weights`` is the hash of those it was made from. The row goes in as ``ids``, ``positions`` and, where the model knows
    them, ``types``; ``output`` names the hidden states, tokens × hidden size.
    """

    engine: str
    precision: str
    weights: str
    steps: tuple[Piece | Attention, ...]
    output: str
    versions: Mapping[str, str] = field(default_factory=dict)
    agreement: Mapping[str, float | int | None] = field(default_factory=dict)


def find(directory: Path) -> Manifest | None:
    """The manifest of the engine that was exported beside the model, if one was.

    Raises ArtefactError for one that is damaged, of another format, or made from other weights.
    """
    path = directory / FOLDER / FILE
    if not (directory / FOLDER).is_dir():
        return None
    manifest = _read(path)
    missing = [step.file for step in manifest.steps if isinstance(step, Piece) and not (path.parent / step.file).is_file()]
    if missing:
        raise ArtefactError(f"{FOLDER}/{FILE} names {missing[0]}, which is not there: {AGAIN}")
    if manifest.weights != weights_hash(directory):
        raise ArtefactError(f"{FOLDER}/ was made from other weights than those beside it: {AGAIN}")
    return manifest


def write(directory: Path, manifest: Manifest) -> None:
    """Into ``engine/`` of a model directory, readable for people too."""
    value = {"format": FORMAT, **asdict(manifest)}
    (directory / FOLDER / FILE).write_text(json.dumps(value, indent=1) + "\n", "utf-8")


def weights_hash(directory: Path) -> str:
    """SHA-256 over the weight files' names and contents, in the order of their names."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in WEIGHTS for path in directory.glob(pattern)):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"


def _read(path: Path) -> Manifest:
    if not path.is_file():
        raise ArtefactError(f"{FOLDER}/ has no {FILE}: {AGAIN}")
    value: Any = read_json(path)
    if value.get("format") != FORMAT:
        raise ArtefactError(f"{FOLDER}/{FILE} is of format {value.get('format')!r}, and this image reads {FORMAT}: {AGAIN}")
    try:
        return Manifest(
            engine=str(value["engine"]),
            precision=str(value["precision"]),
            weights=str(value["weights"]),
            steps=tuple(_step(step) for step in value["steps"]),
            output=str(value["output"]),
            versions=dict(value["versions"]),
            agreement=dict(value["agreement"]),
        )
    except (KeyError, TypeError, ValueError):
        raise ArtefactError(f"{FOLDER}/{FILE} does not describe an engine: {AGAIN}") from None


def _step(value: Any) -> Piece | Attention:
    inputs = tuple(map(str, value["inputs"]))
    if "file" in value:
        if Path(value["file"]).name != value["file"]:
            raise ValueError(value["file"])
        return Piece(value["file"], inputs, tuple(map(str, value["outputs"])))
    query, key, states = inputs
    window = value["window"]
    return Attention((query, key, states), str(value["output"]), float(value["scale"]), None if window is None else int(window))
