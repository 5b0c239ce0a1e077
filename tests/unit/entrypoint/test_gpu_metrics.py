"""GPU numbers for /metrics, from the driver to the file that the frontend appends."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import nvidia
from entrypoint import gpu_metrics, nvml
from entrypoint.gpu_metrics import Sampling, write
from nvidia import Card, Machine

WAIT_S = 10.0


def read(path: Path) -> dict[tuple[str, str], float]:
    families = text_string_to_metric_families(path.read_text("utf-8"))
    return {(sample.name, sample.labels["gpu"]): sample.value for family in families for sample in family.samples}


def test_every_gpu_tells_work_memory_and_heat(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvidia.install(monkeypatch, Machine([Card("GPU-a", busy=75, used=2 * nvidia.GIB, heat=70), Card("GPU-b", busy=0)]))
    write(tmp_path / "numbers.txt")
    numbers = read(tmp_path / "numbers.txt")
    assert numbers["byoc_gpu_utilisation_ratio", "GPU-a"] == 0.75
    assert numbers["byoc_gpu_utilisation_ratio", "GPU-b"] == 0.0
    assert numbers["byoc_gpu_memory_used_bytes", "GPU-a"] == 2 * nvidia.GIB
    assert numbers["byoc_gpu_memory_total_bytes", "GPU-a"] == 24 * nvidia.GIB
    assert numbers["byoc_gpu_temperature_celsius", "GPU-a"] == 70


def test_what_a_gpu_does_not_tell_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvidia.install(monkeypatch, Machine([Card("GPU-a", busy=None), Card("GPU-b", slices=("MIG-1",))]))
    write(tmp_path / "numbers.txt")
    numbers = read(tmp_path / "numbers.txt")
    assert ("byoc_gpu_utilisation_ratio", "GPU-a") not in numbers
    assert ("byoc_gpu_temperature_celsius", "GPU-a") in numbers
    assert {name for name, gpu in numbers if gpu == "MIG-1"} == {"byoc_gpu_memory_used_bytes", "byoc_gpu_memory_total_bytes"}


def test_a_driver_that_stops_answering_leaves_no_old_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = nvidia.install(monkeypatch, Machine([Card("GPU-a")]))
    write(tmp_path / "numbers.txt")
    assert read(tmp_path / "numbers.txt")
    machine.failing = nvidia.DRIVER_NOT_LOADED
    write(tmp_path / "numbers.txt")
    assert read(tmp_path / "numbers.txt") == {}


def test_numbers_are_renewed_until_it_is_stopped(tmp_path: Path) -> None:
    gpu, path = nvml.Gpu("GPU-a", 0, "A10G", 1, 1), tmp_path / gpu_metrics.FILE
    readings: list[int] = []

    def count() -> list[nvml.Sample]:
        readings.append(1)
        return [nvml.Sample(gpu, None, len(readings), None)]

    sampling = Sampling(path, 0.01, count)
    deadline = time.monotonic() + WAIT_S
    while len(readings) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    sampling.stop()
    ended = len(readings)
    time.sleep(0.05)
    assert len(readings) == ended
    assert read(path)["byoc_gpu_memory_used_bytes", "GPU-a"] == ended


def test_a_directory_that_is_gone_ends_nothing(tmp_path: Path) -> None:
    Sampling(tmp_path / "gone" / gpu_metrics.FILE, 0.01, list).stop()
