"""A fork server: takes orders on one pipe, forks this very process for each, and reports on another what becomes of them.

What a fork then becomes is decided by whoever called `run`; the other end of the pipes is the frontend's.
One JSON object per line, both ways; ``id`` is the order's own. Orders: ``{"id", "arguments", "environment", "directory"}``.
Reports: ``pid`` after a fork, or ``refused`` with the system's reason; ``out`` and ``err`` with a line that was printed;
``ended`` with the exit code, 128 + n after signal n, once every line before it was reported.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

CHUNK = 64 * 1024
LONGEST_LINE = 1024 * 1024
"""A line that never ends is reported in pieces of this many bytes."""


@dataclass(frozen=True, slots=True)
class Order:
    """One process that is wanted."""

    id: int
    arguments: Sequence[str]
    environment: Mapping[str, str]
    directory: str


@dataclass(slots=True)
class _Pipe:
    """Where a fork prints to. ``end`` is ours, ``pending`` the bytes of a line that is not complete."""

    order: int
    name: str
    end: int
    pending: bytes = b""


@dataclass(slots=True)
class _Fork:
    order: int
    pipes: list[_Pipe] = field(default_factory=list)


class ForkServer:
    """Single-threaded, so that a fork has all there is. ``orders`` and ``reports`` are file descriptors."""

    def __init__(self, orders: int, reports: int) -> None:
        self._orders = orders
        self._reports = reports
        self._unread = b""
        self._forks: dict[int, _Fork] = {}
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()

    def run(self) -> Order | None:
        """Serve until nobody can order any more. In a fork this returns its order, in the server None.

        A fork has its own pipes as standard output and error and none of the server's descriptors.
        """
        self._watch()
        while True:
            ready = {key.fd: key.data for key, _ in self._selector.select()}
            for fd, pipe in ready.items():
                if isinstance(pipe, _Pipe):
                    self._read(pipe)
                elif fd == self._wake.fileno():
                    with suppress(BlockingIOError):
                        self._wake.recv(CHUNK)
            self._reap()
            if self._orders in ready:
                received = os.read(self._orders, CHUNK)
                if not received:
                    return None
                for order in self._complete(received):
                    if self._fork(order):
                        return order

    def _watch(self) -> None:
        for end in (self._wake, self._woken):
            end.setblocking(False)
        signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._selector.register(self._orders, selectors.EVENT_READ)

    def _complete(self, received: bytes) -> Iterator[Order]:
        *lines, self._unread = (self._unread + received).split(b"\n")
        for line in lines:
            yield Order(**json.loads(line))

    def _fork(self, order: Order) -> bool:
        """True in the fork. What the system refuses costs this order alone."""
        descriptors: list[int] = []
        try:
            for _ in ("out", "err"):
                descriptors += os.pipe()
            pid = os.fork()
        except OSError as error:
            for descriptor in descriptors:
                os.close(descriptor)
            self._report(order.id, refused=error.strerror or str(error))
            return False
        read_out, write_out, read_err, write_err = descriptors
        if pid == 0:
            os.dup2(write_out, 1)
            os.dup2(write_err, 2)
            self._forget(descriptors)
            return True
        os.close(write_out)
        os.close(write_err)
        fork = self._forks[pid] = _Fork(order.id, [_Pipe(order.id, "out", read_out), _Pipe(order.id, "err", read_err)])
        for pipe in fork.pipes:
            os.set_blocking(pipe.end, False)
            self._selector.register(pipe.end, selectors.EVENT_READ, pipe)
        self._report(order.id, pid=pid)
        return False

    def _forget(self, descriptors: Sequence[int]) -> None:
        """In a fork: close what is the server's, and take signals as any program does."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        others = [pipe.end for fork in self._forks.values() for pipe in fork.pipes]
        self._selector.close()
        self._wake.close()
        self._woken.close()
        for descriptor in (*descriptors, *others, self._orders, self._reports):
            with suppress(OSError):  # a pipe may have come to its end
                os.close(descriptor)
        self._forks.clear()

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
                pid, status = ended
                fork = self._forks.pop(pid, None)
                if fork is None:
                    continue
                for pipe in fork.pipes:
                    self._read(pipe)
                    self._tell(pipe, pipe.pending)
                    pipe.pending = b""
                    # What it started may still print; nobody is left whose words these were.
                    self._close(pipe)
                code = os.waitstatus_to_exitcode(status)
                self._report(fork.order, ended=128 - code if code < 0 else code)

    def _read(self, pipe: _Pipe) -> None:
        """Report the lines that are there."""
        try:
            while pipe.end >= 0:
                read = os.read(pipe.end, CHUNK)
                if not read:
                    self._tell(pipe, pipe.pending)
                    pipe.pending = b""
                    self._close(pipe)
                    return
                lines = (pipe.pending + read).splitlines(keepends=True)
                whole = lines[-1].endswith(b"\n") or len(lines[-1]) > LONGEST_LINE
                pipe.pending = b"" if whole else lines.pop()
                for line in lines:
                    self._tell(pipe, line)
        except BlockingIOError:
            return

    def _tell(self, pipe: _Pipe, line: bytes) -> None:
        if line:
            self._report(pipe.order, **{pipe.name: line.decode("utf-8", "replace").rstrip("\r\n")})

    def _close(self, pipe: _Pipe) -> None:
        if pipe.end >= 0:
            self._selector.unregister(pipe.end)
            os.close(pipe.end)
            pipe.end = -1

    def _report(self, order: int, **what: Any) -> None:
        view = memoryview(json.dumps({"id": order, **what}).encode() + b"\n")
        while view:
            view = view[os.write(self._reports, view) :]
