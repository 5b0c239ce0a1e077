"""The process tree: signals in, java as a child of its own session, every orphan reaped, nothing left at the end."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Only wakes: without a handler the kernel would end us (or, for PID 1, drop the signal) in silence.
NOTED = (signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2)
# The JVM prints its threads' stacks on SIGQUIT.
FORWARDED = (signal.SIGQUIT,)
# linux/prctl.h
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)
REAP_LIMIT_S = 5.0


class StopRequested(BaseException):
    """SIGTERM or SIGINT before there was anything to drain."""


class Signals:
    """Signals as events. Until `queue` is called, a request to stop is raised wherever the program is."""

    def __init__(self) -> None:
        self._queue: deque[signal.Signals] | None = None
        self._wake, write = socket.socketpair()
        self._write = write
        for end in (self._wake, write):
            end.setblocking(False)
        signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
        for number in (*STOPPING, *NOTED, *FORWARDED):
            signal.signal(number, self._handle)

    def queue(self) -> None:
        """From here on `wait` delivers."""
        self._queue = deque()

    def wait(self, timeout: float | None) -> list[signal.Signals]:
        """Sleep until a signal or for `timeout` seconds; the signals since the last call, in order."""
        select.select([self._wake], [], [], timeout)
        with suppress(BlockingIOError):
            while self._wake.recv(4_096):
                pass
        arrived: list[signal.Signals] = []
        while self._queue:
            arrived.append(self._queue.popleft())
        return arrived

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._queue is not None:
            self._queue.append(signal.Signals(number))
        elif number in STOPPING:
            raise StopRequested


class Child:
    """java. ``code`` is its exit code once it has ended: 128 + n when signal n ended it, as a shell would say."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], directory: Path) -> None:
        # An own session: Ctrl-C in a terminal reaches only us, and its process group is java's.
        self._process = subprocess.Popen(  # noqa: S603 -- a command line of our own
            command,
            env=dict(environment),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_end_with_parent,  # safe: this process has one thread
        )
        self.pid = self._process.pid
        self.code: int | None = None

    def send(self, number: signal.Signals) -> None:
        """A signal to java itself; it looks after its workers."""
        if self.code is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """The end without any ceremony, for java and all in its group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Collect every child that has ended: java, and orphans that fell to us."""
        for pid, status in _ended_children():
            if pid == self.pid:
                code = os.waitstatus_to_exitcode(status)
                self.code = self._process.returncode = 128 - code if code < 0 else code


def adopt_orphans() -> None:
    """Let the workers of a java that died become our children, as they would be PID 1's (prctl(2), subreaper)."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants() -> None:
    """Kill and reap what is left below us; children of the killed fall to us in turn, so repeat until none is left."""
    deadline = time.monotonic() + REAP_LIMIT_S
    while (children := children_of(os.getpid())) and time.monotonic() < deadline:
        for pid in children:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
        list(_ended_children())


def children_of(parent: int) -> list[int]:
    """The direct children of a process, from /proc/<pid>/stat (proc(5): the fields after the name in parentheses)."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            if int(stat.read_text("utf-8", "replace").rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found


def _ended_children() -> list[tuple[int, int]]:
    ended = []
    with suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0] != 0:
            ended.append(child)
    return ended


def _end_with_parent() -> None:
    """Should we be killed outright, java drains and stops by itself instead of holding the port for ever."""
    LIBC.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
