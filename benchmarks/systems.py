"""The systems that are measured: one entry each, with the settings that it runs at and how a caller speaks to it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.models import BENCH, ROOT

PRODUCT = "torchserve-byoc"
ANY = ("sentence-embeddings", "text-classification", "translation")


@dataclass(frozen=True, slots=True)
class System:
    """One server at one setting.

    ``environment`` names its folder in peers/ and its virtual environment (none: the product). ``form`` is how it takes
    many records in a request: ``lines`` (JSON Lines), ``list`` (a JSON list) or ``openai``. ``largest`` is the most
    records that it takes at once. ``stock`` marks a peer's own default, shown for comparison.
    """

    name: str
    environment: str | None
    settings: Mapping[str, str] = field(default_factory=dict)
    form: str = "lines"
    path: str = "/invocations"
    ping: str = "/ping"
    largest: int = 5_000
    tasks: Sequence[str] = ANY
    stock: bool = False
    command: Sequence[str] = ()

    def start_command(self, model: Path, port: int) -> list[str]:
        """The program with its arguments."""
        if self.environment is None:
            return [str(ROOT / "build" / "home" / "bin" / "entrypoint"), "serve"]
        own = BENCH / "venv" / self.environment / "bin"
        if self.command:
            return [word.format(bin=own, model=model, port=port) for word in self.command]
        return [str(own / "python"), "-m", f"benchmarks.peers.{self.environment}.serve"]

    def start_settings(self, model: Path, port: int, task: str) -> dict[str, str]:
        """Environment variables beside the inherited ones."""
        if self.environment is None:
            address = {"BYOC_BIND_ADDRESS": "127.0.0.1", "SAGEMAKER_BIND_TO_PORT": str(port), "BYOC_MODEL_DIR": str(model)}
            return {**address, "HF_TASK": task, "SAGEMAKER_TS_RESPONSE_TIMEOUT": "600", **self.settings}
        shared = {"BENCH_PORT": str(port), "BENCH_MODEL": str(model), "BENCH_TASK": task, "HF_HUB_OFFLINE": "1"}
        programs = f"{BENCH / 'venv' / self.environment / 'bin'}:{os.environ.get('PATH', '')}"
        return {**shared, "PYTHONPATH": str(ROOT), "PATH": programs, **self.settings}


def per_core(workers: int = 2) -> dict[str, str]:
    """One single-threaded worker per core."""
    return {"BENCH_WORKERS": str(workers), "BENCH_THREADS": "1", "OMP_NUM_THREADS": "1"}


BATCHED = {"BENCH_WORKERS": "1", "BENCH_BATCH": "32"}
INFINITY = (
    "{bin}/infinity_emb", "v2", "--model-id", "{model}", "--served-model-name", "model", "--engine", "torch", "--device", "cpu",
    "--host", "127.0.0.1", "--port", "{port}", "--no-bettertransformer", "--no-vector-disk-cache", "--batch-size", "32",
)  # fmt: skip

SYSTEMS: Mapping[str, System] = {
    system.name: system
    for system in (
        System(PRODUCT, None),
        System("gunicorn+flask, 2 × 1 thread", "flask", per_core()),
        System("TorchServe, loop, 2 × 1 thread", "torchserve", per_core(), path="/predictions/model"),
        System("TorchServe, loop, stock", "torchserve", path="/predictions/model", stock=True),
        System("TorchServe, padded 32", "torchserve", {**BATCHED, "BENCH_DELAY": "10"}, path="/predictions/model"),
        System("SageMaker PyTorch toolkit, 2 × 1 thread", "sagemaker", per_core()),
        System("LitServe, loop, 2 × 1 thread", "litserve", per_core(), form="list"),
        System("LitServe, batch 32", "litserve", BATCHED, form="list"),
        System("BentoML, loop, 2 × 1 thread", "bentoml", per_core(), form="list", ping="/readyz"),
        System("BentoML, batch 32", "bentoml", BATCHED, form="list", ping="/readyz"),
        System("Ray Serve, loop, 2 × 1 thread", "ray_serve", per_core()),
        System("Ray Serve, batch 32", "ray_serve", BATCHED),
        System(
            "infinity, torch",
            "infinity",
            form="openai",
            path="/embeddings",
            ping="/health",
            largest=2_048,
            tasks=("sentence-embeddings",),
            command=INFINITY,
        ),
    )
}
QUICK = (PRODUCT, "gunicorn+flask, 2 × 1 thread", "infinity, torch")
"""The product and the peers that lead on single texts and on many lines."""
