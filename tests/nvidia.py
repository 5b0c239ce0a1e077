"""What cannot be had without a GPU: a driver that answers as NVML and nvidia-smi do, for machines that a test describes.

`install` puts it where ``import pynvml`` finds it in this process; `lay_out` writes both for programs that a test starts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

GIB = 1024**3
MIB = 1024**2


@dataclass
class Card:
    """One GPU. ``slices`` are the identifiers of its MIG instances, an eighth of it each; ``busy`` is in percent or None."""

    identifier: str
    name: str = "NVIDIA A10G"
    total: int = 24 * GIB
    used: int = 1 * GIB
    busy: int | None = 50
    heat: int = 61
    slices: Sequence[str] = ()


@dataclass
class Machine:
    """Cards and a driver. ``failing`` is the code with which NVML does not even start."""

    cards: Sequence[Card] = ()
    driver: str = "550.163.01"
    failing: int | None = None
    opened: int = 0
    calls: list[str] = field(default_factory=list)


class NvmlError(Exception):
    """NVML's error, with its code in ``value``."""

    def __init__(self, value: int, words: str) -> None:
        super().__init__(words)
        self.value = value


LIBRARY_NOT_FOUND, DRIVER_NOT_LOADED, NOT_SUPPORTED, NOT_FOUND = 12, 9, 3, 6
WORDS = {LIBRARY_NOT_FOUND: "NVML Shared Library Not Found", DRIVER_NOT_LOADED: "Driver Not Loaded"}


def nvml(machine: Machine) -> ModuleType:
    """A module that answers as nvidia-ml-py does for this machine, as far as this project asks."""
    module: Any = ModuleType("pynvml")
    module.NVMLError = NvmlError
    module.NVML_ERROR_LIBRARY_NOT_FOUND = LIBRARY_NOT_FOUND
    module.NVML_DEVICE_MIG_ENABLE, module.NVML_TEMPERATURE_GPU = 1, 0

    def init() -> None:
        if machine.failing is not None:
            raise NvmlError(machine.failing, WORDS.get(machine.failing, "Unknown Error"))
        machine.opened += 1

    def shutdown() -> None:
        machine.opened -= 1

    def asked(answer: Any) -> Any:
        def ask(*arguments: Any) -> Any:
            if machine.opened < 1:
                raise NvmlError(1, "Uninitialized")
            return answer(*arguments)

        return ask

    def mig_mode(handle: Any) -> tuple[int, int]:
        if not handle.card.slices:
            raise NvmlError(NOT_SUPPORTED, "Not Supported")
        return 1, 1

    def mig_device(handle: Any, place: int) -> Any:
        if place >= len(handle.card.slices):
            raise NvmlError(NOT_FOUND, "Not Found")
        return SimpleNamespace(card=handle.card, slice=handle.card.slices[place])

    def memory(handle: Any) -> Any:
        parts = 8 if handle.slice else 1
        total, used = handle.card.total // parts, handle.card.used // parts
        return SimpleNamespace(total=total, used=used, free=total - used)

    def utilisation(handle: Any) -> Any:
        if handle.slice or handle.card.busy is None:
            raise NvmlError(NOT_SUPPORTED, "Not Supported")
        return SimpleNamespace(gpu=handle.card.busy, memory=10)

    answers = {
        "nvmlSystemGetDriverVersion": lambda: machine.driver,
        "nvmlDeviceGetCount": lambda: len(machine.cards),
        "nvmlDeviceGetHandleByIndex": lambda index: SimpleNamespace(card=machine.cards[index], slice=""),
        "nvmlDeviceGetUUID": lambda handle: handle.slice or handle.card.identifier,
        "nvmlDeviceGetName": lambda handle: handle.card.name,
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetUtilizationRates": utilisation,
        "nvmlDeviceGetTemperature": lambda handle, sensor: handle.card.heat,
        "nvmlDeviceGetMigMode": mig_mode,
        "nvmlDeviceGetMaxMigDeviceCount": lambda handle: 8,
        "nvmlDeviceGetMigDeviceHandleByIndex": mig_device,
    }
    module.nvmlInit, module.nvmlShutdown = init, shutdown
    for name, answer in answers.items():
        setattr(module, name, asked(answer))
    return module


def install(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> Machine:
    """``import pynvml`` gives this machine's driver for the rest of the test."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml(machine))
    return machine


def uninstall(monkeypatch: pytest.MonkeyPatch) -> None:
    """``import pynvml`` fails, as where the binding is not installed."""
    monkeypatch.setitem(sys.modules, "pynvml", None)


def lay_out(directory: Path, machine: Machine) -> dict[str, str]:
    """Write both for another process; returns the variables with which it finds them."""
    directory.mkdir(parents=True, exist_ok=True)
    tests = Path(__file__).parent
    cards = repr(list(machine.cards)).replace("Card(", "nvidia.Card(")
    described = f"nvidia.Machine({cards}, {machine.driver!r}, {machine.failing!r})"
    (directory / "pynvml.py").write_text(
        f"import sys\nsys.path.append({str(tests)!r})\nimport nvidia\nglobals().update(vars(nvidia.nvml({described})))\n",
        "utf-8",
    )
    return {"PYTHONPATH": str(directory), "PATH": f"{nvidia_smi(directory, machine)}:/usr/local/bin:/usr/bin:/bin"}


def nvidia_smi(directory: Path, machine: Machine) -> Path:
    """A program of that name in a folder of its own, which is returned: rows for --query-gpu, or the driver's complaint."""
    folder = directory / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        f"{index}, {card.identifier}, {card.name}, {card.total // MIB}, {(card.total - card.used) // MIB}, {machine.driver}"
        for index, card in enumerate(machine.cards)
    ]
    if machine.failing is not None:
        said = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
        script = f'#!/bin/sh\necho "{said}"\nexit 9\n'
    else:
        script = "#!/bin/sh\ncat <<'END'\n" + "\n".join(rows) + "\nEND\n"
    program = folder / "nvidia-smi"
    program.write_text(script, "utf-8")
    program.chmod(0o755)
    return folder


def torch_for_cuda(directory: Path, version: str) -> None:
    """A torch in `directory` that says it was built for CUDA, to whoever reads it there instead of importing it."""
    package = directory / "torch"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    (package / "version.py").write_text(f"cuda: str | None = {version!r}\n", "utf-8")
