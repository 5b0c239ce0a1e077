"""The NVIDIA driver's own answers: which GPUs there are, how full, how busy, how warm. Decides nothing.

Asked through NVML (nvidia-ml-py); where that binding is not installed, through nvidia-smi, which knows no MIG slices.
Sources: the NVML API reference; ``nvidia-smi --help-query-gpu``.
"""

from __future__ import annotations

import importlib
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from batch_handler.settings import MIB

QUERY = ("index", "uuid", "name", "memory.total", "memory.free", "driver_version")
QUERY_LIMIT_S = 20
PERCENT = 100


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, or one MIG slice of one.

    ``identifier`` (GPU-… or MIG-…) is what CUDA_VISIBLE_DEVICES takes anywhere; ``index`` is the place of the GPU, or of
    the one that the slice belongs to, in the order of the PCI bus.
    """

    identifier: str
    index: int
    name: str
    total_bytes: int
    free_bytes: int
    sliced: bool = False


@dataclass(frozen=True, slots=True)
class Inventory:
    """What the driver of this machine says: its version, None where there is none, and ``fault``, why it said nothing."""

    driver: str | None = None
    gpus: tuple[Gpu, ...] = ()
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading: ``utilisation`` from 0 to 1, bytes, degrees Celsius; None for what this GPU does not tell."""

    gpu: Gpu
    utilisation: float | None
    used_bytes: int | None
    temperature: float | None


def inventory() -> Inventory:
    """All GPUs of this container. A machine without a driver has none, which is no fault."""
    nvml = _binding()
    if nvml is None:
        return _from_nvidia_smi()
    try:
        with _open(nvml):
            return Inventory(str(nvml.nvmlSystemGetDriverVersion()), tuple(gpu for _, gpu in _handles(nvml)))
    except nvml.NVMLError as error:
        absent = getattr(error, "value", None) == nvml.NVML_ERROR_LIBRARY_NOT_FOUND
        return Inventory(fault=None if absent else str(error))


def samples() -> list[Sample]:
    """A reading of every GPU; of a slice its memory alone, for NVML counts neither work nor heat by slice. Empty without NVML."""
    nvml = _binding()
    if nvml is None:
        return []
    try:
        with _open(nvml):
            return [_sample(nvml, handle, gpu) for handle, gpu in _handles(nvml)]
    except nvml.NVMLError:
        return []


def _binding() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nvgpu wants the binding's older name too, which warns of itself
        try:
            return importlib.import_module("pynvml")
        except ImportError:
            return None


@contextmanager
def _open(nvml: Any) -> Iterator[None]:
    """Open for one question: what is held open would keep a driver from being replaced, and its file in our memory."""
    nvml.nvmlInit()
    try:
        yield
    finally:
        nvml.nvmlShutdown()


def _handles(nvml: Any) -> Iterator[tuple[Any, Gpu]]:
    """Whole GPUs, and in the place of one that is cut into slices these: CUDA then sees nothing else of it."""
    for index in range(nvml.nvmlDeviceGetCount()):
        whole = nvml.nvmlDeviceGetHandleByIndex(index)
        slices = list(_slices(nvml, whole))
        for handle in slices or [whole]:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            identifier, name = str(nvml.nvmlDeviceGetUUID(handle)), str(nvml.nvmlDeviceGetName(handle))
            yield handle, Gpu(identifier, index, name, int(memory.total), int(memory.free), bool(slices))


def _slices(nvml: Any, whole: Any) -> Iterator[Any]:
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(whole)
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(whole) if current == nvml.NVML_DEVICE_MIG_ENABLE else 0
    except nvml.NVMLError:  # a GPU that cannot be cut
        return
    for place in range(count):
        try:
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(whole, place)
        except nvml.NVMLError:  # a place that no slice takes
            continue


def _sample(nvml: Any, handle: Any, gpu: Gpu) -> Sample:
    def told(ask: Any) -> Any:
        try:
            return ask()
        except nvml.NVMLError:
            return None

    used = told(lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).used))
    if gpu.sliced:
        return Sample(gpu, None, used, None)
    busy = told(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / PERCENT)
    return Sample(gpu, busy, used, told(lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))))


def _from_nvidia_smi() -> Inventory:
    program = shutil.which("nvidia-smi")
    if program is None:
        return Inventory()
    try:
        asked = subprocess.run(  # noqa: S603 -- the driver's own program
            [program, f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=QUERY_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Inventory(fault=f"nvidia-smi does not run: {error}")
    rows = [[cell.strip() for cell in line.split(",")] for line in asked.stdout.splitlines() if line.strip()]
    if asked.returncode != 0 or any(len(row) != len(QUERY) for row in rows):
        said = (asked.stdout + asked.stderr).split("\n")[0].strip()
        return Inventory(fault=said or f"nvidia-smi ended with {asked.returncode}")
    gpus = tuple(Gpu(row[1], int(row[0]), row[2], int(row[3]) * MIB, int(row[4]) * MIB) for row in rows)
    return Inventory(rows[0][5] if rows else None, gpus)
