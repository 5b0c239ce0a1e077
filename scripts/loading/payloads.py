"""What is sent: bodies from a file or a directory, each with its type, its weight and what its answer should be.

A ``.jsonl`` file holds one body per line; every other file is one body. In a directory all files take part, ``weights.yaml``
(pattern: weight) says how often, and ``NAME.expected`` beside ``NAME`` holds the answer.
"""

from __future__ import annotations

import fnmatch
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from .errors import LoadTestError

LINES = {".jsonl", ".ndjson"}
JSON, JSON_LINES = "application/json", "application/jsonlines"
CONTENT_TYPES = {
    ".json": JSON,
    ".csv": "text/csv",
    ".txt": "text/plain",
    ".npy": "application/x-npy",
    ".npz": "application/x-npz",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
}
WEIGHTS = "weights.yaml"
EXPECTED = ".expected"
RELATIVE = 1e-4
ABSOLUTE = 1e-5
BLOCK = 1_000
LARGEST = 1 << 30


@dataclass(frozen=True, slots=True)
class Payload:
    """One body. ``weight`` is how often it is sent, relative to the others; ``expected`` an answer's bytes, or None."""

    name: str
    body: bytes
    content_type: str
    weight: float = 1.0
    expected: bytes | None = None


def read(path: Path, content_type: str | None = None, lines_per_request: int = 1) -> list[Payload]:
    """The payloads of a file or directory. Raises LoadTestError when there are none, or one has no known type.

    With ``lines_per_request`` over 1 so many lines of a ``.jsonl`` file are one JSON Lines body.
    """
    try:
        if sum(file.stat().st_size for file in _files(path)) > LARGEST:
            raise LoadTestError(f"{path} holds more than 1 GiB, and payloads stay in memory: choose fewer of them")
        found = [payload for file in _files(path) for payload in _bodies(file, content_type, lines_per_request)]
        weights = _weights(path / WEIGHTS) if path.is_dir() else {}
    except OSError as error:
        raise LoadTestError(f"{error.filename or path} cannot be read: {error.strerror}") from None
    if not found:
        raise LoadTestError(f"{path} holds no payloads: give a file, a .jsonl with one body per line, or a directory of files")
    weighted = [replace(payload, weight=payload.weight * _weight(payload.name, weights)) for payload in found]
    sent = [payload for payload in weighted if payload.weight > 0]
    if not sent:
        raise LoadTestError(f"{path / WEIGHTS} gives every payload the weight 0: give one of them more")
    return sent


def mix(payloads: Sequence[Payload], seed: int) -> Iterator[Payload]:
    """Payloads without end. Equal weights go round in shuffled order, so that every part of a run has the same mix."""
    generator = random.Random(seed)  # noqa: S311 - a mix, not a secret
    weights = [payload.weight for payload in payloads]
    equal = len(set(weights)) == 1
    while True:
        if equal:
            yield from generator.sample(payloads, len(payloads))
        else:
            yield from generator.choices(payloads, weights, k=BLOCK)


def matches(answer: bytes, expected: bytes) -> bool:
    """Whether an answer is the expected one: as JSON with numbers within 1e-4 where both are JSON, else byte by byte."""
    if answer == expected:
        return True
    try:
        return _close(json.loads(answer), json.loads(expected))
    except ValueError:
        return False


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_close, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(one[key], other[key]) for key in one)
    return bool(one == other)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return [
        file
        for file in sorted(path.iterdir())
        if file.is_file() and file.name != WEIGHTS and not file.name.startswith(".") and file.suffix != EXPECTED
    ]


def _bodies(file: Path, content_type: str | None, lines_per_request: int) -> list[Payload]:
    content = file.read_bytes()
    if file.suffix in LINES:
        lines = [line for line in content.splitlines() if line.strip()]
        groups = [lines[at : at + lines_per_request] for at in range(0, len(lines), lines_per_request)]
        kind = content_type or (JSON if lines_per_request == 1 else JSON_LINES)
        share = 1.0 / max(1, len(groups))
        names = (f"{file.name}:{at * lines_per_request + 1}" for at in range(len(groups)))
        return [Payload(name, b"\n".join(group), kind, share) for name, group in zip(names, groups, strict=True)]
    kind = content_type or CONTENT_TYPES.get(file.suffix.lower(), "")
    if not kind:
        raise LoadTestError(f"{file} has no known Content-Type: pass --content-type, or use one of {', '.join(CONTENT_TYPES)}")
    expected = file.with_name(file.name + EXPECTED)
    return [Payload(file.name, content, kind, 1.0, expected.read_bytes() if expected.is_file() else None)]


def _weights(path: Path) -> Mapping[str, float]:
    """Pattern → weight. Raises LoadTestError."""
    if not path.is_file():
        return {}
    try:
        found = yaml.safe_load(path.read_text("utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError):
        raise LoadTestError(f"{path} is not valid YAML: write one 'pattern: weight' per line") from None
    good = isinstance(found, dict) and all(
        isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf for value in found.values()
    )
    if not good:
        raise LoadTestError(f"{path} must give each pattern a weight of 0 or more, such as 'short-*.json: 3'")
    return {str(pattern): float(value) for pattern, value in found.items()}


def _weight(name: str, weights: Mapping[str, float]) -> float:
    """That of the first pattern that fits the file's name; 1 where none does."""
    file = name.rsplit(":", 1)[0]
    return next((weight for pattern, weight in weights.items() if fnmatch.fnmatchcase(file, pattern)), 1.0)
