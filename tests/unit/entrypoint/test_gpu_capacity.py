"""Workers, lanes and token budget from a GPU's free memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batch_handler.resources import Resources
from batch_handler.settings import MIB, resolve
from entrypoint.devices import Devices
from entrypoint.gpu_capacity import CONTEXT_BYTES, LEAST_BUDGET, TOKEN_BUDGET, Share, activation_bytes, fitting_budget, share
from entrypoint.nvml import Gpu

GIB = 1024 * MIB
SMALL, LARGE = 90 * MIB, 3 * GIB


def devices(count: int = 1, free: int = 22 * GIB) -> Devices:
    return Devices(tuple(Gpu(f"GPU-{number}", number, "A10G", 24 * GIB, free) for number in range(count)))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """An encoder as wide as MiniLM."""
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 384, "intermediate_size": 1_536}))
    return tmp_path


def shared(model: Path, gpus: Devices, size: int = SMALL, cpus: float = 8.0, ours: bool = True, **variables: str) -> Share:
    machine = Resources(cpus, 32 * GIB, True)
    return share(resolve(variables), machine, gpus, model, size, ours=ours, shares_weights=ours)


def test_our_workers_are_two_on_each_gpu_with_two_lanes_where_they_fit(model: Path) -> None:
    capacity = shared(model, devices(2)).capacity
    assert (capacity.min_workers, capacity.max_workers, capacity.threads) == (4, 4, 2)


def test_a_model_that_fits_once_has_one_worker(model: Path) -> None:
    assert shared(model, devices(free=8 * GIB), size=LARGE).capacity.min_workers == 1


def test_a_single_cpu_feeds_a_single_worker(model: Path) -> None:
    assert shared(model, devices(), cpus=1.0).capacity.min_workers == 1


def test_the_fullest_gpu_decides(model: Path) -> None:
    uneven = Devices((*devices().gpus, Gpu("GPU-1", 1, "A10G", 24 * GIB, 2 * GIB)))
    assert shared(model, uneven).capacity.min_workers == 2


def test_a_foreign_handler_has_as_many_workers_as_cpus_and_memory_allow(model: Path) -> None:
    assert shared(model, devices(), cpus=4.0, ours=False).capacity.min_workers == 4
    assert shared(model, devices(free=6 * GIB), size=GIB, cpus=4.0, ours=False).capacity.min_workers == 1


def test_settings_override(model: Path) -> None:
    chosen = shared(model, devices(), SAGEMAKER_MODEL_SERVER_WORKERS="3", BYOC_THREADS="5", BYOC_TOKEN_BUDGET="4096")
    assert (chosen.capacity.min_workers, chosen.capacity.threads, chosen.token_budget) == (3, 5, 4_096)


def test_a_gpu_gets_a_larger_token_budget_halved_until_it_fits() -> None:
    assert fitting_budget(GIB, 1_024) == TOKEN_BUDGET
    assert fitting_budget(TOKEN_BUDGET // 4 * 1_024, 1_024) == TOKEN_BUDGET // 4
    assert fitting_budget(0, 1_024) == LEAST_BUDGET


def test_the_budget_leaves_room_for_the_model(model: Path) -> None:
    per_token = 2 * activation_bytes(model)
    free = int((CONTEXT_BYTES + SMALL + per_token * TOKEN_BUDGET // 2) / 0.8) + MIB
    assert shared(model, devices(free=free)).token_budget == TOKEN_BUDGET // 2


def test_half_precision_weights_count_twice(model: Path, tmp_path: Path) -> None:
    halved = tmp_path / "halved"
    halved.mkdir()
    (halved / "config.json").write_text(json.dumps({"hidden_size": 384, "intermediate_size": 1_536, "dtype": "bfloat16"}))
    free = int(2 * (CONTEXT_BYTES + LARGE + 2 * activation_bytes(model) * TOKEN_BUDGET) / 0.8) + MIB
    assert shared(model, devices(free=free), size=LARGE).capacity.min_workers == 2
    assert shared(halved, devices(free=free), size=LARGE).capacity.min_workers == 1


def test_what_does_not_fit_is_a_warning_with_both_sizes(model: Path) -> None:
    warned = shared(model, devices(free=2 * GIB), size=LARGE)
    assert warned.capacity.min_workers == 1
    assert "2,048 MiB are free" in (warned.warning or "")
    assert shared(model, devices()).warning is None


def test_a_gpu_without_a_worker_is_a_warning(model: Path) -> None:
    assert (shared(model, devices(4), SAGEMAKER_MODEL_SERVER_WORKERS="2").warning or "").startswith("2 of 4 GPUs are used")


def test_an_artefact_without_a_configuration_counts_too(tmp_path: Path) -> None:
    assert activation_bytes(tmp_path) == 64 * 1024
    (tmp_path / "config.json").write_text("[]")
    assert activation_bytes(tmp_path) == 64 * 1024
