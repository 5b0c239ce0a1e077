"""What the machine can do without a server: forward passes of the same weights over the same texts, offline.

Each kind runs in a process of its own, because the number of OpenMP's threads is fixed before torch is imported.

    python -m benchmarks.limits --model minilm --kind packed --seconds 5
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import artefacts
from benchmarks.load import percentile
from benchmarks.models import BENCH, MODELS, ROOT, prepare
from benchmarks.systems import SYSTEMS

CHUNK = 256
EXPORTED = tuple(system.limit for system in SYSTEMS.values() if system.engine and system.limit)
KINDS = ("padded", "sorted", "budget", "compiled", "packed", *EXPORTED, "one", "one-threaded")
SEVERAL_THREADS = ("padded", "sorted", "budget", "compiled", "one-threaded")
"""The other kinds have single-threaded kernels: the lanes use the cores, or one text has one core as in a lane."""
TOKEN_BUDGET = 1_024


class LimitError(Exception):
    """A limit could not be measured; its text says why, as far as the process that failed told."""


def measure(model: str, kind: str, seconds: float) -> dict[str, Any]:
    """Run one kind in a fresh process: ``records_per_s``, and ``p50_ms`` and ``p99_ms`` for one text at a time.

    Raises LimitError where it cannot run here.
    """
    foreign = ("BYOC_", "SAGEMAKER_", "BENCH_", "OMP_", "MKL_", "OPENBLAS_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    if kind not in SEVERAL_THREADS:
        environment["OMP_NUM_THREADS"] = "1"
    environment |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'handler'}", "BENCH_MODEL": str(_artefact(model, kind))}
    environment |= {"BENCH_TASK": MODELS[model].task, "BENCH_BATCH": "32" if kind in ("padded", "sorted") else "1"}
    command = [sys.executable, "-m", "benchmarks.limits", "--model", model, "--kind", kind, "--seconds", str(seconds)]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT, check=False, timeout=900)
    if printed.returncode:
        raise LimitError(f"the limit {kind} failed: {printed.stderr.strip()[-800:]}")
    result: dict[str, Any] = json.loads(printed.stdout.splitlines()[-1])
    return result


def _artefact(model: str, kind: str) -> Path:
    """The plain model, or the export that a kind is named after."""
    exported = next((system for system in SYSTEMS.values() if system.limit == kind and system.precision), None)
    return artefacts.directory(exported, MODELS[model]) if exported else prepare(MODELS[model])


def reference(model: str) -> list[Any]:
    """The answers that every system must give: the model's own, one text at a time."""
    result: list[Any] = measure(model, "reference", 0)["answers"]
    return result


def main() -> int:
    """Measure one kind and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(MODELS), default="minilm")
    parser.add_argument("--kind", choices=[*KINDS, "reference"], default="packed")
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    records = json.loads((BENCH / "models" / f"{options.model}.texts.json").read_text("utf-8"))
    if options.kind == "reference":
        print(json.dumps({"answers": _peers_model()(records[:SAMPLES])}))
        return 0
    print(json.dumps(RUNS[options.kind](records, options.seconds)))
    return 0


SAMPLES = 32
"""Texts whose answers are compared before a system is measured."""


def _padded(records: Sequence[str], seconds: float) -> dict[str, Any]:
    """Batches of 32 in the order in which the texts come, padded to the longest."""
    return _rate(_peers_model(), records, seconds)


def _sorted(records: Sequence[str], seconds: float) -> dict[str, Any]:
    """Batches of 32 texts of like length."""
    model = _peers_model()
    return _rate(lambda texts: model(sorted(texts, key=len)), records, seconds)


def _budget(records: Sequence[str], seconds: float) -> dict[str, Any]:
    """Padded batches of like lengths, as many texts as the token budget holds."""
    return _rate(_budgeted(_peers_model()), records, seconds)


def _compiled(records: Sequence[str], seconds: float) -> dict[str, Any]:
    """The same through torch.compile, for any shape and with the weights frozen. Needs a C++ compiler."""
    import torch
    from torch._inductor import config

    config.freezing = True
    model = _peers_model()
    model.model = torch.compile(model.model, dynamic=True)
    run = _budgeted(model)
    # Passes of one text and of many are compiled apart: both are met here.
    for start in (0, CHUNK):
        run(records[start : start + CHUNK])
    return _rate(run, records, seconds)


def _budgeted(model: Any) -> Callable[[Sequence[str]], None]:
    """What runs texts through the peers' model in micro-batches of the product's token budget."""
    import torch

    from batch_handler.microbatch import plan

    def run(texts: Sequence[str]) -> None:
        tokens = model.tokenizer(list(texts), truncation=True, max_length=256)["input_ids"]
        for batch in plan([len(ids) for ids in tokens], TOKEN_BUDGET):
            inputs = model.tokenizer.pad({"input_ids": [tokens[index] for index in batch.indices]}, return_tensors="pt")
            with torch.inference_mode():
                model.embed(inputs) if model.task == "sentence-embeddings" else model.model(**inputs)

    return run


def _packed(records: Sequence[str], seconds: float) -> dict[str, Any]:
    """The product's own engine, lanes and micro-batches over texts that are tokenised already: only forward passes.

    Chunks are handed in one ahead, as the product's scheduler takes in work: no lane waits for the end of a chunk.
    """
    from batch_handler import resources
    from batch_handler.microbatch import Lanes, Report, plan
    from batch_handler.request import Record

    task = _product_task()
    encoded = dict(zip(records, task.encode([Record(text, 1) for text in records]), strict=True))
    lanes = Lanes(resources.available().whole_cpus)

    def run(texts: Sequence[str]) -> None:
        chunk = [one for text in texts for one in encoded[text].passes]
        planned = plan([one.length for one in chunk], TOKEN_BUDGET, lanes.count, task.padded, [one.group for one in chunk])
        outputs = lanes.run(planned, lambda indices: task.run([chunk[index] for index in indices]), len(chunk), Report())
        faults = [output for output in outputs if isinstance(output, Exception)]
        if faults:
            raise RuntimeError(f"the forward pass failed: {faults[0]}")

    return _rate(run, records, seconds, ahead=2 if lanes.count > 1 else 1)


def _one(records: Sequence[str], seconds: float) -> dict[str, Any]:
    """One text at a time, tokenised, run and serialised with the product's parts: what a lone caller could hope for."""
    from batch_handler import formats
    from batch_handler.request import Record

    task = _product_task()

    def answer(text: str) -> None:
        (encoded,) = task.encode([Record(text, 1)])
        (output,) = task.run([encoded])
        formats.json.dump(task.decode(output, encoded))

    for text in records[:8]:
        answer(text)
    times: list[float] = []
    deadline = time.perf_counter() + seconds
    for text in _endless(records):
        started = time.perf_counter()
        answer(text)
        times.append(time.perf_counter() - started)
        if time.perf_counter() > deadline:
            break
    p50, p99 = (percentile(times, share) * 1e3 for share in (0.5, 0.99))
    return {"records_per_s": len(times) / sum(times), "p50_ms": p50, "p99_ms": p99}


Run = Callable[[Sequence[str], float], dict[str, Any]]
RUNS: Mapping[str, Run] = {
    "padded": _padded,
    "sorted": _sorted,
    "budget": _budget,
    "compiled": _compiled,
    "packed": _packed,
    **dict.fromkeys(EXPORTED, _packed),
    "one": _one,
    "one-threaded": _one,
}


def _rate(run: Callable[[Sequence[str]], Any], records: Sequence[str], seconds: float, ahead: int = 1) -> dict[str, Any]:
    """Records per second over whole chunks, after a warm-up with the first texts; `ahead` chunks are under way at once."""
    run(records[:16])
    parts = [records[start : start + CHUNK] for start in range(0, len(records), CHUNK)]
    with ThreadPoolExecutor(ahead) as callers:
        started = time.perf_counter()
        under_way: deque[tuple[Future[Any], int]] = deque()
        done, number = 0, 0
        while True:
            while len(under_way) < ahead:
                part = parts[number % len(parts)]
                under_way.append((callers.submit(run, part), len(part)))
                number += 1
            future, size = under_way.popleft()
            future.result()
            done += size
            elapsed = time.perf_counter() - started
            if elapsed >= seconds:
                return {"records_per_s": done / elapsed}


def _endless(records: Sequence[str]) -> Iterator[str]:
    while True:
        yield from records


def _peers_model() -> Any:
    from benchmarks.peers.inference import Model

    return Model()


def _product_task() -> Any:
    from batch_handler import tasks
    from batch_handler.settings import resolve

    return tasks.load(os.environ["BENCH_TASK"], Path(os.environ["BENCH_MODEL"]), resolve({}))


if __name__ == "__main__":
    sys.exit(main())
