"""Reads TorchServe's messages in large pieces. Used by `service` alone, and only inside a TorchServe worker.

TorchServe's worker asks the kernel for every length and every field by itself, some eighty calls for one request with ten
headers. A full batch then costs milliseconds in which no core computes.
"""

from __future__ import annotations

import socket
from types import ModuleType

READ_AHEAD = 256 * 1024
FIELD_READER = "_retrieve_buffer"


class Reader:
    """Takes the place of TorchServe's ``_retrieve_buffer(connection, length)``, whose contract it keeps."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(READ_AHEAD))
        self._start = 0
        self._end = 0

    def __call__(self, connection: socket.socket, length: int) -> bytearray:
        """Exactly `length` bytes. Ends the worker quietly (SystemExit) when the frontend is gone, as TorchServe's does."""
        taken = bytearray(length)
        view = memoryview(taken)
        filled = self._take(view)
        while filled < length:
            if length - filled >= READ_AHEAD:
                filled += _received(connection, view[filled:])
            else:
                self._start, self._end = 0, _received(connection, self._buffer)
                filled += self._take(view[filled:])
        return taken

    def _take(self, view: memoryview) -> int:
        """Move what was read ahead into `view`, as much as fits."""
        count = min(len(view), self._end - self._start)
        view[:count] = self._buffer[self._start : self._start + count]
        self._start += count
        return count


def _received(connection: socket.socket, view: memoryview) -> int:
    count = connection.recv_into(view)
    if not count:
        raise SystemExit(0)
    return count


def read_ahead(message_handler: ModuleType) -> None:
    """Give TorchServe's message handler our reader. Between two messages only, when nothing is half read."""
    setattr(message_handler, FIELD_READER, Reader())
