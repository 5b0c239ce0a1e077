"""Whether something that this process does stays within bounds of memory and time."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MOST_MIB = 700
"""What reading one body of 25 MiB may take beside it: JSON's objects are that much larger than their text."""
MOST_S = 20
"""On a machine that has other things to do."""


@contextmanager
def bounded(most_mib: int = MOST_MIB, most_s: float = MOST_S) -> Iterator[None]:
    """Fails when the process grew by more, at any moment, or took longer."""
    Path("/proc/self/clear_refs").write_text("5")  # Linux, proc(5): begins a new peak
    before, begun = kib("VmRSS"), time.process_time()
    yield
    took, grew = time.process_time() - begun, (kib("VmHWM") - before) / 1024
    print(f"{grew:.0f} MiB, {took:.1f} s")
    assert grew < most_mib
    assert took < most_s


def kib(name: str, process: int | str = "self") -> int:
    """A number of a process's status (proc(5)), such as VmHWM, the most memory that it ever had."""
    found = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1])
