"""How an exported engine compares to ``packed`` in full precision: speed on one core, and what became of the answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from batch_handler.microbatch import plan
from batch_handler.tasks import Encoded, Task
from exporting.samples import Sample

TOKEN_BUDGET = 1_024
ROUNDS = 3
LEAST_S = 2.0
Array = numpy.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Agreement:
    """What was measured on ``samples`` records.

    ``cosine`` is the mean over the answers (vectors, scores) and ``worst`` the smallest. ``top1`` is the share of records
    whose first answer is the same: the label, or for sentence vectors the nearest of the other samples; ``flips`` counts
    the labels that are not. Both are None where there is no first answer. Rates are records a second on one core.
    """

    samples: int
    cosine: float
    worst: float
    top1: float | None
    flips: int | None
    rate: float
    packed_rate: float


def measured(packed: Task, exported: Task, samples: Sequence[Sample], advance: Callable[[], object]) -> Agreement:
    """Ask both by turns until the time is worth something; the best round of each counts."""
    rounds: list[tuple[float, float]] = []
    with on_one_core():
        started = time.perf_counter()
        while len(rounds) < ROUNDS or time.perf_counter() - started < LEAST_S:
            (base, base_s), (found, found_s) = _timed(packed, samples), _timed(exported, samples)
            rounds.append((base_s, found_s))
            advance()
    cosines = _cosines(base, found)
    wanted, given = (
        [_first(task, *pair) for pair in _gathered(samples, out)] for task, out in ((packed, base), (exported, found))
    )
    labelled = wanted[0] is not None
    if not labelled:
        wanted, given = _nearest(base), _nearest(found)
    same = [one == other for one, other in zip(wanted, given, strict=True)]
    return Agreement(
        samples=len(samples),
        cosine=float(cosines.mean()),
        worst=float(cosines.min()),
        top1=sum(same) / len(same) if same else None,
        flips=same.count(False) if labelled else None,
        rate=len(samples) / min(found_s for _, found_s in rounds),
        packed_rate=len(samples) / min(base_s for base_s, _ in rounds),
    )


def compared(agreement: Agreement, name: str) -> list[tuple[str, ...]]:
    """Headings and two rows, as cells."""
    top1 = "–" if agreement.top1 is None else f"{agreement.top1:.1%}"
    flips = "–" if agreement.flips is None else str(agreement.flips)
    return [
        ("engine", "records/s on one core", "×", "cosine", "worst", "top-1", "label flips"),
        ("packed fp32", f"{agreement.packed_rate:.0f}", "1.00", "1", "1", "100.0%" if agreement.top1 is not None else "–", "0"),
        (
            name,
            f"{agreement.rate:.0f}",
            f"{agreement.rate / agreement.packed_rate:.2f}",
            f"{agreement.cosine:.5f}",
            f"{agreement.worst:.5f}",
            top1,
            flips,
        ),
    ]


@contextmanager
def on_one_core() -> Iterator[None]:
    """As a lane runs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _timed(task: Task, samples: Sequence[Sample]) -> tuple[list[Any], float]:
    """The output of every pass of every sample, in order, and the seconds that it took."""
    passes = [one for sample in samples for one in sample.encoded.passes]
    outputs: list[Any] = [None] * len(passes)
    started = time.perf_counter()
    for batch in plan([one.length for one in passes], TOKEN_BUDGET, padded=False):
        for index, output in zip(batch.indices, task.run([passes[index] for index in batch.indices]), strict=True):
            outputs[index] = output
    return outputs, time.perf_counter() - started


def _gathered(samples: Sequence[Sample], outputs: Sequence[Any]) -> Iterator[tuple[Encoded, Any]]:
    """Each record with the outputs of its passes, as a task decodes them."""
    rest = iter(outputs)
    for sample in samples:
        yield sample.encoded, sample.encoded.gathered([next(rest) for _ in sample.encoded.passes])


def _first(task: Task, record: Encoded, output: Any) -> Any:
    return first_answer(task.decode(output, record))


def first_answer(result: Any) -> Any:
    """What a caller would act on: the best label, span, token or document, or every token's; None for vectors."""
    if isinstance(result, dict):
        if "labels" in result:
            return result["labels"][0]
        return next((result[key] for key in ("label", "answer") if key in result), None)
    if not isinstance(result, list):
        return None
    if any(isinstance(one, dict) and ("entity" in one or "entity_group" in one) for one in result):
        return [(one.get("index", one.get("start")), one.get("entity", one.get("entity_group"))) for one in result]
    if result and isinstance(result[0], list):
        return [first_answer(one) for one in result]
    return next((result[0][key] for key in ("label", "answer", "token", "corpus_id") if result and key in result[0]), [])


def _cosines(base: Sequence[Any], found: Sequence[Any]) -> Array:
    """One per output; outputs of a single number are compared as one vector of all."""
    ones, others = ([numpy.ravel(numpy.asarray(output, numpy.float64)) for output in outputs] for outputs in (base, found))
    if all(one.size == 1 for one in ones):
        ones, others = [numpy.concatenate(ones)], [numpy.concatenate(others)]
    return numpy.array([_cosine(one, other) for one, other in zip(ones, others, strict=True) if one.size])


def _cosine(one: Array, other: Array) -> float:
    scale = float(numpy.linalg.norm(one) * numpy.linalg.norm(other))
    return float(one @ other) / scale if scale else float(numpy.array_equal(one, other))


def _nearest(outputs: Sequence[Any]) -> list[int]:
    """For each vector the most similar of the others; nothing for matrices, whose sizes differ, or too few vectors."""
    if len(outputs) < 3 or any(numpy.ndim(output) != 1 for output in outputs):
        return []
    vectors = numpy.stack(outputs)
    vectors = vectors / numpy.maximum(numpy.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    similar = vectors @ vectors.T
    numpy.fill_diagonal(similar, -numpy.inf)
    return [int(place) for place in similar.argmax(1)]
