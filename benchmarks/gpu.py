"""Records per second on a GPU: the product's forward passes against the bare model's, at batch sizes from 1 to 256.

    python -m benchmarks.gpu [--model minilm|bert-base] [--precision fp32|tf32|bf16|fp16] [--seconds N] [--device cuda|cpu]

``bare`` is the model's own forward pass over inputs that lie on the device already, padded to their longest: what a
server can at best reach. ``one lane`` and ``two lanes`` begin with lists of tokens and end with results on the host, as
in a worker. Without a GPU nothing is measured and the exit code is 2; ``--device cpu`` shows that the mode works.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks import texts
from benchmarks.models import BENCH, MODELS, ROOT, prepare

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SEED = 7
WARM_UP = 5
LANES = 2
NOT_RUN = 2


@dataclass(frozen=True, slots=True)
class Row:
    """Records per second at one batch size."""

    size: int
    bare: float
    one_lane: float
    two_lanes: float

    def as_line(self) -> str:
        """A row of the table; the last column is the better of ours beside the bare pass."""
        share = max(self.one_lane, self.two_lanes) / self.bare
        return f"| {self.size} | {self.bare:,.0f} | {self.one_lane:,.0f} | {self.two_lanes:,.0f} | {share:.2f} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table, write build/bench/gpu-MODEL-PRECISION.json."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=[name for name in MODELS if name != "translation"], default="minilm")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16", "fp16"), default="fp32")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each number (default: %(default)s)")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args(arguments)
    sys.path.insert(0, str(ROOT / "handler"))
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        print("NOT RUN: no CUDA device can be used here (--device cpu shows that the mode works)", file=sys.stderr)
        return NOT_RUN
    where = torch.cuda.get_device_name() if options.device == "cuda" else "the CPU, which says nothing about a GPU"
    rows = measure(options)
    print(f"{MODELS[options.model].title}, {options.precision}, {where}, torch {torch.__version__}; records per second\n")
    print("| batch | bare | one lane | two lanes | best ÷ bare |\n|---|---|---|---|---|")
    print("\n".join(row.as_line() for row in rows))
    output = BENCH / f"gpu-{options.model}-{options.precision}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    found = [{"size": row.size, "bare": row.bare, "one_lane": row.one_lane, "two_lanes": row.two_lanes} for row in rows]
    output.write_text(json.dumps({"device": where, "torch": torch.__version__, "rows": found}, indent=2), "utf-8")
    return 0


def measure(options: argparse.Namespace) -> list[Row]:
    """All sizes, one after the other, with the product's own task and the model that it loaded."""
    import torch

    from batch_handler import tasks
    from batch_handler.device import use_lane
    from batch_handler.request import Record
    from batch_handler.settings import resolve

    model = MODELS[options.model]
    variables = {"BYOC_DEVICE": options.device, "BYOC_PRECISION": options.precision, "BYOC_THREADS": str(LANES)}
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    task: Any = tasks.load(model.task, prepare(model), resolve(variables))
    wanted = texts.lengths(max(options.sizes), SEED, model.longest)
    records = task.encode([Record(text, 1) for text in texts.texts(wanted, _counter(task), SEED)])
    bare = _bare(model.task, prepare(model), resolve(variables))
    prepare_lane = use_lane(torch.device(options.device))
    rows = []
    with torch.inference_mode(), ThreadPoolExecutor(LANES, initializer=prepare_lane, initargs=(1,)) as lanes:
        for size in options.sizes:
            batch = sorted(records[:size], key=lambda record: record.length)
            forward = bare(batch)
            alone = _rate(forward, size, options.seconds)
            one = lanes.submit(_rate, partial(task.run, batch), size, options.seconds).result()
            both = [lanes.submit(_rate, partial(task.run, batch), size, options.seconds) for _ in range(LANES)]
            rows.append(Row(size, alone, one, sum(future.result() for future in both)))
    return rows


def _counter(task: Any) -> Callable[[Sequence[str]], list[int]]:
    from batch_handler.request import Record

    frame = texts.FRAME
    return lambda words: [record.length - frame for record in task.encode([Record(word, 1) for word in words])]


def _bare(task: str, directory: Any, settings: Any) -> Callable[[Sequence[Any]], Callable[[], None]]:
    """The model as transformers loads it, on the same device and in the same precision, and how to run it on a batch."""
    import torch
    from transformers import AutoModel, AutoModelForSequenceClassification

    from batch_handler.tasks.pretrained import load_model

    kind = AutoModelForSequenceClassification if task == "text-classification" else AutoModel
    model = load_model(kind, directory, settings)

    def prepared(batch: Sequence[Any]) -> Callable[[], None]:
        longest = max(record.length for record in batch)
        ids = [[*record.model_input.ids, *([0] * (longest - record.length))] for record in batch]
        mask = [[1] * record.length + [0] * (longest - record.length) for record in batch]
        inputs = {"input_ids": torch.tensor(ids, device=model.device), "attention_mask": torch.tensor(mask, device=model.device)}

        def forward() -> None:
            model(**inputs)
            if model.device.type == "cuda":
                torch.cuda.current_stream().synchronize()

        return forward

    return prepared


def _rate(run: Callable[[], Any], records: int, seconds: float) -> float:
    """Records per second of a call, after a few that do not count."""
    for _ in range(WARM_UP):
        run()
    began, runs = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        run()
        runs += 1
    return runs * records / (time.perf_counter() - began)


if __name__ == "__main__":
    sys.exit(main())
