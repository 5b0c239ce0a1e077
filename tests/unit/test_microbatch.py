"""Micro-batches: the plan, and running it so that one bad record costs only itself."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_handler.errors import ErrorType, ServiceError, invalid_record
from batch_handler.microbatch import Lanes, MicroBatch, Report, guarded, plan

LENGTHS = st.lists(st.integers(0, 600), max_size=120)
BUDGETS = st.integers(1, 2_000)
LANES = st.integers(1, 8)


@given(LENGTHS, BUDGETS, LANES, st.booleans())
def test_every_index_appears_exactly_once(lengths: list[int], budget: int, lanes: int, padded: bool) -> None:
    batches = plan(lengths, budget, lanes, padded)
    assert sorted(index for batch in batches for index in batch.indices) == list(range(len(lengths)))


@given(LENGTHS, BUDGETS, LANES, st.booleans())
def test_the_budget_holds_unless_a_single_record_is_larger(lengths: list[int], budget: int, lanes: int, padded: bool) -> None:
    assert all(batch.tokens <= budget or len(batch.indices) == 1 for batch in plan(lengths, budget, lanes, padded))


@given(LENGTHS, BUDGETS, LANES)
def test_tokens_and_padding_are_what_the_model_sees(lengths: list[int], budget: int, lanes: int) -> None:
    for batch in plan(lengths, budget, lanes, padded=True):
        own = [lengths[index] for index in batch.indices]
        assert own == sorted(own)
        assert batch.tokens == max(own) * len(own)
        assert batch.padding == batch.tokens - sum(own)
    for batch in plan(lengths, budget, lanes, padded=False):
        assert batch.tokens == sum(lengths[index] for index in batch.indices)
        assert batch.padding == 0


@given(st.lists(st.tuples(st.integers(1, 200), st.sampled_from("abc")), max_size=80), BUDGETS)
def test_groups_never_meet(records: list[tuple[int, str]], budget: int) -> None:
    groups = [group for _, group in records]
    for batch in plan([length for length, _ in records], budget, groups=groups):
        assert len({groups[index] for index in batch.indices}) == 1


@given(LENGTHS, BUDGETS, LANES, st.integers(0, 100))
def test_where_steps_cost_alike_lanes_get_as_many_records(lengths: list[int], budget: int, lanes: int, busy: int) -> None:
    batches = plan(lengths, budget, lanes, busy=[MicroBatch(tuple(range(busy)), 9, 0)], stepwise=True)
    share = -(-(busy + len(lengths)) // lanes)
    assert sorted(index for batch in batches for index in batch.indices) == list(range(len(lengths)))
    assert all(len(batch.indices) <= share for batch in batches)
    assert all(batch.tokens <= budget or len(batch.indices) == 1 for batch in batches)
    if not busy and max(lengths, default=0) * share <= budget:
        assert len(batches) <= lanes


def test_few_records_of_any_lengths_are_generated_together_while_as_many_are_under_way() -> None:
    lengths = [60, 9, 20, 14]
    under_way = [MicroBatch((0, 1, 2, 3), sum(lengths), 0)]
    assert len(plan(lengths, 1_024, lanes=2, busy=under_way, stepwise=True)) == 1
    assert len(plan(lengths, 1_024, lanes=2, busy=under_way)) > 1


@given(st.lists(st.integers(1, 100), min_size=1, max_size=100), LANES)
def test_no_lane_is_left_with_more_than_its_share_in_one_padded_piece(lengths: list[int], lanes: int) -> None:
    batches = plan(lengths, 1_000_000, lanes)
    share = -(-sum(lengths) // lanes)
    assert all(batch.tokens <= share or len(batch.indices) == 1 for batch in batches)
    assert [batch.tokens for batch in batches] == sorted((batch.tokens for batch in batches), reverse=True)


@given(st.lists(st.integers(1, 100), min_size=1, max_size=300), LANES, st.integers(100, 2_000))
def test_without_padding_the_pieces_differ_by_no_more_than_one_record(lengths: list[int], lanes: int, budget: int) -> None:
    batches = plan(lengths, budget, lanes, padded=False)
    rounds = -(-sum(lengths) // (budget * lanes))
    if len(batches) <= rounds * lanes:
        assert batches[0].tokens - batches[-1].tokens <= max(lengths)


@given(st.integers(1, 31), LANES)
def test_a_few_tokens_are_one_piece_however_many_lanes_are_idle(tokens: int, lanes: int) -> None:
    assert len(plan([1] * tokens, 1_024, lanes, padded=False)) == 1


@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
def test_many_like_records_keep_every_lane_busy(lanes: int) -> None:
    batches = plan([10] * 64, 1_000_000, lanes)
    assert len(batches) == lanes
    assert {batch.tokens for batch in batches} == {640 // lanes}


def test_sorting_keeps_padding_small() -> None:
    generator = random.Random(0)
    lengths = [min(512, int(generator.lognormvariate(3, 1)) + 2) for _ in range(2_000)]
    batches = plan(lengths, 1_024)
    assert sum(batch.padding for batch in batches) < 0.05 * sum(batch.tokens for batch in batches)


def test_nothing_is_planned_for_nothing() -> None:
    assert plan([], 10) == []


def test_a_quarter_of_a_million_records_are_planned_at_once() -> None:
    generator = random.Random(1)
    lengths = [generator.randint(1, 512) for _ in range(250_000)]
    started = time.process_time()
    plan(lengths, 1_024, 4, groups=[index % 5 for index in range(len(lengths))])
    assert time.process_time() - started < 5


def doubled(indices: Sequence[int]) -> list[Any]:
    return [index * 2 for index in indices]


def fails_on(poison: set[int], error: Exception) -> Any:
    def forward(indices: Sequence[int]) -> list[Any]:
        if poison & set(indices):
            raise error
        return doubled(indices)

    return forward


@settings(deadline=2_000)
@given(st.integers(1, 60), st.sets(st.integers(0, 59), max_size=5), st.integers(1, 3), st.integers(1, 40))
def test_a_poison_record_costs_only_itself(count: int, poison: set[int], lanes: int, budget: int) -> None:
    pool = Lanes(lanes)
    batches = plan([1 + index % 7 for index in range(count)], budget, lanes)
    results = pool.run(batches, fails_on(poison, KeyError("/secret/path")), count, Report())
    for index, result in enumerate(results):
        if index in poison:
            assert isinstance(result, ServiceError)
            assert result.status == 500
            assert "KeyError" in result.message
            assert "secret" not in result.message
        else:
            assert result == index * 2


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate"),
    ],
)
@pytest.mark.parametrize("most", [1, 3, 8])
def test_out_of_memory_halves_until_it_fits(error: Exception, most: int) -> None:
    passes: list[int] = []

    def forward(indices: Sequence[int]) -> list[Any]:
        if len(indices) > most:
            raise error
        passes.append(len(indices))
        return doubled(indices)

    assert guarded(forward, list(range(37))) == doubled(range(37))
    assert max(passes) <= most
    assert sum(passes) == 37


def test_a_record_too_large_on_its_own_is_told_so() -> None:
    results = guarded(fails_on({2}, MemoryError()), [0, 1, 2, 3])
    assert results[2].type is ErrorType.OUT_OF_MEMORY
    assert results[2].status == 503
    assert [results[0], results[1], results[3]] == [0, 2, 6]


def test_an_error_of_ours_reaches_its_record_as_it_is() -> None:
    results = guarded(fails_on({1}, invalid_record("too odd")), [0, 1, 2])
    assert results[1].message == "too odd"
    assert [results[0], results[2]] == [0, 4]


def test_too_few_results_are_the_models_error_and_end_nothing() -> None:
    results = guarded(lambda indices: doubled(indices)[:-1], [0, 1])
    assert [result.status for result in results] == [500, 500]


def test_lanes_run_at_the_same_time_and_results_keep_their_places() -> None:
    meeting = threading.Barrier(3, timeout=10)
    names: set[str] = set()

    def forward(indices: Sequence[int]) -> list[Any]:
        meeting.wait()
        names.add(threading.current_thread().name)
        return doubled(indices)

    report = Report()
    batches = plan([5] * 6, 10, 3)
    assert len(batches) == 3
    assert Lanes(3).run(batches, forward, 6, report) == doubled(range(6))
    assert len(names) == 3
    assert report.microbatches == [2, 2, 2]
    assert (report.tokens, report.padding) == (30, 0)


def test_the_report_adds_up_tokens_padding_and_time() -> None:
    report = Report()
    batches = plan([1, 3, 9, 10], 20)

    def forward(indices: Sequence[int]) -> list[Any]:
        time.sleep(0.01)
        return doubled(indices)

    Lanes(1).run(batches, forward, 4, report)
    assert report.tokens == 23
    assert report.padding == (20 - 19) + (6 - 4)
    assert report.forward_s >= 0.02
    assert sorted(report.microbatches) == [2, 2]
