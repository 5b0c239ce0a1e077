"""Micro-batches: which records share a forward pass, and running one so that a bad record costs only itself.

Owns the plan (lengths under a token budget), splitting on failure and the bookkeeping of what was run. When a micro-batch
runs is the scheduler's to say; what a forward pass is, that of tasks and engines.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable, Collection, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from batch_handler.errors import ErrorType, ServiceError
from batch_handler.worker_log import about

log = logging.getLogger(__name__)

WORTH_A_PASS = 32
"""Tokens below which another forward pass costs more than it saves: reading all weights takes as long as some 30 tokens."""

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "failed to allocate")


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Records that share one forward pass, shortest first.

    ``indices`` point into the flat record list of the whole batch. ``tokens`` is what the model will really see, padding
    included, and exceeds the token budget only where a single record does; ``padding`` is the part of it that is padding.
    """

    indices: tuple[int, ...]
    tokens: int
    padding: int


@dataclass(slots=True)
class Report:
    """What one batch cost: counts of tokens and micro-batches, and seconds of forward passes summed over the lanes.

    ``requests`` were in the batch, and ``handler_s`` seconds passed until the last of them was answered. ``overlaps`` says
    that the next batch may have been taken in before.
    """

    tokens: int = 0
    padding: int = 0
    truncated: int = 0
    forward_s: float = 0.0
    microbatches: list[int] = field(default_factory=list)
    requests: int = 0
    handler_s: float = 0.0
    overlaps: bool = False

    def add(self, microbatch: MicroBatch, seconds: float) -> None:
        """Note one forward pass."""
        self.tokens += microbatch.tokens - microbatch.padding
        self.padding += microbatch.padding
        self.forward_s += seconds
        self.microbatches.append(len(microbatch.indices))


def plan(
    lengths: Sequence[int],
    token_budget: int,
    lanes: int = 1,
    padded: bool = True,
    groups: Sequence[Hashable] | None = None,
    busy: Collection[MicroBatch] = (),
    stepwise: bool = False,
) -> list[MicroBatch]:
    """Divide records into micro-batches within the token budget, the costliest first.

    With padding, records are sorted and cut, so that each micro-batch pads only to its own longest record. Without it,
    any records may meet, and they are dealt out so that all micro-batches cost the same and no lane waits for another.
    Records of different `groups` (other generation parameters, say) never meet. Every index appears exactly once.
    What is `busy` on some of the lanes already counts: the others get no smaller a share for it. Cost: O(n log n).

    Where answers are generated (`stepwise`), a step costs about the same for one record as for several: lanes get as many
    records each then, however long.
    """
    members: dict[Hashable, list[int]] = {}
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        members.setdefault(groups[index] if groups else None, []).append(index)
    divide = _counted if stepwise else _cut if padded else _dealt
    under_way = sum(len(batch.indices) if stepwise else batch.tokens for batch in busy)
    batches = [
        _microbatch(batch, lengths, padded)
        for group in members.values()
        for batch in divide(group, lengths, token_budget, lanes, under_way)
    ]
    return sorted(batches, key=lambda batch: batch.tokens, reverse=True)


def _cut(longest_first: Sequence[int], lengths: Sequence[int], token_budget: int, lanes: int, busy: int) -> list[list[int]]:
    """Neighbours in length together; the budget shrinks when there are too few tokens to keep every lane busy."""
    budget = min(token_budget, -(-(busy + sum(lengths[index] for index in longest_first)) // lanes))
    return _neighbours(longest_first, lengths, budget, len(longest_first))


def _counted(longest_first: Sequence[int], lengths: Sequence[int], token_budget: int, lanes: int, busy: int) -> list[list[int]]:
    """Neighbours in length together, no more of them than a lane's share of all records."""
    return _neighbours(longest_first, lengths, token_budget, -(-(busy + len(longest_first)) // lanes))


def _neighbours(longest_first: Sequence[int], lengths: Sequence[int], token_budget: int, most: int) -> list[list[int]]:
    """Cut wherever the budget, padding included, or so many records are full."""
    batches: list[list[int]] = []
    for index in longest_first:
        last = batches[-1] if batches else []
        if not last or len(last) == most or lengths[last[0]] * (len(last) + 1) > token_budget:
            batches.append([])
        batches[-1].append(index)
    return batches


def _dealt(longest_first: Sequence[int], lengths: Sequence[int], token_budget: int, lanes: int, busy: int) -> list[list[int]]:
    """Each record, longest first, to the micro-batch with the fewest tokens (Graham's LPT rule, 1969).

    With what is busy there are as many micro-batches as lanes, or a multiple, but none for less than WORTH_A_PASS tokens.
    """
    total = sum(lengths[index] for index in longest_first)
    rounds = max(1, -(-(total + busy) // (token_budget * lanes)))
    share = (total + busy) / (rounds * lanes) or 1
    count = max(1, min(round(total / share), total // WORTH_A_PASS, len(longest_first)))
    batches: list[list[int]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    for index in longest_first:
        load, number = loads[0]
        if load and load + lengths[index] > token_budget:
            number = len(batches)
            batches.append([index])
            heapq.heappush(loads, (lengths[index], number))
        else:
            batches[number].append(index)
            heapq.heapreplace(loads, (load + lengths[index], number))
    return [batch for batch in batches if batch]


def _microbatch(longest_first: Sequence[int], lengths: Sequence[int], padded: bool) -> MicroBatch:
    real = sum(lengths[index] for index in longest_first)
    seen = lengths[longest_first[0]] * len(longest_first) if padded else real
    return MicroBatch(tuple(reversed(longest_first)), seen, seen - real)


LATE = ServiceError(
    ErrorType.TIMEOUT,
    "the request holds more records than the response timeout leaves time for: send fewer at once, or raise "
    "SAGEMAKER_TS_RESPONSE_TIMEOUT",
)
Forward = Callable[[Sequence[int]], Sequence[Any]]
Whose = Callable[[Sequence[int]], Sequence[str]]


class Lanes:
    """Threads that run a given list of micro-batches to its end; what keeps arriving is the scheduler's."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(count, "lane") if count > 1 else None

    def run(self, batches: Sequence[MicroBatch], forward: Forward, total: int, report: Report) -> list[Any]:
        """Run every micro-batch; returns one result per record index, errors in the places of the records they hit.

        `forward` takes record indices and returns as many results. When it fails, the micro-batch is halved until only
        the record at fault is left alone with its error.
        """
        results: list[Any] = [None] * total

        def one(batch: MicroBatch) -> tuple[MicroBatch, float]:
            started = time.perf_counter()
            for index, result in zip(batch.indices, guarded(forward, batch.indices), strict=True):
                results[index] = result
            return batch, time.perf_counter() - started

        in_order = map(one, batches) if self._pool is None or len(batches) < 2 else self._pool.map(one, batches)
        for batch, seconds in in_order:
            report.add(batch, seconds)
        return results


def guarded(forward: Forward, indices: Sequence[int], whose: Whose | None = None) -> Sequence[Any]:
    """Run one forward pass; on failure halve it, so that neighbours get their answers and the culprit its own error.

    `whose` gives the ids of the requests that records belong to, for the log.
    """
    try:
        results = forward(indices)
        if len(results) != len(indices):
            raise ValueError(f"{len(results)} results for {len(indices)} records")
        return results
    except ServiceError as error:
        fault = error
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a model raises is its record's error
        with about(whose(indices)) if whose else nullcontext():
            fault = _fault(error, len(indices))
    if len(indices) == 1:
        return [fault]
    middle = len(indices) // 2
    return [*guarded(forward, indices[:middle], whose), *guarded(forward, indices[middle:], whose)]


def out_of_memory(error: BaseException) -> bool:
    """Whether a forward pass failed because it was too large."""
    words = str(error).lower()
    return isinstance(error, MemoryError) or any(sign in words for sign in OUT_OF_MEMORY)


def _fault(error: BaseException, size: int) -> ServiceError:
    if out_of_memory(error):
        log.warning("out of memory in a forward pass of %d records: halving it", size)
        return ServiceError(ErrorType.OUT_OF_MEMORY, "the model ran out of memory on this record alone: send a shorter one")
    log.error("the forward pass of %d records failed", size, exc_info=error)
    return ServiceError(ErrorType.MODEL_ERROR, f"the model failed on this record ({type(error).__name__})")
