"""The real image in a real container: started with `docker run`, asked over HTTP, stopped like SageMaker stops them."""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from running import START_LIMIT_S, START_LINE, Endpoint

DOCKER = os.environ.get("DOCKER", "docker")
IMAGE = os.environ.get("IMAGE", "torchserve-byoc:cpu")
WORKER = "model_service_worker.py"
NO_RIGHTS = ("--user", "12345:12345", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
NO_DISK = ("--read-only", "--tmpfs", "/tmp")
HARDENED = (*NO_RIGHTS, *NO_DISK)
"""What the strictest users of the image give it, and the tests as a rule: some user, no right, nothing but /tmp to write to."""
UNLOCKED = ()
"""As `docker run` starts it: as root, with all that docker allows and a file system that outlives a restart."""
ANONYMOUS_MEMORY = """
import pathlib
root = pathlib.Path("/sys/fs/cgroup")
v2 = root / "memory.stat"
words = (v2 if v2.exists() else root / "memory" / "memory.stat").read_text().split()
counts = dict(zip(words[::2], map(int, words[1::2])))
print(counts.get("anon", counts.get("total_rss")))
"""


def docker(*arguments: str, check: bool = True, limit_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Run a docker command and return what it printed."""
    return subprocess.run([DOCKER, *arguments], capture_output=True, text=True, check=check, timeout=limit_s)


class Container(Endpoint):
    """`docker run … IMAGE serve`, removed at the end. Use it as a context manager.

    ``options`` follow ``locks``: of a user or the /tmp that both name, docker takes the one in ``options``.
    """

    def __init__(
        self,
        model: Path,
        settings: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        wait: bool = True,
        image: str = IMAGE,
        locks: Sequence[str] = HARDENED,
    ) -> None:
        self.name = f"byoc-test-{uuid.uuid4().hex[:12]}"
        variables = [word for name, value in (settings or {}).items() for word in ("--env", f"{name}={value}")]
        isolated = "none" in options
        docker(
            *("run", "--detach", "--name", self.name),
            *(() if isolated else ("--publish", "127.0.0.1::8080")),
            *("--volume", f"{model}:/opt/ml/model:ro"),
            *(*variables, *locks, *options, image, "serve"),
        )
        super().__init__("" if isolated else self._address())
        if wait:
            self.wait_until_ready()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            print(self.logs())
        docker("rm", "--force", "--volumes", self.name, check=False)

    def logs(self) -> str:
        """Everything that the container printed."""
        printed = subprocess.run(
            [DOCKER, "logs", self.name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
        )
        return printed.stdout

    def state(self) -> dict[str, Any]:
        """Docker's view: Running, ExitCode, OOMKilled …"""
        found: dict[str, Any] = json.loads(docker("inspect", "--format", "{{json .State}}", self.name).stdout)
        return found

    def wait_until_ready(self, limit_s: float = START_LIMIT_S) -> None:
        """Wait for the first 200 of /ping, asked from inside where no port is published, and for the start line."""
        deadline = time.monotonic() + limit_s
        while not self._healthy() or START_LINE not in self.logs():
            assert self.state()["Running"], f"the container ended:\n{self.logs()}"
            assert time.monotonic() < deadline, f"not ready within {limit_s} s:\n{self.logs()}"
            time.sleep(0.2)

    def execute(self, *command: str, check: bool = True) -> str:
        """Run a command in the container and return what it printed."""
        return docker("exec", self.name, *command, check=check).stdout

    def python(self, code: str) -> str:
        """Run Python in the container."""
        return self.execute("/opt/byoc/venv/bin/python", "-c", code)

    def processes(self, word: str) -> list[tuple[int, str]]:
        """Process id (the host's) and user id of every process whose command holds a word."""
        table = docker("top", self.name, "-eo", "pid,uid,args").stdout.splitlines()[1:]
        return [(int(row.split()[0]), row.split()[1]) for row in table if word in row]

    def worker(self) -> int:
        """The process id (the host's) of the only worker; one that is being replaced is waited for."""
        deadline = time.monotonic() + 60
        while len(found := self.processes(WORKER)) != 1:
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        return found[0][0]

    def memory(self) -> int:
        """Bytes that the container's processes hold for themselves, shared pages once."""
        return int(self.python(ANONYMOUS_MEMORY))

    def wait(self, limit_s: float = 60.0) -> int:
        """The exit code, once the container has ended."""
        return int(docker("wait", self.name, limit_s=limit_s).stdout)

    def _address(self) -> str:
        published = docker("port", self.name, "8080/tcp", check=False).stdout.splitlines()
        return f"http://{published[0]}" if published else "http://127.0.0.1:9"

    def _healthy(self) -> bool:
        if str(self.http.base_url):
            return self.ping() == 200
        return docker("exec", self.name, "/opt/byoc/bin/entrypoint", "healthcheck", check=False).returncode == 0


def readable(directory: Path) -> Path:
    """Let every user read the directory, its files, and reach it from above."""
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for parent in directory.parents:
        if parent.owner() == directory.owner() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o111)
    return directory
