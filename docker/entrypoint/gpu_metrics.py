"""What the GPUs do, for /metrics: read from the driver on a slow timer and written to a file that the frontend appends.

It is read here, in PID 1, because workers come and go, tell nothing while they are idle, and may be somebody else's.
TorchServe's own collector does the same in a process a minute, and its failures end up in the log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from entrypoint import nvml
from entrypoint.nvml import Sample

EVERY_S = 5.0
FILE = "gpu-metrics.txt"
GAUGES: dict[str, tuple[str, Callable[[Sample], float | None]]] = {
    "byoc_gpu_utilisation_ratio": ("Share of the time in which a kernel ran.", lambda one: one.utilisation),
    "byoc_gpu_memory_used_bytes": ("Memory in use on the GPU, by anybody.", lambda one: one.used_bytes),
    "byoc_gpu_memory_total_bytes": ("Memory of the GPU.", lambda one: one.gpu.total_bytes),
    "byoc_gpu_temperature_celsius": ("Temperature of the GPU.", lambda one: one.temperature),
}


def text(samples: Sequence[Sample]) -> str:
    """Samples in the Prometheus text format, labelled with the GPU's identifier; what none of them tells is left out."""
    lines = []
    for name, (help_text, value) in GAUGES.items():
        told = [(sample.gpu.identifier, value(sample)) for sample in samples]
        rows = [f'{name}{{gpu="{identifier}"}} {number!r}' for identifier, number in told if number is not None]
        if rows:
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} gauge", *rows]
    return "".join(f"{line}\n" for line in lines)


def write(path: Path, read: Callable[[], Sequence[Sample]] = nvml.samples) -> None:
    """One reading to the file, at once or not at all; a driver that does not answer leaves no numbers of an earlier time."""
    beside = path.with_suffix(".new")
    beside.write_text(text(read()), "utf-8")
    beside.replace(path)


class Sampling:
    """A thread that writes until it is stopped. Start it after java: a process with threads should not fork."""

    def __init__(self, path: Path, every_s: float = EVERY_S, read: Callable[[], Sequence[Sample]] = nvml.samples) -> None:
        self._path = path
        self._every_s = every_s
        self._read = read
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu-metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write no more."""
        self._stop.set()
        self._thread.join(self._every_s)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                write(self._path, self._read)
            except OSError:  # a full /tmp, or one that is being removed: numbers are not worth an end
                self._path.unlink(missing_ok=True)
            self._stop.wait(self._every_s)
