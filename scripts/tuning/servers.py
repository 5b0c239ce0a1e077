"""Servers with a candidate's settings, on loopback: from this checkout, or as containers of an image.

Several stay up, since a start takes longer than a measurement; one that idles uses memory and no CPU. The oldest goes first.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import psutil

from loading.errors import LoadTestError

from .space import Candidate

ENTRYPOINT = Path(__file__).resolve().parents[2] / "build" / "home" / "bin" / "entrypoint"
OURS = ("BYOC_", "SAGEMAKER_", "TS_")
START_LIMIT_S = 600.0
STOP_LIMIT_S = 40.0
POLL_S = 0.1
MEMORY_SHARE = 0.5
MOST = 8
LAST_WORDS = 300


class Server(Protocol):
    """Something that serves at ``address`` until it is stopped."""

    address: str

    def start(self) -> None:
        """Wait until it is ready. Raises LoadTestError."""

    def memory(self) -> int:
        """Bytes that it uses; 0 when that is not known."""

    def stop(self) -> None:
        """End it."""


class Checkout:
    """``entrypoint serve`` as a child process."""

    def __init__(self, model: Path, settings: Mapping[str, str]) -> None:
        port = _free_port()
        self.address = f"http://127.0.0.1:{port}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        place = {"BYOC_MODEL_DIR": str(model), "BYOC_BIND_ADDRESS": "127.0.0.1", "SAGEMAKER_BIND_TO_PORT": str(port)}
        self._environment = {**kept, **place, **settings}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 -- open as long as the server runs
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Wait for the first 200 of /ping. Raises LoadTestError with the server's last words."""
        if not ENTRYPOINT.exists():
            raise LoadTestError(f"{ENTRYPOINT} is missing: run make build/.home first, or pass --image")
        command = [str(ENTRYPOINT), "serve"]
        process = subprocess.Popen(
            command, env=self._environment, stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True
        )
        self._process = process
        if not _ready(self.address, lambda: process.poll() is None):
            self._log.seek(0)
            raise LoadTestError(f"the server did not start: {_last_words(self._log.read())}")

    def memory(self) -> int:
        """Resident bytes of java and the workers."""
        if self._process is None:
            return 0
        parent = psutil.Process(self._process.pid)
        return sum(one.memory_info().rss for one in [parent, *parent.children(recursive=True)])

    def stop(self) -> None:
        """SIGTERM, and SIGKILL to its whole session when it does not listen."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        self._log.close()


class Container:
    """``docker run IMAGE serve``, with the port on loopback."""

    def __init__(self, model: Path, settings: Mapping[str, str], image: str, docker: str) -> None:
        self._docker, self._image, self._model, self._settings = docker, image, model, settings
        self._name = f"byoc-tune-{uuid.uuid4().hex[:12]}"
        self.address = ""

    def start(self) -> None:
        """Wait for the first 200 of /ping. Raises LoadTestError with the container's last words."""
        variables = [word for name, value in self._settings.items() for word in ("--env", f"{name}={value}")]
        mounted = ("--publish", "127.0.0.1::8080", "--volume", f"{self._model}:/opt/ml/model:ro")
        self._call("run", "--detach", "--name", self._name, *mounted, *variables, self._image, "serve")
        self.address = "http://" + self._call("port", self._name, "8080/tcp").split()[0]
        if not _ready(self.address, lambda: self._call("inspect", "--format", "{{.State.Running}}", self._name) == "true"):
            log = subprocess.run([self._docker, "logs", self._name], stdout=-1, stderr=subprocess.STDOUT, check=False).stdout
            raise LoadTestError(f"the container did not start: {_last_words(log)}")

    def memory(self) -> int:
        """Not known without asking the engine's statistics, which take seconds."""
        return 0

    def stop(self) -> None:
        """Remove it."""
        subprocess.run([self._docker, "rm", "--force", "--volumes", self._name], capture_output=True, check=False)

    def _call(self, *arguments: str) -> str:
        try:
            done = subprocess.run([self._docker, *arguments], capture_output=True, text=True, check=False)
        except OSError as error:
            raise LoadTestError(f"{self._docker} cannot be run: {error.strerror}") from None
        if done.returncode:
            raise LoadTestError(f"docker {arguments[0]} failed: {_last_words(done.stderr.encode())}")
        return done.stdout.strip()


class Servers:
    """Addresses by candidate, with as many servers up as half of the free memory holds. Use it as a context manager."""

    def __init__(self, model: Path, settings: Mapping[str, str], image: str | None, docker: str, most: int | None) -> None:
        self._model, self._settings, self._image, self._docker = model.resolve(), settings, image, docker
        self._most = most or (2 if image else MOST)
        self._measured = most is not None or image is not None
        self._up: dict[Candidate, Server] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        while self._up:
            self._up.pop(next(iter(self._up))).stop()

    def address(self, candidate: Candidate) -> str:
        """Of a ready server with these settings, started when there is none. Raises LoadTestError."""
        if candidate in self._up:
            self._up[candidate] = self._up.pop(candidate)
            return self._up[candidate].address
        while len(self._up) >= self._most:
            self._up.pop(next(iter(self._up))).stop()
        settings = {**self._settings, **candidate.environment()}
        server: Server = (
            Container(self._model, settings, self._image, self._docker) if self._image else Checkout(self._model, settings)
        )
        try:
            server.start()
        except BaseException:
            server.stop()
            raise
        self._up[candidate] = server
        if not self._measured:
            self._measured = True
            free = psutil.virtual_memory().available
            self._most = max(1, min(MOST, 1 + int(MEMORY_SHARE * free / max(1, server.memory()))))
        return server.address


class _Alive(Protocol):
    def __call__(self) -> bool: ...


def _ready(address: str, alive: _Alive) -> bool:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and alive():
        try:
            with urllib.request.urlopen(f"{address}/ping", timeout=5):  # noqa: S310 -- loopback
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(POLL_S)
    return False


def _last_words(log: bytes) -> str:
    lines = [line for line in log.decode("utf-8", "replace").splitlines() if line.strip()]
    return (lines or ["it said nothing"])[-1][-LAST_WORDS:]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
