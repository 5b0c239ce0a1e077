"""What a container's processes hold over time: memory, threads, file descriptors; and whether that grows."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from containers import WORKER, Container

PARTS = {"entrypoint": "-m entrypoint serve", "frontend": "byoc.endpoints.Frontend", "worker": WORKER}
KIB_PER_MB = 1024


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a process: seconds since the first look, proportional set size in MB, threads, open files."""

    seconds: float
    memory_mb: float
    threads: int
    files: int


class Footprint:
    """Looks at each of a container's processes every few seconds while its context lasts. ``samples`` by part."""

    def __init__(self, container: Container, every: float = 2.0) -> None:
        self.samples: dict[str, list[Sample]] = {part: [] for part in PARTS}
        self._processes = {part: container.processes(word)[0][0] for part, word in PARTS.items()}
        self._every = every
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _look_on(self) -> None:
        began = time.monotonic()
        while not self._ended.wait(self._every):
            for part, process in self._processes.items():
                self.samples[part].append(look(process, time.monotonic() - began))


def look(process: int, seconds: float = 0.0) -> Sample:
    """Read one process of this machine. Raises FileNotFoundError when it is gone."""
    proc = Path("/proc") / str(process)
    memory = next(line for line in (proc / "smaps_rollup").read_text().splitlines() if line.startswith("Pss:"))
    return Sample(
        seconds,
        int(memory.split()[1]) / KIB_PER_MB,
        len(list((proc / "task").iterdir())),
        len(list((proc / "fd").iterdir())),
    )


def slope(samples: Sequence[Sample], name: str, warm: float) -> float:
    """Growth a second of one of a sample's numbers, from the second ``warm`` on.

    The median of the slopes between all pairs of samples (Theil and Sen): a heap's saw-tooth does not bend it.
    """
    kept = [one for one in samples if one.seconds >= warm]
    times = np.array([one.seconds for one in kept])
    values = np.array([getattr(one, name) for one in kept], float)
    first, second = np.triu_indices(len(kept), 1)
    return float(np.median((values[second] - values[first]) / (times[second] - times[first])))
