"""Many models behind one endpoint, beside AWS's own server in the same mode: memory, loads, first and later calls.

    python -m benchmarks.multi_model [--models N] [--calls N]

The Hugging Face toolkit serves many models by multi-model-server; AWS's toolkit for PyTorch, which does it by TorchServe's
management API, is not measured here. Both systems get the same plain directories without code, each a copy of the embedded
encoder, so that no two models share a file. Loads come one after the other, with one worker for each model.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import environments, report
from benchmarks.load import percentile
from benchmarks.models import BENCH, MODELS, prepare
from benchmarks.servers import Server, StartError, call
from benchmarks.systems import PRODUCT, System

MANY = {"SAGEMAKER_MULTI_MODEL": "true", "OMP_NUM_THREADS": "1"}
SYSTEMS = (
    System(PRODUCT, None, {**MANY, "SAGEMAKER_TS_MIN_WORKERS": "1"}),
    System("SageMaker Hugging Face toolkit", "huggingface", {**MANY, "HF_TASK": "feature-extraction", "BENCH_WORKERS": "1"}),
)
BODY = b'{"inputs": "How long does it take until the first answer?"}'
JSON = "application/json"
LIMIT_S = 300.0
Result = Mapping[str, float]
COLUMNS = {
    "models_per_gb": "models/GB",
    "mb_per_model": "MB/model",
    "empty_mb": "MB empty",
    "load_p50_s": "load p50 s",
    "load_p99_s": "load p99 s",
    "first_p50_ms": "first call p50 ms",
    "first_p99_ms": "first call p99 ms",
    "later_p50_ms": "later p50 ms",
    "later_p99_ms": "later p99 ms",
}


def main() -> int:
    """Measure, print and write build/bench/multi_model.json; 1 when a system could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--calls", type=int, default=20, help="later calls of each model")
    options = parser.parse_args()
    directories = copies(options.models)
    found, missing = {}, {}
    for system in SYSTEMS:
        try:
            if system.environment:
                environments.make(system.environment)
            found[system.name] = measure(system, directories, options.calls)
        except (environments.InstallError, StartError, RuntimeError) as fault:
            missing[system.name] = str(fault)
    (BENCH / "multi_model.json").write_text(json.dumps({"found": found, "missing": missing}, indent=1), "utf-8")
    print(table(found))
    for name, reason in missing.items():
        print(f"{name}: {reason}", file=sys.stderr)
    return 1 if missing else 0


def copies(count: int) -> list[Path]:
    """So many directories with the files of one model."""
    folder = BENCH / "many"
    shutil.rmtree(folder, ignore_errors=True)
    return [Path(shutil.copytree(prepare(MODELS["minilm"]), folder / f"model-{number:03}")) for number in range(count)]


def measure(system: System, directories: Sequence[Path], calls: int) -> dict[str, float]:
    """Load every directory as a model of its own and call it. Raises StartError, RuntimeError for a bad answer."""
    loads, firsts, laters = [], [], []
    with Server(system, directories[0], "", None) as server:
        empty_mb = server.pss_mb()
        for directory in directories:
            body = json.dumps({"model_name": directory.name, "url": str(directory)}).encode()
            loads.append(timed(server, "/models", body))
            path = f"/models/{directory.name}/invoke"
            firsts.append(timed(server, path, BODY))
            laters += [timed(server, path, BODY) for _ in range(calls)]
        full_mb = server.pss_mb()
    return summary(empty_mb, full_mb, loads, firsts, laters)


def timed(server: Server, path: str, body: bytes) -> float:
    """Seconds until a good answer. Raises RuntimeError for another."""
    began = time.perf_counter()
    status, told = call(server.port, "POST", path, body, JSON, LIMIT_S)
    if status != 200:
        raise RuntimeError(f"{path} was answered {status}: {told[:200]!r}")
    return time.perf_counter() - began


def summary(
    empty_mb: float, full_mb: float, loads: Sequence[float], firsts: Sequence[float], laters: Sequence[float]
) -> dict[str, float]:
    """What a table shows, of memory in MB and times in seconds."""
    each = (full_mb - empty_mb) / len(loads)
    times = {
        f"{name}_{title}_{unit}": factor * found
        for name, seconds, unit, factor in (
            ("load", loads, "s", 1.0),
            ("first", firsts, "ms", 1_000.0),
            ("later", laters, "ms", 1_000.0),
        )
        for title, found in (("p50", statistics.median(seconds)), ("p99", percentile(seconds, 0.99)))
    }
    return {"models_per_gb": 1_000 / each, "mb_per_model": each, "empty_mb": empty_mb, "full_mb": full_mb, **times}


def table(found: Mapping[str, Result]) -> str:
    """One row per system."""
    rows = [[name, *(report.number(result[column]) for column in COLUMNS)] for name, result in found.items()]
    return report.table(["", *COLUMNS.values()], rows)


if __name__ == "__main__":
    sys.exit(main())
