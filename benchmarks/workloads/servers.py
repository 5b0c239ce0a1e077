"""Who serves the two workloads, and the artefacts that they need: small archives and one script."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.models import BENCH
from benchmarks.systems import PRODUCT, System

HANDLERS = Path(__file__).with_name("handlers")
STOCK = "TorchServe, stock"
SCRIPT, ARCHIVE, PLAIN = f"{PRODUCT}, a script", f"{PRODUCT}, an archive", "Python's http.server"


def torchserve(name: str, handler: str, **settings: str) -> System:
    """TorchServe as it is installed, with a handler of ours."""
    return System(name, "torchserve", {"BENCH_HANDLER": str(HANDLERS / handler), **settings}, path="/predictions/model")


TRIVIAL: Mapping[str, System] = {
    system.name: system
    for system in (
        System(PRODUCT, None),
        torchserve(STOCK, "nothing.py"),
        torchserve("TorchServe, quiet logs", "nothing.py", BENCH_QUIET="1"),
        torchserve("TorchServe, quiet logs, batch 32", "nothing.py", BENCH_QUIET="1", BENCH_BATCH="32", BENCH_DELAY="1"),
    )
}
LARGE: Mapping[str, System] = {
    system.name: system
    for system in (
        System(SCRIPT, None),
        System(ARCHIVE, None),
        torchserve(STOCK, "large.py"),
        System(PLAIN, "flask", command=("{bin}/python", "-m", "benchmarks.workloads.plain")),
    )
}
"""The plain server needs no package; it runs in an environment that is there anyway."""


def artefact(system: System, handler: str) -> Path:
    """The model directory for a product: an archive with the handler, or the script. Others bring their own."""
    name = "script" if system.name == SCRIPT else Path(handler).stem
    directory = BENCH / "models" / f"workload-{name}"
    shutil.rmtree(directory, ignore_errors=True)
    if system.name == SCRIPT:
        (directory / "code").mkdir(parents=True)
        shutil.copy(HANDLERS / "inference.py", directory / "code" / "inference.py")
    else:
        directory.mkdir(parents=True)
        _archive(directory / "model.mar", HANDLERS / handler)
    return directory


def environments(systems: Sequence[System]) -> set[str]:
    """The virtual environments that these need."""
    return {system.environment for system in systems if system.environment is not None}


def _archive(path: Path, handler: Path) -> None:
    manifest = {
        "createdOn": "",
        "runtime": "python",
        "model": {"modelName": "model", "handler": handler.name, "modelVersion": "1.0"},
        "archiverVersion": "0.12.0",
    }
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("MAR-INF/MANIFEST.json", json.dumps(manifest))
        archive.write(handler, handler.name)
