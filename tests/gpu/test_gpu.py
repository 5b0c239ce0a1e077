"""What only a GPU can show: graphs give eager's answers in every precision, lanes overlap, memory that is out is survived."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from batch_handler import device
from batch_handler.engines import Tokens, choose
from batch_handler.engines.checks import AGREEMENT, Use, alike, exact, samples
from batch_handler.engines.cuda import Shaped
from batch_handler.engines.eager import Eager
from batch_handler.engines.graphs import REPLAYED_AFTER, Graphs
from batch_handler.microbatch import out_of_memory
from batch_handler.settings import Settings
from models import encoders

ARCHITECTURES = [name for name in encoders.CONFIGURATIONS if name != "gpt2"]
CUDA = torch.device("cuda")
OnGpu = Callable[..., Settings]


def batch(rows: int, length: int) -> list[Tokens]:
    return [Tokens([5 + (row + place) % 50 for place in range(length)], [0] * length) for row in range(rows)]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("head", [False, True])
def test_graphs_are_recorded_and_exact_in_fp32(architecture: str, head: bool, on_gpu: OnGpu) -> None:
    model = device.place(encoders.model(architecture, head).eval(), on_gpu())
    engine = choose(model, "graphs", head)
    assert engine.name == "graphs"
    assert engine._graphs._lane().graphs  # type: ignore[attr-defined]
    with torch.inference_mode():
        assert exact(engine, Eager(model), Use(head), samples(model)) <= AGREEMENT


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_rounding_precisions_compute_the_same_model(precision: str, on_gpu: OnGpu) -> None:
    exactly = device.place(encoders.model("bert", False).eval(), on_gpu())
    rounded = encoders.model("bert", False).eval()
    rounded.load_state_dict(exactly.state_dict())
    rounded = device.place(rounded, on_gpu(BYOC_PRECISION=precision))
    engine = choose(rounded, "graphs", False, precision=precision)
    assert engine.hidden(batch(2, 9)).dtype == torch.float32
    assert alike(engine, Eager(exactly), samples(exactly))


def test_the_answers_of_the_gpu_are_those_of_the_cpu(on_gpu: OnGpu) -> None:
    on_cpu = encoders.model("bert", False).eval()
    other = encoders.model("bert", False).eval()
    other.load_state_dict(on_cpu.state_dict())
    engine = choose(device.place(other, on_gpu()), "auto", False)
    with torch.inference_mode():
        assert torch.allclose(engine.hidden(batch(5, 30)).cpu(), Eager(on_cpu).hidden(batch(5, 30)), atol=1e-4)


def test_two_lanes_replay_at_once_and_mix_nothing_up(on_gpu: OnGpu) -> None:
    engine = choose(device.place(encoders.model("bert", False).eval(), on_gpu()), "graphs", False)
    prepare = device.use_lane(CUDA)
    expected = {rows: engine.hidden(batch(rows, 20)).cpu() for rows in (2, 4)}

    def lane(rows: int) -> list[float]:
        prepare(1)
        return [float((engine.hidden(batch(rows, 20)).cpu() - expected[rows]).abs().max()) for _ in range(200)]

    with ThreadPoolExecutor(2) as lanes:
        assert max(max(differences) for differences in lanes.map(lane, (2, 4))) <= AGREEMENT


def test_one_lanes_work_overlaps_the_others() -> None:
    """Two streams of long kernels end sooner than one after the other; kernels are made small enough to share the GPU."""
    prepare = device.use_lane(CUDA)
    barrier = threading.Barrier(2)

    def lane(together: bool) -> None:
        prepare(1)
        if together:
            barrier.wait()
        torch.cuda._sleep(200_000_000)
        torch.cuda.current_stream().synchronize()

    def timed(run: Callable[[], Any]) -> float:
        began = time.perf_counter()
        run()
        return time.perf_counter() - began

    with ThreadPoolExecutor(2) as lanes:
        list(lanes.map(lane, (True, True)))
        apart = timed(lambda: [lanes.submit(lane, False).result() for _ in range(2)])
        together = timed(lambda: list(lanes.map(lane, (True, True))))
    assert together < 0.75 * apart


def test_graphs_that_do_not_fit_into_memory_leave_the_answers_right(on_gpu: OnGpu) -> None:
    model = device.place(encoders.model("bert", False).eval(), on_gpu())
    engine = Shaped(model, graphs=Graphs(CUDA))
    wanted = engine.hidden(batch(4, 40))
    for _ in range(REPLAYED_AFTER + 3):
        assert torch.allclose(engine.hidden(batch(4, 40)), wanted, atol=AGREEMENT)


def test_memory_that_is_out_is_told_by_type_and_the_next_pass_runs() -> None:
    free, _ = torch.cuda.mem_get_info()

    def run(passes: Sequence[Any]) -> Sequence[Any]:
        return [torch.empty(int(free * 0.3), dtype=torch.uint8, device=CUDA) for _ in passes]

    with pytest.raises(torch.OutOfMemoryError) as told:
        device.watched(run)([1, 2, 3, 4, 5])
    assert out_of_memory(told.value)
    assert len(device.watched(run)([1])) == 1


def test_a_real_device_side_assert_ends_the_process() -> None:
    code = (
        "import torch\nfrom batch_handler import device\n"
        "table = torch.nn.Embedding(4, 4).cuda()\n"
        "def run(passes): return table(torch.tensor([9]).cuda()).cpu()\n"
        "device.watched(run)([1])\nprint('survived')"
    )
    path = Path(device.__file__).parents[1]
    ended = subprocess.run([sys.executable, "-c", code], cwd=path, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 1
    assert "survived" not in ended.stdout
    assert "the GPU failed this process for good" in ended.stderr


def test_a_worker_sees_the_gpu_it_was_pinned_to_and_no_other() -> None:
    identifier = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    code = (
        f"import os; os.environ['_BYOC_GPUS'] = {identifier!r}\n"
        "from batch_handler import device; device.pin(0)\n"
        "import torch; print(torch.cuda.device_count(), torch.cuda.get_device_properties(0).uuid)"
    )
    path = Path(device.__file__).parents[1]
    told = subprocess.run([sys.executable, "-c", code], cwd=path, capture_output=True, text=True, check=True, timeout=300).stdout
    assert told.split() == ["1", identifier.removeprefix("GPU-")]
