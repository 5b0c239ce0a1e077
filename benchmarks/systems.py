"""The systems that are measured: one entry each, with the settings that it runs at and how a caller speaks to it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.models import BENCH, ROOT

PRODUCT = "torchserve-byoc"
ONE_CORE = f"{PRODUCT}, one core"
INT8 = f"{PRODUCT}, openvino int8"
BF16 = f"{PRODUCT}, packed bf16"
STOCK = "TorchServe, loop, stock"
FLASK, INFINITY = "gunicorn+flask, 2 × 1 thread", "infinity, torch"
ANY = ("sentence-embeddings", "text-classification", "translation")


@dataclass(frozen=True, slots=True)
class System:
    """One server at one setting.

    ``environment`` names its folder in peers/ and its virtual environment (none: the product). ``form`` is how it takes
    many records in a request: ``lines`` (JSON Lines), ``list`` (a JSON list) or ``openai``. ``largest`` is the most
    records that it takes at once. ``stock`` marks a peer's own default, shown for comparison; ``torch`` says that PyTorch
    runs its forward passes. ``engine`` and ``precision`` are those of the engine which the artefact brings (none: the model
    as it is), and ``limit`` the kind of offline limit that a product's throughput is a share of. ``first`` runs once, before
    the first start. ``home`` is the product's installation.
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
    torch: bool = True
    engine: str | None = None
    precision: str | None = None
    limit: str | None = None
    command: Sequence[str] = ()
    first: Sequence[str] = ()
    home: Path = ROOT / "build" / "home"

    @property
    def product(self) -> bool:
        """Whether it is ours."""
        return self.environment is None

    @property
    def exact(self) -> bool:
        """Whether its answers are the model's own; those of a rounded engine only agree with them."""
        return self.precision in (None, "fp32")

    def start_command(self, model: Path, port: int) -> list[str]:
        """The program with its arguments."""
        if self.environment is None:
            return [*self.command, str(self.home / "bin" / "entrypoint"), "serve"]
        own = BENCH / "venv" / self.environment / "bin"
        if self.command:
            return self._words(self.command, model, port)
        return [str(own / "python"), "-m", f"benchmarks.peers.{self.environment}.serve"]

    def first_command(self, model: Path) -> list[str]:
        """What has to be done once; empty for most."""
        return self._words(self.first, model, 0)

    def _words(self, command: Sequence[str], model: Path, port: int) -> list[str]:
        own = BENCH / "venv" / (self.environment or "") / "bin"
        return [word.format(bin=own, model=model, port=port) for word in command]

    def start_settings(self, model: Path, port: int, task: str) -> dict[str, str]:
        """Environment variables beside the inherited ones."""
        if self.environment is None:
            address = {"BYOC_BIND_ADDRESS": "127.0.0.1", "SAGEMAKER_BIND_TO_PORT": str(port), "BYOC_MODEL_DIR": str(model)}
            named = {"HF_TASK": task} if task else {}
            return {**address, **named, "SAGEMAKER_TS_RESPONSE_TIMEOUT": "600", **self.settings}
        shared = {"BENCH_PORT": str(port), "BENCH_MODEL": str(model), "BENCH_TASK": task, "HF_HUB_OFFLINE": "1"}
        programs = f"{BENCH / 'venv' / self.environment / 'bin'}:{os.environ.get('PATH', '')}"
        return {**shared, "PYTHONPATH": str(ROOT), "PATH": programs, **self.settings}


def per_core(workers: int = 2) -> dict[str, str]:
    """One single-threaded worker per core."""
    return {"BENCH_WORKERS": str(workers), "BENCH_THREADS": "1", "OMP_NUM_THREADS": "1"}


BATCHED = {"BENCH_WORKERS": "1", "BENCH_BATCH": "32"}
SENTENCES = ("sentence-embeddings",)
ENCODERS = ("sentence-embeddings", "text-classification")


def exported(engine: str, precision: str) -> System:
    """The product on an artefact that was packaged with an engine."""
    name = f"{engine} {precision}"
    own = engine == "packed"
    return System(f"{PRODUCT}, {name}", None, tasks=ENCODERS, torch=own, engine=engine, precision=precision, limit=name)


def infinity(engine: str, title: str) -> System:
    """Infinity speaks OpenAI's form and serves embeddings only; its optimum engine wants the model as ONNX."""
    onnx = engine == "optimum"
    served = ("{bin}/python", "-m", "benchmarks.peers.infinity_onnx.serve", "{model}-onnx")
    command = (
        *(served if onnx else ("{bin}/infinity_emb", "v2", "--model-id", "{model}")), "--served-model-name", "model", "--engine",
        engine, "--device", "cpu", "--host", "127.0.0.1", "--port", "{port}", "--no-bettertransformer",
        "--no-vector-disk-cache", "--batch-size", "32", *(("--pooling-method", "mean") if onnx else ()),
    )  # fmt: skip
    return System(
        f"infinity, {title}",
        "infinity_onnx" if onnx else "infinity",
        form="openai",
        path="/embeddings",
        ping="/health",
        largest=2_048,
        tasks=SENTENCES,
        torch=not onnx,
        command=command,
        first=("{bin}/python", "-m", "benchmarks.peers.infinity_onnx.export", "{model}", "{model}-onnx") if onnx else (),
    )


SYSTEMS: Mapping[str, System] = {
    system.name: system
    for system in (
        System(PRODUCT, None, limit="packed"),
        System(ONE_CORE, None, command=("taskset", "--cpu-list", str(min(os.sched_getaffinity(0))))),
        exported("packed", "bf16"),
        *(exported("openvino", precision) for precision in ("fp32", "int8-weights", "int8")),
        System(FLASK, "flask", per_core()),
        System("TorchServe, loop, 2 × 1 thread", "torchserve", per_core(), path="/predictions/model"),
        System(STOCK, "torchserve", path="/predictions/model", stock=True),
        System("TorchServe, padded 32", "torchserve", {**BATCHED, "BENCH_DELAY": "10"}, path="/predictions/model"),
        System("SageMaker PyTorch toolkit, 2 × 1 thread", "sagemaker", per_core()),
        System("SageMaker Hugging Face toolkit, 2 × 1 thread", "huggingface", per_core()),
        System("LitServe, loop, 2 × 1 thread", "litserve", per_core(), form="list"),
        System("LitServe, batch 32", "litserve", BATCHED, form="list"),
        System("BentoML, loop, 2 × 1 thread", "bentoml", per_core(), form="list", ping="/readyz"),
        System("BentoML, batch 32", "bentoml", BATCHED, form="list", ping="/readyz"),
        System("Ray Serve, loop, 2 × 1 thread", "ray_serve", per_core()),
        System("Ray Serve, batch 32", "ray_serve", BATCHED),
        infinity("torch", "torch"),
        infinity("optimum", "onnx"),
    )
}
QUICK = (PRODUCT, FLASK, INFINITY)
"""The product and the peers that lead on single texts and on many lines."""
STANDARD = (
    PRODUCT, ONE_CORE, BF16, INT8, FLASK, INFINITY, "SageMaker PyTorch toolkit, 2 × 1 thread",
    "TorchServe, loop, 2 × 1 thread", STOCK,
)  # fmt: skip
