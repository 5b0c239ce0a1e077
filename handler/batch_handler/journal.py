"""What a worker is running at this moment, in a file that outlives it: the frontend reads it when the worker ended.

So of all the calls that wait for a worker only those that it had begun are suspected of its end, and where one was run
by itself, its record is known. Written through shared memory: a note costs some microseconds and no call of the kernel.

Format, read by `WorkerDeath.java`: a header of five numbers (magic, whether what was begun may be run again, slots,
entries per slot, notes that found no room), then the slots: a count, then entries of a request id and a record's number.
Numbers have 4 bytes, big-endian.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol

SUFFIX = ".running"
MAGIC = 0x42594F43
SLOTS = 64
ENTRIES = 256
ID_BYTES = 36
HEADER = struct.Struct("!iiiii")
NUMBER = struct.Struct("!i")
ENTRY_BYTES = ID_BYTES + NUMBER.size
SLOT_BYTES = NUMBER.size + ENTRIES * ENTRY_BYTES

Place = tuple[str, int]
"""A request's id, and the number of the record that is run, or 0 where it is run with others."""


class Noting(Protocol):
    """Who takes note of what is being run."""

    def running(self, places: Iterable[Place]) -> AbstractContextManager[None]:
        """Within this context these are being run; from any thread."""


class Unkept:
    """Takes no note: nobody could read it."""

    def running(self, places: Iterable[Place]) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()


UNKEPT = Unkept()


class Journal:
    """The file of one worker. Raises OSError when there is no room for it."""

    def __init__(self, path: Path, repeatable: bool) -> None:
        """Begin anew at `path`. `repeatable` says that running a request twice does no harm."""
        size = HEADER.size + SLOTS * SLOT_BYTES
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)  # a full disk is to be an error here, not a SIGBUS at some note
            self._map = mmap.mmap(descriptor, size)
        except OSError:
            path.unlink()  # one that cannot be trusted is worse than none
            raise
        finally:
            os.close(descriptor)
        HEADER.pack_into(self._map, 0, MAGIC, int(repeatable), SLOTS, ENTRIES, 0)
        self._free = list(range(SLOTS))
        self._unnoted = 0
        self._lock = threading.Lock()

    @contextmanager
    def running(self, places: Iterable[Place]) -> Iterator[None]:
        """Within this context these are being run; from any thread."""
        entries = [
            identifier.encode().ljust(ID_BYTES)[:ID_BYTES] + NUMBER.pack(number) for identifier, number in dict.fromkeys(places)
        ]
        slot = self._take() if len(entries) <= ENTRIES else None
        if slot is None:
            self._count(1)
            try:
                yield
            finally:
                self._count(-1)
            return
        start = HEADER.size + slot * SLOT_BYTES
        begin = start + NUMBER.size
        self._map[begin : begin + len(entries) * ENTRY_BYTES] = b"".join(entries)
        NUMBER.pack_into(self._map, start, len(entries))  # last, so that the entries are there when they are counted
        try:
            yield
        finally:
            NUMBER.pack_into(self._map, start, 0)
            self._free.append(slot)

    def _take(self) -> int | None:
        try:
            return self._free.pop()
        except IndexError:
            return None

    def _count(self, change: int) -> None:
        """Notes without a slot: while there are any, everything may be running."""
        with self._lock:
            self._unnoted += change
            NUMBER.pack_into(self._map, HEADER.size - NUMBER.size, self._unnoted)


def beside(connection: socket.socket, repeatable: bool) -> Noting:
    """The journal of the worker that listens at this connection's own Unix socket; none where there is no place for it."""
    name = connection.getsockname()
    if not isinstance(name, str) or not name:
        return UNKEPT
    try:
        return Journal(Path(name + SUFFIX), repeatable)
    except OSError:
        return UNKEPT
