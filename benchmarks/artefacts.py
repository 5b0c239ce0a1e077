"""What a product serves beside the plain model: the same one packaged with an engine, rounded on texts that are not measured.

The export is `scripts/package_model.py`'s, run as a user runs it; `prepare` does it once per model and precision.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import texts
from benchmarks.models import BENCH, ROOT, Model, prepare
from benchmarks.systems import System

SEEN = 256
"""Texts that int8 takes its scales from."""
JUDGED = 128
"""Texts among the measured ones that agreement is judged on."""
AGREEMENT = "engine/manifest.json"


class ExportError(Exception):
    """One sentence: why the model could not be exported here."""


def directory(system: System, model: Model) -> Path:
    """Where the artefact of a system lies, whether it is there or not."""
    plain = BENCH / "models" / model.name
    return plain if system.precision is None else plain.with_name(f"{model.name}-{system.engine}-{system.precision}")


def make(system: System, model: Model, measured: Sequence[str], other: Sequence[str]) -> Path:
    """The artefact of a system, exported where its engine needs that. Raises ExportError with what the packager says.

    `measured` are the texts of the measurement; scales come from `other` ones.
    """
    plain, target = prepare(model), directory(system, model)
    if system.engine is None or system.precision is None or (target / AGREEMENT).exists():
        return target
    work = target.with_suffix(".new")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    judged, seen = work / "judged.jsonl", work / "seen.jsonl"
    judged.write_bytes(b"\n".join(texts.one_per_request(measured[:JUDGED])) + b"\n")
    seen.write_bytes(b"\n".join(texts.one_per_request(other[:SEEN])) + b"\n")
    options = ["--task", model.task, "--engine", system.engine, "--precision", system.precision, "--verify", str(judged)]
    options += ["--calibrate", str(seen)] if system.precision == "int8" else []
    options += ["--formats", "directory", "--output", str(work)]
    command = [sys.executable, str(ROOT / "scripts" / "package_model.py"), str(plain), *options]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        said = (run.stderr or run.stdout).strip().splitlines() or ["the packager ended without a word"]
        raise ExportError(said[-1].removeprefix("package_model: ")[:400])
    (work / "model").rename(target)
    shutil.rmtree(work)
    return target


def agreement(system: System, model: Model) -> dict[str, Any] | None:
    """What the export measured on held-out texts (``cosine``, ``worst``, ``top1``); None for the model as it is."""
    path = directory(system, model) / AGREEMENT
    return json.loads(path.read_text("utf-8"))["agreement"] if system.precision is not None and path.exists() else None
