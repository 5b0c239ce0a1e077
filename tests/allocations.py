"""How much a piece of code allocates, which no processor changes, where a clock would say how fast this one is."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def allocating_at_most(most: int) -> Iterator[None]:
    """Fails when Python and NumPy together ever held more bytes than this beside what was there."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < most, f"{peak:,} bytes at the peak"
