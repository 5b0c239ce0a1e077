"""Where requests go: containers that run already, or that are started here and removed at the end; which of them is free."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3
from urllib3.exceptions import HTTPError

from transform.faults import JobError

READY_LIMIT_S = 600.0
"""For a container that is started here; one that runs already should answer sooner."""
ANSWER_LIMIT_S = 60.0
REST_S = 2.0
"""How long a container that did not answer gets no requests while others do."""
STOP_S = 30
LABEL = "byoc.transform"
PORT = "8080/tcp"


@dataclass(slots=True)
class Target:
    """One container. ``name`` is for people; connections are kept open, as many as requests are in flight."""

    url: str
    name: str
    pool: urllib3.HTTPConnectionPool
    in_flight: int = 0
    rests_until: float = 0.0

    def get(self, path: str, timeout_s: float = 5.0) -> tuple[int, bytes]:
        """Status and body of a GET; 0 when nobody answers."""
        try:
            answer = self.pool.request("GET", path, timeout=timeout_s, retries=False)
        except HTTPError:
            return 0, b""
        return answer.status, answer.data

    def alive(self) -> bool:
        """Whether it would take a request."""
        return self.get("/ping")[0] == 200


@dataclass(slots=True)
class Targets:
    """Hands out the container with the fewest requests, resting ones last. Threads may share it."""

    members: Sequence[Target]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def one(self) -> Iterator[Target]:
        """The container for one request."""
        with self._lock:
            now = time.monotonic()
            chosen = min(self.members, key=lambda target: (target.rests_until > now, target.in_flight))
            chosen.in_flight += 1
        try:
            yield chosen
        finally:
            with self._lock:
                chosen.in_flight -= 1

    def any_alive(self) -> bool:
        """Whether at least one would take a request."""
        return any(target.alive() for target in self.members)


def at(url: str, connections: int = 100) -> Target:
    """The container at an address. Raises JobError when it is none."""
    try:
        parts = urllib3.util.parse_url(url)
    except HTTPError:
        raise JobError(f"{url} is no address: write http://host:port") from None
    if parts.scheme not in ("http", "https") or not parts.host:
        raise JobError(f"{url} is no address: write http://host:port")
    pool = urllib3.connection_from_url(f"{parts.scheme}://{parts.netloc}", maxsize=connections, block=False)
    return Target(url, parts.netloc or url, pool)


def wanted(targets: Targets) -> Mapping[str, Any]:
    """What the first container's /execution-parameters ask for; empty where it has none."""
    status, body = targets.members[0].get("/execution-parameters", 10.0)
    try:
        found = json.loads(body) if status == 200 else {}
    except ValueError:
        found = {}
    return found if isinstance(found, dict) else {}


def await_ready(targets: Targets, limit_s: float = ANSWER_LIMIT_S) -> None:
    """Wait until every container answers /ping with 200. Raises JobError."""
    deadline = time.monotonic() + limit_s
    for target in targets.members:
        while not target.alive():
            if time.monotonic() > deadline:
                raise JobError(f"{target.url} does not answer /ping with 200: start the container, or correct the address")
            time.sleep(0.2)


@contextmanager
def started(image: str, count: int, model: Path | None, environment: Mapping[str, str], owner: str) -> Iterator[Targets]:
    """Run `count` containers of an image on ports of their own, ready to be asked; removed at the end.

    Those that an earlier run of the same job (`owner`) left behind are removed first. Raises JobError.
    """
    _remove(_docker("ps", "--all", "--quiet", "--filter", f"label={LABEL}={owner}").split())
    names: list[str] = []
    try:
        names.extend(_run(image, model, environment, owner) for _ in range(count))
        targets = Targets([_of(name) for name in names])
        for name, target in zip(names, targets.members, strict=True):
            _await(name, target)
        yield targets
    finally:
        _remove(names)


def _run(image: str, model: Path | None, environment: Mapping[str, str], owner: str) -> str:
    variables = [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
    volume = ("--volume", f"{model.resolve()}:/opt/ml/model:ro") if model else ()
    return _docker(
        *("run", "--detach", "--label", f"{LABEL}={owner}", "--publish", f"127.0.0.1::{PORT}"),
        *(*volume, *variables, image, "serve"),
    ).strip()


def _of(name: str) -> Target:
    published = _docker("port", name, PORT).splitlines()
    if not published:
        raise JobError(f"the container ended at once: {_last_words(name)}")
    found = at(f"http://{published[0]}")
    found.name = name[:12]
    return found


def _await(name: str, target: Target) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while not target.alive():
        if _docker("inspect", "--format", "{{.State.Running}}", name).strip() != "true":
            raise JobError(f"the container ended before it was ready: {_last_words(name)}")
        if time.monotonic() > deadline:
            raise JobError(f"the container was not ready after {READY_LIMIT_S:.0f} s: {_last_words(name)}")
        time.sleep(0.2)


def _last_words(name: str) -> str:
    printed = subprocess.run(
        ["docker", "logs", "--tail", "20", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    ).stdout
    lines = [line for line in printed.splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"


def _remove(names: Sequence[str]) -> None:
    if names:
        subprocess.run(["docker", "stop", "--time", str(STOP_S), *names], capture_output=True, check=False)
        subprocess.run(["docker", "rm", "--force", "--volumes", *names], capture_output=True, check=False)


def _docker(*words: str) -> str:
    try:
        done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    except OSError:
        raise JobError("there is no docker command here: install one, or name the address of a running container") from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise JobError(f"docker {words[0]} failed: {said[-1] if said else 'it said nothing'}")
    return done.stdout
