"""How much memory a model will take, and how much there is: what a load is refused by before memory is short.

What a worker takes besides its weights is not guessed for long: every model that was loaded is measured.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from batch_handler.resources import Resources, free_memory
from batch_handler.settings import MIB
from entrypoint.capacity import MODEL_COPIES, WORKER_BYTES
from entrypoint.devices import Devices

OURS_COPIES = 1.3
"""Weights are read through a mapping of their file; what an engine rearranges is held twice for a moment."""
FIRST_GUESS = {True: 300 * MIB, False: WORKER_BYTES}
"""A worker of ours, and of a foreign handler, with a model that weighs nothing."""
LEAST_OVERHEAD = 16 * MIB
MARGIN = 1.15
MEMORY = 0.9
"""How much of the largest overhead so far each smaller one leaves of it."""
KEPT_FREE_SHARE = 0.05
KEPT_FREE_LEAST = 64 * MIB
"""Kept for the bodies of requests and the passes of models that are loaded already."""


class Overheads:
    """What workers took beside the weights of their models, in bytes; by whether the handler is ours. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._learnt: dict[bool, float] = {}

    def needed(self, ours: bool, model_bytes: int) -> int:
        """Bytes that one worker will take while it loads a model of this size."""
        with self._lock:
            overhead = self._learnt.get(ours)
        copies = OURS_COPIES if ours else MODEL_COPIES
        return int(copies * model_bytes + (FIRST_GUESS[ours] if overhead is None else MARGIN * overhead))

    def learn(self, ours: bool, model_bytes: int, private: Sequence[int]) -> None:
        """Take note of what the workers of a loaded model take for themselves."""
        for taken in private:
            overhead = max(LEAST_OVERHEAD, taken - model_bytes)
            with self._lock:
                self._learnt[ours] = max(overhead, MEMORY * self._learnt.get(ours, 0))


def free_bytes(resources: Resources) -> int | None:
    """What models may still take of the container's memory; None where nothing tells."""
    free = free_memory()
    if free is None or resources.memory_bytes is None:
        return None
    return max(0, free - int(max(KEPT_FREE_LEAST, KEPT_FREE_SHARE * resources.memory_bytes)))


def free_gpu_bytes(gpus: Devices) -> int | None:
    """The same of the fullest GPU, wherever TorchServe puts the next worker; None without GPUs."""
    return gpus.free_bytes if gpus.gpus else None


def private_bytes(pid: int) -> int | None:
    """What a process shares with nobody and would leave behind (proc(5), smaps_rollup); None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii")
    except OSError:
        return None
    counted = ("Private_Clean:", "Private_Dirty:", "Swap:")
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(counted))
