"""What waits for the lanes: the forward passes of one request. When they run is `scheduler`'s to say."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from batch_handler.microbatch import LATE
from batch_handler.stages import Stages


@dataclass(slots=True, eq=False)
class Job:
    """The forward passes of one request, each with a ``length`` in tokens and a ``group``.

    ``outputs`` fills up in the order of ``passes``: an output, the error of a pass that failed, or LATE for one that had
    not begun by ``deadline`` (time.monotonic). ``owner`` is the submitter's own. ``stages`` where the job's time is taken.
    Passes of a job that is ``alone`` have no company, not even each other's.
    """

    owner: Any
    passes: Sequence[Any]
    deadline: float = math.inf
    stages: Stages | None = None
    outputs: list[Any] = field(default_factory=list)
    waiting: deque[int] = field(default_factory=deque)
    tokens: int = 0
    left: int = 0
    due: float = 0.0
    alone: bool = False

    def __post_init__(self) -> None:
        lengths = [one.length for one in self.passes]
        self.outputs = [LATE] * len(lengths)
        # Longest first: neighbours in length pad little, and the last pass of a request is a short one.
        self.waiting = deque(sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True))
        self.tokens = sum(lengths)
        self.left = len(lengths)
