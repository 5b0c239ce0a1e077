"""How long until the first answer: a bare script that loads the model, and the image from `docker run` on."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

from benchmarks.models import ROOT, Model, prepare
from benchmarks.servers import FOREIGN, call, free_ports

IMAGE = "torchserve-byoc:cpu"
LIMIT_S = 120.0
SCRIPT = """\
from benchmarks.peers.inference import Model
print(len(Model()(["How long does it take until the first answer?"])))
"""


def bare_script(model: Model) -> float:
    """Seconds from the start of Python to the first answer: import, load, one text, with the product's own packages."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    environment |= {"BENCH_MODEL": str(prepare(model)), "BENCH_TASK": model.task, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    started = time.perf_counter()
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SCRIPT], env=environment, **pipes) as script:
        printed = script.stdout.readline() if script.stdout else ""
        taken = time.perf_counter() - started
        said = script.communicate()[1].strip().splitlines()
    if printed.strip() != "1":
        raise RuntimeError(f"the bare script gave no answer: {said[-1] if said else 'it printed nothing'}")
    return taken


def container(model: Model) -> float | str:
    """Seconds from `docker run` to the first answer of the image; without an engine or the image, the reason."""
    client = os.environ.get("DOCKER") or shutil.which("docker")
    if client is None:
        return "no docker client is on the PATH"
    if _docker(client, "image", "inspect", IMAGE).returncode:
        return f"no engine answers, or it has no {IMAGE}: run make image"
    port, directory = free_ports(), prepare(model).resolve()
    options = ["--detach", "--rm", "--publish", f"127.0.0.1:{port}:8080", "--env", f"HF_TASK={model.task}"]
    started = time.perf_counter()
    run = _docker(client, "run", *options, "--volume", f"{directory}:/opt/ml/model:ro", IMAGE, "serve")
    if run.returncode:
        return (run.stderr.strip().splitlines() or ["docker run failed"])[-1][:200]
    try:
        return _first_answer(port, started)
    finally:
        _docker(client, "stop", run.stdout.strip())


def _first_answer(port: int, started: float) -> float | str:
    body = json.dumps({"inputs": "How long does it take until the first answer?"}).encode()
    while time.perf_counter() - started < LIMIT_S:
        with suppress(OSError, http.client.HTTPException):
            if call(port, "POST", "/invocations", body, "application/json", 10.0)[0] == 200:
                return time.perf_counter() - started
        time.sleep(0.02)
    return f"the container gave no answer within {LIMIT_S:.0f} s"


def _docker(client: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([client, *words], capture_output=True, text=True, check=False)
