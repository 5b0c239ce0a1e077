"""A worker's device: its own GPU by name, its precision, and which faults end it. CUDA itself is stood in for by its answers."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from batch_handler import device
from batch_handler.internal import GPUS
from batch_handler.jobs import Job
from batch_handler.scheduler import LEAST_BUDGET, Scheduler
from batch_handler.settings import SettingError, Settings
from batch_handler.tasks import Encoded, load
from models import encoders

Resolved = Callable[..., Settings]
CUDA, CPU = torch.device("cuda"), torch.device("cpu")
ASSERTED = "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, tuple[int, int]], None]:
    """What torch says of a GPU."""

    def answer(name: str, capability: tuple[int, int]) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: name)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: capability)

    return answer


@pytest.mark.parametrize(("number", "own"), [(0, "GPU-a"), (1, "MIG-b")])
def test_a_worker_keeps_the_gpu_it_was_given_by_its_identifier(number: int, own: str) -> None:
    environment = {GPUS: "GPU-a,MIG-b", device.VISIBLE: "0,1"}
    device.pin(number, environment)
    assert environment[device.VISIBLE] == own


@pytest.mark.parametrize(("number", "identifiers"), [(None, "GPU-a"), (0, ""), (3, "GPU-a")])
def test_a_worker_that_was_given_none_changes_nothing(number: int | None, identifiers: str) -> None:
    environment = {GPUS: identifiers, device.VISIBLE: "0"}
    device.pin(number, environment)
    assert environment[device.VISIBLE] == "0"


def test_gpus_that_torch_cannot_use_are_told_and_the_cpu_serves(
    settings: Resolved, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    device._tell_unusable.cache_clear()
    monkeypatch.setenv(GPUS, "GPU-a")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert [device.device(settings(BYOC_DEVICE="auto")) for _ in range(3)] == [CPU] * 3
    assert caplog.text.count("torch can use none of the GPUs GPU-a: this worker serves on the CPU") == 1


@pytest.mark.parametrize(
    ("precision", "capability", "instead"),
    [("bf16", (7, 5), "use fp16 or fp32"), ("tf32", (7, 5), "use fp16 or fp32"), ("fp16", (6, 1), "use fp32")],
)
def test_a_precision_that_the_gpu_has_no_units_for_is_refused(
    gpu: Callable[..., None], precision: str, capability: tuple[int, int], instead: str
) -> None:
    gpu("Tesla T4", capability)
    with pytest.raises(SettingError, match=rf"BYOC_PRECISION={precision} needs a GPU.*Tesla T4 has .*: {instead}"):
        device.check_precision(precision, CUDA)


@pytest.mark.parametrize("precision", ["auto", "fp32", "fp16"])
def test_an_older_gpu_has_the_other_precisions(gpu: Callable[..., None], precision: str) -> None:
    gpu("Tesla T4", (7, 5))
    device.check_precision(precision, CUDA)


def test_integers_belong_to_the_cpu_and_16_bit_floats_to_gpus(gpu: Callable[..., None]) -> None:
    gpu("NVIDIA A10G", (8, 6))
    with pytest.raises(SettingError, match="BYOC_PRECISION=int8 runs on the CPU alone"):
        device.check_precision("int8", CUDA)
    with pytest.raises(SettingError, match="BYOC_PRECISION=fp16 needs a GPU"):
        device.check_precision("fp16", CPU)
    with pytest.raises(SettingError, match="BYOC_PRECISION=bf16 on the CPU is for encoders of text"):
        device.check_precision("bf16", CPU)
    device.check_precision("bf16", CPU, engine=True)


def test_fp32_is_exact_and_19_bits_are_a_choice() -> None:
    before = torch.backends.cudnn.allow_tf32
    try:
        device.allow_tf32(True)
        assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == (True, True)
        device.allow_tf32(False)
        assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == (False, False)
    finally:
        torch.backends.cudnn.allow_tf32 = before


def test_autocast_computes_in_16_bits_and_answers_in_32() -> None:
    plain, cast = encoders.model("bert", True), encoders.model("bert", True)
    cast.load_state_dict(plain.state_dict())
    device.autocast(cast, "cpu", torch.bfloat16)
    seen: list[torch.dtype] = []
    layer = cast.base_model.encoder.layer[0].intermediate.dense
    layer.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    tokens = torch.randint(5, plain.config.vocab_size, (2, 9))
    with torch.inference_mode():
        ours, exact = cast(input_ids=tokens).logits, plain(input_ids=tokens).logits
        states = cast.base_model(input_ids=tokens).last_hidden_state
    assert seen == [torch.bfloat16, torch.bfloat16]
    assert ours.dtype == states.dtype == torch.float32
    assert not torch.equal(ours, exact)
    assert torch.allclose(ours, exact, atol=0.05)


def test_autocast_leaves_names_and_signatures_as_they_were() -> None:
    import inspect

    plain, cast = encoders.model("bert", False), device.autocast(encoders.model("bert", False), "cpu", torch.bfloat16)
    assert type(cast).__name__ == type(plain).__name__
    assert isinstance(cast, type(plain))
    assert inspect.signature(cast.forward) == inspect.signature(plain.forward)


def test_a_generating_model_runs_under_autocast_encoder_included(artefact: Callable[..., Path]) -> None:
    import transformers

    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(artefact("marian")).eval()
    seen: set[torch.dtype] = set()
    for module in model.get_encoder().modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda module, inputs, output: seen.add(output.dtype))
    device.autocast(model, "cpu", torch.bfloat16)
    with torch.inference_mode():
        produced = model.generate(input_ids=torch.tensor([[4, 5, 6, 0]]), max_new_tokens=4)
    assert produced.dtype == torch.int64
    assert seen == {torch.bfloat16}


def test_on_the_cpu_a_lane_sets_its_threads() -> None:
    assert device.use_lane(CPU) is torch.set_num_threads


def test_each_lane_of_a_gpu_takes_one_stream_and_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    streams: list[object] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "Stream", object)
    monkeypatch.setattr(torch.cuda, "set_stream", streams.append)
    prepare = device.use_lane(CUDA)
    threads = torch.get_num_threads()
    try:
        for _ in range(2):
            with ThreadPoolExecutor(1) as lane:
                list(lane.map(prepare, [1, 1, 1]))
    finally:
        torch.set_num_threads(threads)
    assert len(streams) == len(set(map(id, streams))) == 2


def test_memory_that_is_out_is_given_back_before_the_halves_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    emptied: list[int] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))

    def run(passes: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        device.watched(run)([1])
    assert emptied == [1]


def ending(raised: str) -> subprocess.CompletedProcess[str]:
    """How a process ends whose forward pass raises this."""
    code = f"import torch\nfrom batch_handler import device\ndef run(passes): raise {raised}\ndevice.watched(run)([1])"
    path = Path(device.__file__).parents[1]
    return subprocess.run([sys.executable, "-c", code], cwd=path, capture_output=True, text=True, check=False, timeout=120)


def test_a_device_side_assert_ends_the_worker_at_once_with_one_line() -> None:
    ended = ending(f"torch.AcceleratorError({ASSERTED!r})")
    assert ended.returncode == 1
    assert ended.stderr.strip() == (
        "the GPU failed this process for good (CUDA error: device-side assert triggered): the worker ends and is replaced"
    )


@pytest.mark.parametrize(
    "harmless",
    [
        RuntimeError(ASSERTED),
        torch.AcceleratorError("CUDA error: invalid argument"),
        torch.OutOfMemoryError("device-side assert"),
    ],
)
def test_words_alone_and_lesser_faults_do_not(harmless: RuntimeError, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "end_worker", lambda why: pytest.fail(why))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)

    def run(passes: Any) -> Any:
        raise harmless

    with pytest.raises(type(harmless)):
        device.watched(run)([1])


def test_cuda_asked_for_and_absent_stops_the_load(artefact: Callable[..., Path], settings: Resolved) -> None:
    with pytest.raises(SettingError, match="BYOC_DEVICE=cuda, but no CUDA device"):
        load("feature-extraction", artefact("bert", head=False), settings(BYOC_DEVICE="cuda"))


def test_what_ran_out_of_memory_once_is_not_tried_again() -> None:
    """A pass of four records fits at most; the budget of sixteen is halved until it holds and stays so."""
    sizes: list[int] = []
    done = threading.Event()

    def run(passes: Sequence[Encoded]) -> Sequence[int]:
        sizes.append(len(passes))
        if len(passes) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return [1] * len(passes)

    owners: list[Any] = []

    def finished(jobs: Sequence[Job]) -> None:
        owners.extend(job.outputs for job in jobs)
        done.set()

    scheduler = Scheduler(run, finished, lanes=1, token_budget=16 * LEAST_BUDGET, padded=True)
    for _ in range(2):
        done.clear()
        scheduler.submit([Job(None, [Encoded(None, LEAST_BUDGET)] * 16)])
        assert done.wait(20)
    assert owners == [[1] * 16] * 2
    assert max(sizes[:3]) == 16
    assert set(sizes[-4:]) == {4}
    assert len(sizes) <= 3 + 4 + 4 + 2
