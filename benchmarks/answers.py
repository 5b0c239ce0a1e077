"""Bodies in each system's own form, and whether its answers are the right ones."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Sequence
from typing import Any

from benchmarks import texts
from benchmarks.systems import System

TOLERANCE = 1e-4
AGREEMENT = 0.995
"""The mean cosine, or share of same labels, that answers of a rounded engine must reach."""
JSON, LINES = "application/json", "application/jsonlines"


class WrongAnswerError(Exception):
    """An answer that differs from the model's own."""


def bodies(system: System, records: Sequence[str], lines: int) -> tuple[list[bytes], str]:
    """The requests of one workload and their content type."""
    if system.form == "openai":
        inputs: list[Any] = list(records) if lines == 1 else [_texts(body) for body in texts.list_per_request(records, lines)]
        return [json.dumps({"model": "model", "input": each}).encode() for each in inputs], JSON
    if lines == 1:
        # BentoML's batchable methods take lists only.
        listed = system.environment == "bentoml"
        return (texts.list_per_request(records, 1) if listed else texts.one_per_request(records)), JSON
    if system.form == "list":
        return texts.list_per_request(records, lines), JSON
    return texts.lines_per_request(records, lines), LINES


def _texts(body: bytes) -> list[str]:
    inputs: list[str] = json.loads(body)["inputs"]
    return inputs


def results(system: System, body: bytes, count: int) -> list[Any]:
    """The results of one response, one per record."""
    values = [json.loads(line) for line in body.splitlines()]
    if system.form == "openai":
        return [entry["embedding"] for entry in values[0]["data"]]
    if len(values) == 1 and (system.form == "list" or count > 1):
        return list(values[0])
    return values


def check(name: str, seen: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Raise WrongAnswerError unless all numbers agree within 1e-4 and all texts are the same."""
    if len(seen) != len(wanted):
        raise WrongAnswerError(f"{name} gave {len(seen)} results for {len(wanted)} records")
    for index, (one, other) in enumerate(zip(seen, wanted, strict=True)):
        if not agree(one, other):
            raise WrongAnswerError(f"{name} answers record {index} with {str(one)[:60]} instead of {str(other)[:60]}")


def close(name: str, seen: Sequence[Any], wanted: Sequence[Any]) -> float:
    """How well the answers of a rounded engine agree: the mean cosine of vectors, or the share of labels that are the same.

    Raises WrongAnswerError for answers of another kind.
    """
    if len(seen) != len(wanted):
        raise WrongAnswerError(f"{name} gave {len(seen)} results for {len(wanted)} records")
    return math.fsum(_likeness(name, *pair) for pair in zip(seen, wanted, strict=True)) / len(wanted)


def _likeness(name: str, one: Any, other: Any) -> float:
    if isinstance(one, dict) and isinstance(other, dict) and "label" in other:
        return float(one.get("label") == other["label"])
    if not (isinstance(one, list) and isinstance(other, list) and len(one) == len(other)):
        raise WrongAnswerError(f"{name} answers with {str(one)[:60]} instead of {str(other)[:60]}")
    return math.fsum(map(operator.mul, one, other)) / (math.hypot(*one) * math.hypot(*other))


def agree(one: Any, other: Any) -> bool:
    """Equal, but for numbers that differ by no more than 1e-4."""
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=0.0, abs_tol=TOLERANCE)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(agree, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(agree(one[key], other[key]) for key in one)
    return bool(one == other)
