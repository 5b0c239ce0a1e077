from __future__ import annotations

from dataclasses import replace

import pytest

from batch_handler.resources import Resources
from batch_handler.settings import MIB, resolve
from entrypoint.capacity import Capacity, capacity, heap_mb

MODEL = 100 * MIB


@pytest.mark.parametrize(("cpus", "threads"), [(0.5, 1), (1.0, 1), (2.5, 2), (16.0, 16)])
def test_our_handler_gets_one_worker_with_a_thread_per_whole_cpu(cpus: float, threads: int) -> None:
    machine = Resources(cpus, 8_192 * MIB, True)
    assert capacity(resolve({}), machine, ours=True, model_bytes=MODEL) == Capacity(1, 1, threads)


@pytest.mark.parametrize(
    ("memory_mb", "model_mb", "workers"),
    [(16_384, 100, 4), (2_048, 100, 2), (1_500, 500, 1), (256, 4_000, 1)],
)
def test_a_foreign_handler_gets_a_worker_per_cpu_as_long_as_they_fit(memory_mb: int, model_mb: int, workers: int) -> None:
    machine = Resources(4.0, memory_mb * MIB, True)
    assert capacity(resolve({}), machine, ours=False, model_bytes=model_mb * MIB).min_workers == workers


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"SAGEMAKER_TS_MIN_WORKERS": "6"}, (6, 6)),
        ({"SAGEMAKER_TS_MIN_WORKERS": "1"}, (1, 2)),
        ({"SAGEMAKER_TS_MAX_WORKERS": "1"}, (1, 1)),
        ({"SAGEMAKER_TS_MAX_WORKERS": "9"}, (2, 9)),
        ({"SAGEMAKER_TS_MIN_WORKERS": "3", "SAGEMAKER_TS_MAX_WORKERS": "5"}, (3, 5)),
        ({"SAGEMAKER_MODEL_SERVER_WORKERS": "4"}, (4, 4)),
    ],
)
def test_the_bound_that_is_not_set_follows_the_other(
    small_machine: Resources, variables: dict[str, str], expected: tuple[int, int]
) -> None:
    share = capacity(resolve(variables), small_machine, ours=False, model_bytes=MODEL)
    assert (share.min_workers, share.max_workers) == expected


def test_workers_share_the_cpus_unless_the_threads_are_set() -> None:
    machine = Resources(8.0, 8_192 * MIB, True)
    two = {"SAGEMAKER_MODEL_SERVER_WORKERS": "2"}
    assert capacity(resolve(two), machine, ours=True, model_bytes=MODEL).threads == 4
    assert capacity(resolve(two | {"BYOC_THREADS": "3"}), machine, ours=True, model_bytes=MODEL).threads == 3


def test_the_heap_follows_the_limits_within_a_quarter_of_the_memory(small_machine: Resources) -> None:
    assert heap_mb(resolve({}), replace(small_machine, memory_bytes=1_500 * MIB)) == 375
    assert heap_mb(resolve({}), replace(small_machine, memory_bytes=100 * MIB)) == 96
    roomy = replace(small_machine, memory_bytes=64 * 1_024 * MIB)
    assert heap_mb(resolve({"BYOC_MAX_RESPONSE_MB": "64"}), roomy) == 64 + 6 * 25 + 3 * 64
    assert heap_mb(resolve({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "100", "BYOC_MAX_RESPONSE_MB": "64"}), roomy) == 64 + 600 + 192
