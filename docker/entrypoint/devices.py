"""Which GPUs the workers get: what the driver has, less what CUDA_VISIBLE_DEVICES hides, if torch can use any and the driver
is new enough. How many workers they hold is `capacity`'s to say.

CUDA_VISIBLE_DEVICES is read as the CUDA programming guide has it (indices, GPU-… and MIG-… identifiers or their
beginnings), indices in the order of the PCI bus, which is also the driver's. An entry that names nothing hides all behind
it from CUDA, in silence; here it stops the start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from batch_handler.internal import GPUS
from batch_handler.settings import SettingError, Settings
from entrypoint.nvml import Gpu, Inventory

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
HIDDEN = "-1"
"""Hides every GPU, and unlike an empty value stays a number for TorchServe, which reads nothing else."""
NONE = (HIDDEN, "NoDevFiles", "none", "void")
CUDA_OF_TORCH = re.compile(r"^cuda\b.*=\s*['\"]([0-9.]+)['\"]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Need:
    """The oldest driver for a major version of CUDA (CUDA's page on compatibility), and where SageMaker has it."""

    driver: int
    endpoint: str
    transform: str | None


NEEDS = {
    11: Need(450, "al2-ami-sagemaker-inference-gpu-2", "al2-ami-sagemaker-batch-gpu-470"),
    12: Need(525, "al2-ami-sagemaker-inference-gpu-2", "al2-ami-sagemaker-batch-gpu-535"),
    13: Need(580, "al2023-ami-sagemaker-inference-gpu-4-1", None),
}


@dataclass(frozen=True, slots=True)
class Devices:
    """The GPUs by the ``gpu_id`` that TorchServe hands out; ``note`` says why there are none in an image made for them."""

    gpus: tuple[Gpu, ...] = ()
    note: str | None = None

    @property
    def free_bytes(self) -> int:
        """Free memory of the fullest one: every worker must fit wherever it comes to lie."""
        return min((gpu.free_bytes for gpu in self.gpus), default=0)

    def variables(self) -> dict[str, str]:
        """What java and the workers are told. TorchServe reads numbers alone; our workers then keep one identifier each."""
        numbers = ",".join(str(place if gpu.sliced else gpu.index) for place, gpu in enumerate(self.gpus))
        return {VISIBLE: numbers or HIDDEN, ORDER: "PCI_BUS_ID", GPUS: ",".join(gpu.identifier for gpu in self.gpus)}


def choose(settings: Settings, found: Inventory, variables: Mapping[str, str], cuda: str | None, ours: bool) -> Devices:
    """The GPUs to serve on; `cuda` is the version that torch here was built for, None for a torch of CPUs.

    `ours` says that our handler serves, whose workers choose a GPU by its identifier; others know numbers alone.
    Raises SettingError when CUDA is asked for and cannot be had, when the driver is too old, or when
    CUDA_VISIBLE_DEVICES names what is not there.
    """
    if settings.device == "cpu":
        return Devices()
    if cuda is None:
        if settings.device == "cuda":
            raise SettingError(
                "BYOC_DEVICE=cuda is not accepted: torch here is built for CPUs alone; "
                "use the GPU image (make image-gpu), or auto or cpu"
            )
        return Devices()
    if found.driver is not None:
        check_driver(found.driver, cuda)
    gpus = visible(found.gpus, variables.get(VISIBLE))
    if not gpus:
        return _without(settings, found, variables)
    if not ours and any(gpu.sliced for gpu in gpus) and len(found.gpus) > 1:
        raise SettingError(
            f"a handler of the artefact's own knows GPUs by their numbers, and one of {len(found.gpus)} MIG slices has none: "
            "give the container a single one (NVIDIA_VISIBLE_DEVICES=MIG-…)"
        )
    return Devices(gpus)


def visible(gpus: Sequence[Gpu], value: str | None) -> tuple[Gpu, ...]:
    """What CUDA_VISIBLE_DEVICES leaves, in its order; all of them when it is not set. Raises SettingError."""
    if value is None or not gpus:
        return tuple(gpus)
    chosen: list[Gpu] = []
    for entry in filter(None, (part.strip() for part in value.split(","))):
        if entry in NONE:
            break
        named = [gpu for gpu in gpus if _names(entry, gpu)]
        if len(named) != 1 or named[0] in chosen:
            fault = "names nothing" if not named else "names it twice" if len(named) == 1 else f"fits {len(named)} of them"
            known = ", ".join(f"{gpu.index} ({gpu.identifier})" for gpu in gpus)
            raise SettingError(f"{VISIBLE}={value!r} is not accepted: {entry!r} {fault}; the GPUs here are {known}")
        chosen += named
    return tuple(chosen)


def check_driver(driver: str, cuda: str) -> None:
    """Raises SettingError for a driver that cannot run this CUDA, naming the host image of SageMaker that has a newer one."""
    major = int(cuda.partition(".")[0])
    need = NEEDS.get(major)
    installed = driver.partition(".")[0]
    if need is None or not installed.isdigit() or int(installed) >= need.driver:
        return
    of_jobs = f"TransformAmiVersion={need.transform}" if need.transform else "an image for CUDA 12: no TransformAmiVersion has it"
    raise SettingError(
        f"the NVIDIA driver here is {driver}, and CUDA {cuda} of this image needs {need.driver} or newer: deploy with "
        f"InferenceAmiVersion={need.endpoint} (in a transform job use {of_jobs}), or set BYOC_DEVICE=cpu"
    )


def cuda_of_torch() -> str | None:
    """The CUDA that the installed torch was built for, read and not imported: that takes seconds and would stay in PID 1."""
    found = find_spec("torch")
    try:
        text = (Path(found.origin).parent / "version.py").read_text("utf-8") if found and found.origin else ""
    except OSError:
        return None
    said = CUDA_OF_TORCH.search(text)
    return said[1] if said else None


def _names(entry: str, gpu: Gpu) -> bool:
    """Whether an entry means this GPU. A cut one has no number of its own, unless it is the only slice: CUDA takes the first."""
    if entry.isascii() and entry.isdigit():
        return int(entry) == gpu.index
    lowered, identifier = entry.lower(), gpu.identifier.lower()
    return lowered.startswith(("gpu-", "mig-")) and identifier.startswith(lowered)


def _without(settings: Settings, found: Inventory, variables: Mapping[str, str]) -> Devices:
    """No GPU at all. Raises SettingError when one is asked for."""
    if found.gpus:
        why = f"{VISIBLE}={variables[VISIBLE]!r} hides all {len(found.gpus)} of this container"
    elif found.fault:
        why = f"the NVIDIA driver does not answer ({found.fault})"
    else:
        why = "there is none here" if found.driver else "there is no NVIDIA driver here"
    if settings.device == "cuda":
        raise SettingError(
            f"BYOC_DEVICE=cuda is not accepted: no GPU can be used, {why}; "
            "give the container one (docker run --gpus all), or use auto or cpu"
        )
    return Devices(note=f"this image is made for GPUs and serves on the CPU: {why}")
