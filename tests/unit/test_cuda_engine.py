"""The engine for GPUs on a CPU: its shapes and its answers are the same there, and its graphs are recorded by a stand-in."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from batch_handler.engines import Tokens, choose
from batch_handler.engines.checks import AGREEMENT, Use, exact, fitting_head, samples
from batch_handler.engines.cuda import SHORTEST, Shaped, fitting, shape
from batch_handler.engines.eager import Eager
from batch_handler.engines.graphs import KEPT, REPLAYED_AFTER, Forward, Graphs, Recorded, Tensors
from batch_handler.settings import SettingError
from models import encoders

ARCHITECTURES = [name for name in encoders.CONFIGURATIONS if name != "gpt2"]
CPU = torch.device("cpu")

pytestmark = pytest.mark.usefixtures("single_threaded")


class Recorder:
    """Stands for a GPU's graphs: replaying runs the same pass over the same tensors into the same output."""

    def __init__(self, fail: Callable[[], Exception | None] = lambda: None) -> None:
        self.recorded = 0
        self.replayed = 0
        self._fail = fail

    def record(self, forward: Forward, inputs: Tensors) -> Recorded:
        if error := self._fail():
            raise error
        self.recorded += 1
        inputs = {name: tensor.clone() for name, tensor in inputs.items()}
        output = forward(inputs).clone()

        def replay() -> None:
            self.replayed += 1
            output.copy_(forward(inputs))

        return Recorded(inputs, output, replay)


def records(lengths: Sequence[int], seed: int = 0) -> list[Tokens]:
    chance = random.Random(seed)
    return [Tokens([chance.randrange(5, 60) for _ in range(length)], [0] * length) for length in lengths]


@pytest.mark.parametrize(
    ("rows", "length", "expected"),
    [
        (1, 1, (1, 16)),
        (2, 16, (2, 16)),
        (3, 17, (3, 20)),
        (4, 21, (4, 24)),
        (5, 32, (6, 32)),
        (7, 33, (8, 40)),
        (9, 100, (12, 112)),
        (32, 128, (32, 128)),
        (33, 129, (48, 160)),
        (100, 512, (128, 512)),
    ],
)
def test_a_batch_is_padded_to_the_next_shape(rows: int, length: int, expected: tuple[int, int]) -> None:
    assert shape(rows, length) == expected


def test_shapes_are_few_and_never_too_small_or_half_empty() -> None:
    shapes = set()
    for rows in range(1, 257):
        for length in range(1, 513):
            padded = shape(rows, length)
            shapes.add(padded)
            assert rows <= padded[0] <= max(1, rows * 3 // 2)
            assert length <= padded[1] <= max(SHORTEST, length * 5 // 4 + 1)
    assert len({rows for rows, _ in shapes}) <= 17
    assert len({length for _, length in shapes}) <= 21


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_padding_to_a_shape_changes_no_answer(architecture: str) -> None:
    for head in (False, True):
        model = encoders.model(architecture, head)
        eager, use, sample = Eager(model), Use(head), samples(model)
        engine = Shaped(model, fitting_head(model, eager, use, sample))
        assert exact(engine, eager, use, sample) <= AGREEMENT


def test_neighbours_change_no_answer() -> None:
    engine = Shaped(encoders.model("bert", False))
    alone, beside = records([7]), records([7]) + records([3, 30, 11], seed=1)
    assert torch.allclose(engine.hidden(alone), engine.hidden(beside)[:7], atol=1e-5)


def test_a_shape_is_recorded_once_it_has_come_several_times_and_then_replayed() -> None:
    recorder = Recorder()
    model = encoders.model("bert", False)
    engine, eager = Shaped(model, graphs=Graphs(CPU, lambda: recorder)), Eager(model)
    for seed in range(REPLAYED_AFTER + 4):
        batch = records([5 + seed % 3, 9, 2], seed)
        with torch.inference_mode():
            assert torch.allclose(engine.hidden(batch), eager.hidden(batch), atol=1e-5)
    assert recorder.recorded == 1
    assert recorder.replayed == 4


def test_what_a_replay_gave_is_not_overwritten_by_the_next() -> None:
    recorder = Recorder()
    engine = Shaped(encoders.model("bert", False), graphs=Graphs(CPU, lambda: recorder))
    for _ in range(REPLAYED_AFTER):
        engine.hidden(records([8]))
    first = engine.hidden(records([8], seed=1))
    kept = first.clone()
    engine.hidden(records([8], seed=2))
    assert recorder.replayed == 2
    assert torch.equal(first, kept)


def test_a_lane_keeps_the_shapes_it_used_last() -> None:
    recorder = Recorder()
    graphs = Graphs(CPU, lambda: recorder)

    def run(size: int) -> None:
        graphs.run(lambda inputs: inputs["ids"] * 2, {"ids": torch.zeros(size)})

    for size in range(1, KEPT + 2):
        for _ in range(REPLAYED_AFTER + 1):
            run(size)
    assert recorder.recorded == KEPT + 1
    run(KEPT + 1)
    assert recorder.recorded == KEPT + 1
    for _ in range(REPLAYED_AFTER + 1):
        run(1)  # the oldest was dropped
    assert recorder.recorded == KEPT + 2


def test_each_lane_records_its_own() -> None:
    recorders: list[Recorder] = []

    def make() -> Recorder:
        recorders.append(Recorder())
        return recorders[-1]

    graphs = Graphs(CPU, make)

    def lane() -> None:
        for _ in range(REPLAYED_AFTER + 2):
            graphs.run(lambda inputs: inputs["ids"] + 1, {"ids": torch.zeros(4)})

    for _ in range(2):
        with ThreadPoolExecutor(1) as thread:
            thread.submit(lane).result()
    assert [recorder.recorded for recorder in recorders] == [1, 1]


def test_a_pass_that_cannot_be_recorded_runs_without_for_good(caplog: pytest.LogCaptureFixture) -> None:
    tries: list[int] = []

    def fail() -> Exception:
        tries.append(1)
        return RuntimeError("operation not permitted when stream is capturing")

    graphs = Graphs(CPU, lambda: Recorder(fail))
    results = [graphs.run(lambda inputs: inputs["ids"] + 1, {"ids": torch.zeros(4)}) for _ in range(REPLAYED_AFTER + 5)]
    assert all(torch.equal(result, torch.ones(4)) for result in results)
    assert tries == [1]
    assert "cannot be recorded as a CUDA graph" in caplog.text


def test_a_graph_that_memory_is_too_small_for_is_tried_again_later() -> None:
    tries: list[int] = []

    def fail() -> Exception | None:
        tries.append(1)
        return torch.OutOfMemoryError("CUDA out of memory") if len(tries) == 1 else None

    recorder = Recorder(fail)
    graphs = Graphs(CPU, lambda: recorder)
    for _ in range(2 * REPLAYED_AFTER + 3):
        assert torch.equal(graphs.run(lambda inputs: inputs["ids"] + 1, {"ids": torch.zeros(4)}), torch.ones(4))
    assert recorder.recorded == 1


def test_an_architecture_that_does_not_fit_is_served_by_eager() -> None:
    model = encoders.model("gpt2", False)
    eager = Eager(model)
    assert fitting(model, eager, Use(False), samples(model), exactly=True) is eager


def test_one_that_fits_is_taken_also_where_16_bits_round() -> None:
    model = encoders.model("bert", True)
    for exactly in (True, False):
        assert fitting(model, Eager(model), Use(True), samples(model), exactly).name == "graphs"


def test_graphs_asked_for_on_a_cpu_are_refused() -> None:
    with pytest.raises(SettingError, match="BYOC_ENGINE=graphs needs a GPU"):
        choose(encoders.model("bert", False), "graphs", False)
