"""A running server for tests and benchmarks: the checkout's own entrypoint on loopback, started and stopped like a program."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / "build" / "home"
CONFORMANCE = ROOT / "tests" / "conformance"
CONFORMANCE_PATIENCE = {"default": {"SAGEMAKER_TS_RESPONSE_TIMEOUT": "300"}}
"""By group, as long as its cases wait: ten thousand records take a slow machine longer than the usual minute."""
CONFORMANCE_GROUPS = ("default", "batch4", "limits", "batch-transform", "hooks", "mme")
START_LIMIT_S = 120.0
START_LINE = "ready in "
STOP_LIMIT_S = 40.0


def free_port() -> int:
    """A TCP port of the loopback interface that nothing listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Endpoint:
    """An HTTP address that answers the SageMaker contract, with short ways to call it."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.http = httpx.Client(base_url=base_url, timeout=120.0, limits=httpx.Limits(max_connections=512))

    def invoke(self, body: Any, content_type: str = "application/json", **headers: str) -> httpx.Response:
        """POST /invocations; anything but bytes and text is sent as JSON. Header names are written with underscores."""
        content = body if isinstance(body, bytes | str) else json.dumps(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.post("/invocations", content=content, headers={"Content-Type": content_type, **named})

    def ping(self) -> int:
        """The status of /ping, or 0 when nobody answers."""
        try:
            return self.http.get("/ping", timeout=5.0).status_code
        except httpx.HTTPError:
            return 0

    def wait_for_ping(self, status: int, limit_s: float = START_LIMIT_S) -> None:
        """Poll /ping until it answers with this status; fails after `limit_s`."""
        deadline = time.monotonic() + limit_s
        while self.ping() != status:
            assert time.monotonic() < deadline, f"/ping did not become {status} within {limit_s} s"
            time.sleep(0.05)

    def metrics(self, model: str = "model") -> dict[str, float]:
        """What /metrics tells of a model and of the server, by name and further labels: ``byoc_requests_total{status="200"}``."""
        values = {}
        for family in text_string_to_metric_families(self.http.get("/metrics").text):
            for sample in family.samples:
                if sample.labels.get("model", model) != model:
                    continue
                labels = ",".join(f'{key}="{value}"' for key, value in sample.labels.items() if key != "model")
                values[sample.name + (f"{{{labels}}}" if labels else "")] = sample.value
        return values


class RunningServer(Endpoint):
    """`entrypoint serve` as a child process. Use it as a context manager.

    ``lines`` is what it printed so far, ``exit_code`` its status once it ended.
    """

    def __init__(self, model: Path, settings: Mapping[str, str] | None = None, home: Path = HOME, wait: bool = True) -> None:
        self.port = int((settings or {}).get("SAGEMAKER_BIND_TO_PORT", free_port()))
        super().__init__(f"http://127.0.0.1:{self.port}")
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("BYOC_", "SAGEMAKER_", "TS_", "HF_"))
        }
        environment |= {
            "BYOC_MODEL_DIR": str(model),
            "BYOC_BIND_ADDRESS": "127.0.0.1",
            "SAGEMAKER_BIND_TO_PORT": str(self.port),
            **(settings or {}),
        }
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [str(home / "bin" / "entrypoint"), "serve"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if wait:
            self.wait_until_ready()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
        if kind is not None:
            print(self.output, file=sys.stderr)

    @property
    def pid(self) -> int:
        """The entrypoint's process id."""
        return self._process.pid

    @property
    def output(self) -> str:
        """All that was printed so far."""
        return "\n".join(self.lines)

    def wait_until_ready(self, limit_s: float = START_LIMIT_S) -> None:
        """Wait for the first 200 of /ping and for the start line; fails with the server's output when it ends before."""
        deadline = time.monotonic() + limit_s
        while self.ping() != 200 or START_LINE not in self.output:
            assert self._process.poll() is None, f"the server ended with {self._process.returncode}:\n{self.output}"
            assert time.monotonic() < deadline, f"not ready within {limit_s} s:\n{self.output}"
            time.sleep(0.05)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the entrypoint, and to it alone."""
        self._process.send_signal(number)

    def wait(self, limit_s: float = STOP_LIMIT_S) -> int:
        """The exit code, once the process has ended and all its output is read."""
        code = self._process.wait(limit_s)
        self._reader.join(5.0)
        return code

    def stop(self) -> int:
        """End it with SIGTERM, as Docker would; kill it when it does not listen."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self.wait()

    def workers(self) -> list[int]:
        """Process ids of the Python workers below this server."""
        return [pid for pid, command in descendants(self.pid) if "model_service_worker.py" in command]

    def wait_for_another_worker(self, ended: int) -> int:
        """Wait until this worker is gone and another answers: /ping may be 503 for less time than lies between two looks."""
        deadline = time.monotonic() + START_LIMIT_S
        while not (others := [pid for pid in self.workers() if pid != ended]) or self.ping() != 200:
            assert time.monotonic() < deadline, f"no worker has followed {ended} within {START_LIMIT_S} s:\n{self.output}"
            time.sleep(0.05)
        return others[0]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))


def at_once(calls: Sequence[Callable[[], httpx.Response]]) -> list[httpx.Response]:
    """Make all calls in the same moment; their answers in order."""
    start = threading.Barrier(len(calls))

    def call(number: int) -> httpx.Response:
        start.wait()
        return calls[number]()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(call, range(len(calls))))


def descendants(root: int) -> list[tuple[int, str]]:
    """Every process below `root` with its command line, from /proc."""
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except OSError:
            continue
        found = re.search(r"^PPid:\s+(\d+)", text, re.MULTILINE)
        if found:
            parents[int(status.parent.name)] = int(found[1])
    below = {root}
    for _ in range(len(parents)):
        grown = below | {pid for pid, parent in parents.items() if parent in below}
        if grown == below:
            break
        below = grown
    return [(pid, command_line(pid)) for pid in sorted(below - {root})]


def listening_ports(processes: Collection[int]) -> set[int]:
    """The TCP ports on which any of these processes listens, from /proc."""
    sockets = set()
    for pid in processes:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                sockets.add(str(link.readlink()))
            except OSError:
                continue
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for words in (line.split() for line in Path(table).read_text().splitlines()[1:]):
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                ports.add(int(words[1].rpartition(":")[2], 16))
    return ports


def command_line(pid: int) -> str:
    """The words of a process's command, or nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def conformance_artefact(group: str, usual: Path) -> Path:
    """The model directory that a group's server serves, or in group mme loads."""
    own = CONFORMANCE / "artefacts" / ("hooks" if group == "mme" else group)
    return own if own.is_dir() else usual


def conformance_settings(group: str) -> dict[str, str]:
    """The settings that a group of conformance cases asks of its server."""
    printed = subprocess.run(
        [sys.executable, str(CONFORMANCE / "run.py"), "--group", group, "--print-env"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return {**CONFORMANCE_PATIENCE.get(group, {}), **dict(line.split("=", 1) for line in printed.splitlines() if line)}


def conformance_cases(group: str) -> list[str]:
    """The names of a group's cases."""
    return [
        path.parent.name
        for path in sorted((CONFORMANCE / "cases").glob("*/request.json"))
        if json.loads(path.read_text("utf-8"))["group"] == group
    ]


def conformance_verdicts(base_url: str, group: str, model_dir: Path | None = None) -> dict[str, str]:
    """Run a group against a server: case name → its line of the report. ``model_dir`` is the server's path of the artefact."""
    command = [sys.executable, str(CONFORMANCE / "run.py"), "--base-url", base_url, "--group", group]
    if (CONFORMANCE / "artefacts" / group).is_dir():
        command += ["--artefact", group]
    if model_dir is not None:
        command += ["--model-dir", str(model_dir)]
    report = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    lines = [line.split(" ", 2) for line in report.stdout.splitlines() if line.startswith(("PASS", "FAIL", "SKIP"))]
    assert lines, report.stdout + report.stderr
    return {words[1]: " ".join(words) for words in lines}
