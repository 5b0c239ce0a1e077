"""A real server on a machine that is told to have GPUs: TorchServe starts whatever CUDA_VISIBLE_DEVICES says, every worker is
pinned, numbers of GPUs reach /metrics, and a worker whose GPU fails is replaced."""

from __future__ import annotations

import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import nvidia
from nvidia import Card, Machine
from running import RunningServer

ONE, TWO = "GPU-11111111-aaaa-4000-8000-000000000001", "GPU-22222222-bbbb-4000-8000-000000000002"
WAIT_S = 20.0
PAIR = Machine([Card(ONE), Card(TWO, busy=25)])
TELLING = """
    import os, time, torch
    def model_fn(model_dir): return None
    def input_fn(body, content_type): return body
    def predict_fn(data, model):
        if data == "assert":
            raise torch.AcceleratorError("CUDA error: device-side assert triggered")
        time.sleep(0.02)
        return {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")}
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A model that tells what its worker sees of the GPUs."""
    code = tmp_path / "model" / "code"
    code.mkdir(parents=True)
    (code / "inference.py").write_text(textwrap.dedent(TELLING), "utf-8")
    return code.parent


@pytest.fixture
def gpus(tmp_path: Path) -> dict[str, str]:
    """Variables of a machine with two GPUs and a torch for them; the workers' own torch stays that of the CPU."""
    variables = nvidia.lay_out(tmp_path / "driver", PAIR)
    nvidia.torch_for_cuda(tmp_path / "driver", "12.8")
    return variables


def pinned(server: RunningServer, workers: int) -> set[str]:
    """What the workers see, asked by several callers at once until so many have answered, or for long enough."""
    seen: set[str] = set()
    deadline = time.monotonic() + WAIT_S
    with ThreadPoolExecutor(8) as callers:
        while len(seen) < workers and time.monotonic() < deadline:
            seen |= {answer.json()["CUDA_VISIBLE_DEVICES"] for answer in callers.map(server.invoke, ["where"] * 16)}
    return seen


def test_workers_are_dealt_the_gpus_and_keep_each_its_own(script: Path, gpus: dict[str, str]) -> None:
    settings = {**gpus, "SAGEMAKER_MODEL_SERVER_WORKERS": "2", "CUDA_VISIBLE_DEVICES": f" {TWO}, {ONE} "}
    with RunningServer(script, settings) as server:
        assert pinned(server, 2) == {ONE, TWO}
        assert server.invoke("where").json()["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        numbers = server.metrics()
        assert numbers[f'byoc_gpu_utilisation_ratio{{gpu="{TWO}"}}'] == 0.25
        assert numbers[f'byoc_gpu_temperature_celsius{{gpu="{ONE}"}}'] == 61


@pytest.mark.parametrize("value", ["", "-1", "NoDevFiles"])
def test_hidden_gpus_are_not_used_and_that_is_told(script: Path, gpus: dict[str, str], value: str) -> None:
    with RunningServer(script, {**gpus, "CUDA_VISIBLE_DEVICES": value}) as server:
        assert server.invoke("where").json()["CUDA_VISIBLE_DEVICES"] == "-1"
        assert "serves on the CPU" in server.output
        assert not [name for name in server.metrics() if name.startswith("byoc_gpu")]


def test_a_driver_too_old_stops_the_start_with_one_sentence(script: Path, tmp_path: Path) -> None:
    variables = nvidia.lay_out(tmp_path / "driver", Machine([Card(ONE)], driver="470.256.02"))
    nvidia.torch_for_cuda(tmp_path / "driver", "12.8")
    server = RunningServer(script, variables, wait=False)
    assert server.wait() == 2
    assert "the NVIDIA driver here is 470.256.02" in server.lines[-1]
    assert not [line for line in server.lines if "Traceback" in line]


def test_a_worker_whose_gpu_fails_is_replaced_and_its_caller_told(script: Path) -> None:
    with RunningServer(script) as server:
        lost = server.invoke("assert")
        assert lost.status_code == 503
        assert lost.json()["error"]["type"] == "WorkerLost"
        deadline = time.monotonic() + WAIT_S
        while server.output.count("model loaded") < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        server.wait_for_ping(200)
        assert server.invoke("where").status_code == 200
        assert "the GPU failed this process for good" in server.output
