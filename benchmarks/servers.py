"""One server at a time: started, waited for, accounted for from /proc, and stopped with everything that it started."""

from __future__ import annotations

import http.client
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.models import BENCH, ROOT
from benchmarks.systems import System

MARK = "BENCH_RUN"
PORTS = range(21_000, 29_000, 40)
START_LIMIT_S = 120.0
REFUSALS = (400, 404, 405, 415, 422)
"""What a server that is still loading would not say."""
STOP_LIMIT_S = 30.0
IDLE_LIMIT_S = 60.0
IDLE_CORES = 0.25
"""Ray's housekeeping alone takes a tenth of a core."""
TICKS = os.sysconf("SC_CLK_TCK")
FOREIGN = ("BYOC_", "SAGEMAKER_", "TS_", "HF_", "BENCH_", "OMP_", "MKL_", "PYTHON", "INFINITY_", "OPENBLAS_")


class StartError(Exception):
    """A server that did not come up: one sentence and the end of what it printed."""


class Server:
    """A running system; a context manager.

    Its processes are told from all others by a token in their environment, so that those that leave the process group
    (Ray's) are counted and ended too.
    """

    def __init__(self, system: System, model: Path, task: str, probe: tuple[bytes, str] | None) -> None:
        self.system = system
        self.port = free_ports()
        self.cold_start_s = 0.0
        self._token = secrets.token_hex(8)
        self._folder = BENCH / "run" / "".join(letter if letter.isalnum() else "-" for letter in system.name)
        self._folder.mkdir(parents=True, exist_ok=True)
        self.log = self._folder / "log.txt"
        environment = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        environment |= {MARK: self._token, "TEMP": str(self._folder), "LOG_LOCATION": "logs", "METRICS_LOCATION": "logs"}
        environment |= system.start_settings(model, self.port, task)
        started = time.perf_counter()
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                system.start_command(model, self.port),
                cwd=self._folder if system.environment else ROOT,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait(started + START_LIMIT_S, probe)
        except BaseException:
            self.stop()
            raise
        self.cold_start_s = time.perf_counter() - started

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def post(self, body: bytes, content_type: str, timeout_s: float = 600.0) -> tuple[int, bytes]:
        """One request on a connection of its own."""
        return call(self.port, "POST", self.system.path, body, content_type, timeout_s)

    def processes(self) -> list[int]:
        """Every process of this server that is alive."""
        wanted = f"{MARK}={self._token}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return found

    def cpu_seconds(self) -> float:
        """CPU time of all processes, of the ended ones too once they were waited for."""
        total = 0
        for pid in self.processes():
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += sum(int(ticks) for ticks in fields[11:15])
        return total / TICKS

    def pss_mb(self) -> float:
        """Memory of all processes, shared pages counted once."""
        total = 0
        for pid in self.processes():
            with suppress(OSError):
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return total / 1_000

    def wait_until_idle(self) -> None:
        """Wait for the end of work that nobody waits for any more: wrk leaves, and queued requests are still computed."""
        deadline = time.monotonic() + IDLE_LIMIT_S
        busy = IDLE_CORES + 1.0
        while busy > IDLE_CORES and time.monotonic() < deadline:
            before, started = self.cpu_seconds(), time.monotonic()
            time.sleep(0.5)
            busy = (self.cpu_seconds() - before) / (time.monotonic() - started)

    def stop(self) -> None:
        """SIGTERM to the process that was started; what is left of its family after a while is killed by its id."""
        with suppress(ProcessLookupError):
            self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_LIMIT_S)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            deadline = time.monotonic() + 10.0
            while self.processes() and time.monotonic() < deadline:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(0.1)
                time.sleep(0.1)

    def _wait(self, deadline: float, probe: tuple[bytes, str] | None) -> None:
        """Healthy, and then a real answer where there is a probe: some are healthy before they can answer."""
        healthy, answer = False, (0, b"")
        while time.perf_counter() < deadline:
            if self._process.poll() is not None:
                raise StartError(f"{self.system.name} ended with {self._process.returncode}: {self._tail()}")
            with suppress(OSError, http.client.HTTPException):
                healthy = healthy or call(self.port, "GET", self.system.ping, b"", "", 60.0)[0] == 200
                if healthy:
                    if probe is None:
                        return
                    answer = self.post(*probe, 60.0)
                    if answer[0] == 200:
                        return
                    if answer[0] in REFUSALS:
                        break
            time.sleep(0.02)
        raise StartError(f"{self.system.name} gave no good answer, but {answer[0]} {answer[1][:200]!r}: {self._tail()}")

    def _tail(self) -> str:
        return " | ".join(self.log.read_text("utf-8", "replace").splitlines()[-6:])[-800:]


class Repeating:
    """Does something every so many seconds on a thread of its own; a context manager."""

    def __init__(self, action: Callable[[], None], seconds: float) -> None:
        self._action = action
        self._seconds = seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join()

    def _repeat(self) -> None:
        while not self._stopped.wait(self._seconds):
            self._action()


class Watch(Repeating):
    """Samples a server's memory every second while a load runs, and at its end. ``peak_mb`` is the largest sum."""

    def __init__(self, server: Server) -> None:
        super().__init__(self._sample, 1.0)
        self.peak_mb = 0.0
        self._server = server

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        super().__exit__(kind, error, trace)
        self._sample()

    def _sample(self) -> None:
        self.peak_mb = max(self.peak_mb, self._server.pss_mb())


def call(port: int, method: str, path: str, body: bytes, content_type: str, timeout_s: float) -> tuple[int, bytes]:
    """One HTTP call to loopback. Raises OSError or HTTPException when nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request(method, path, body or None, {"Content-Type": content_type} if content_type else {})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def free_ports() -> int:
    """The first of a run of ports on loopback, where neither it nor its next neighbours are in use."""
    for first in PORTS:
        with suppress(OSError):
            for port in range(first, first + 8):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
    raise StartError("no free ports on loopback")
