"""Exporting: ``engine/`` beside a model, made for a library and a precision, and measured against the default engine.

For torch itself, ``packed``, it holds the precision and the measurement alone.

Owns the order of the steps and the sentences about what cannot be exported; each step has a file of its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import AutoModel

from batch_handler import tasks
from batch_handler.artefact import Artefact, encoder_directory
from batch_handler.engines import manifest
from batch_handler.settings import Settings, resolve
from batch_handler.tasks import Task
from batch_handler.tasks.pretrained import load_model
from exporting import samples
from exporting.agreement import Agreement, compared, measured
from exporting.cutting import Cut, CutError, cut, quiet
from exporting.progress import Stage, stages
from exporting.samples import SampleError

__all__ = ["ENGINES", "Agreement", "ExportError", "Lines", "Wish", "check", "compared", "export"]

ENGINES = {"openvino": manifest.PRECISIONS, "onnx": ("fp32",), "packed": ("bf16",)}
NEEDED = {"openvino": ("openvino",), "onnx": ("onnxruntime", "onnx", "onnxscript"), "packed": ()}
OTHERWISE = {
    "onnx": "its rounding takes one scale for all records of a batch, so that answers would depend on their neighbours; use "
    "--engine openvino",
    "packed": "fp32 is what every model gets without --engine, and integers are --engine openvino's; use --precision bf16",
}
"""Why an engine has no other precisions, and what to do."""
ROUNDING = ("int8-weights", "int8")
INSTALL = "pip install --no-deps --require-hashes -r docker/requirements/{engine}.txt -r scripts/exporting/requirements.txt"
TASKS = (
    "sentence-embeddings",
    "sentence-similarity",
    "feature-extraction",
    "text-classification",
    "sentiment-analysis",
    "token-classification",
    "ner",
    "question-answering",
    "fill-mask",
    "zero-shot-classification",
    "text-ranking",
)
"""Those that run an encoder through an engine."""

PASSED_ON = ("HF_TRUST_REMOTE_CODE", "BYOC_TRUNCATION")
"""Settings that decide what can be loaded and asked."""

Lines = Sequence[tuple[int, bytes]]


class ExportError(Exception):
    """One sentence: why nothing was exported, and what to do."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be made, and from which samples: request bodies, one a line, each with its number."""

    engine: str
    precision: str
    calibrate: Path | None = None
    verify: Path | None = None
    content_type: str = "application/json"


def check(wish: Wish) -> None:
    """Refuse what could not be made, before anything is read. Raises ExportError."""
    if wish.precision not in ENGINES[wish.engine]:
        raise ExportError(f"--engine {wish.engine} has no {wish.precision}: {OTHERWISE[wish.engine]}")
    if wish.precision == "int8" and not wish.calibrate:
        raise ExportError("--precision int8 needs --calibrate: request bodies, one a line, like those that will come")
    if wish.precision != "int8" and wish.calibrate:
        raise ExportError(f"--precision {wish.precision} rounds nothing by samples: leave --calibrate out, or use int8")
    if wish.precision != "fp32" and not wish.verify:
        raise ExportError(
            f"--precision {wish.precision} needs --verify: other request bodies, to measure what it does to answers"
        )
    needed = NEEDED[wish.engine] + (("nncf",) if wish.precision in ROUNDING else ())
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        command = INSTALL.format(engine=wish.engine)
        raise ExportError(f"{', '.join(missing)} is not installed here: run .venv/bin/{command}")


def export(artefact: Artefact, wish: Wish, calibrate: Lines, verify: Lines) -> Agreement | None:
    """Write ``engine/`` into a model directory that is ours to change; what was measured, where there is something to verify.

    Raises ExportError when the model cannot be exported, or its answers agree less than was asked for.
    """
    check(wish)
    if artefact.task not in TASKS:
        raise ExportError(f"--engine is for encoders, and the model's task is {artefact.task or 'its script'}: leave it out")
    directory = encoder_directory(artefact.path)
    folder = directory / manifest.FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        with stages() as stage:
            made = _write(artefact, directory, wish, calibrate, stage)
            if not verify:
                _load(artefact, "auto")
                return None
            packed, exported = _load(artefact, "packed"), _load(artefact, "auto")
            left = samples.held_out(verify, calibrate, wish.verify or Path())
            agreement = measured(packed, exported, _encoded(packed, left, wish, wish.verify), stage("measure", None))
    except (CutError, SampleError) as error:
        raise ExportError(str(error)) from None
    manifest.write(directory, replace(made, agreement=asdict(agreement)))
    return agreement


def _write(artefact: Artefact, directory: Path, wish: Wish, calibrate: Lines, stage: Stage) -> manifest.Manifest:
    """The pieces and their manifest, not yet measured."""
    plan = _cut(artefact, directory, wish, calibrate, stage) if wish.engine != "packed" else None
    libraries = (*NEEDED[wish.engine], *(("nncf",) if wish.precision in ROUNDING else ()), "torch", "transformers")
    made = manifest.Manifest(
        engine=wish.engine,
        precision=wish.precision,
        weights=manifest.weights_hash(directory),
        steps=plan.plan if plan else (),
        output=plan.output if plan else "",
        versions={name: _version(name) for name in libraries},
    )
    manifest.write(directory, made)
    return made


def _cut(artefact: Artefact, directory: Path, wish: Wish, calibrate: Lines, stage: Stage) -> Cut:
    with quiet():  # the head's weights are left over
        model = load_model(AutoModel, directory, _settings("packed"))
    folder = directory / manifest.FOLDER
    if wish.engine == "onnx":
        return _with_onnx(model, folder, stage)
    return _with_openvino(artefact, model, folder, wish, calibrate, stage)


def _with_onnx(model: Any, folder: Path, stage: Stage) -> Cut:
    from exporting import onnx_pieces

    plan = cut(model, onnx_pieces.SUFFIX)
    onnx_pieces.save(plan, folder, stage("export", len(plan.parts)))
    return plan


def _with_openvino(artefact: Artefact, model: Any, folder: Path, wish: Wish, calibrate: Lines, stage: Stage) -> Cut:
    from exporting import openvino_pieces

    plan = cut(model, openvino_pieces.SUFFIX)
    count = len(plan.parts)
    pieces = openvino_pieces.converted(plan, stage("export", count))
    if wish.precision == "int8-weights":
        pieces = openvino_pieces.with_rounded_weights(pieces, stage("round", count))
    elif wish.precision == "int8":
        rows = samples.rows(_encoded(_load(artefact, "packed"), calibrate, wish, wish.calibrate))
        calls = openvino_pieces.recorded(model, plan, pieces, rows, stage("calibrate", len(rows)))
        pieces = openvino_pieces.rounded(pieces, calls, stage("round", count))
    openvino_pieces.save(pieces, folder)
    return plan


def _encoded(task: Task, lines: Lines, wish: Wish, path: Path | None) -> list[samples.Sample]:
    return samples.encoded(task, lines, wish.content_type, path or Path())


def _load(artefact: Artefact, engine: str) -> Task:
    return tasks.load(artefact.task or "", artefact.path, _settings(engine))


def _settings(engine: str) -> Settings:
    """Those that a model is served with, but for the one lane."""
    chosen = {"BYOC_DEVICE": "cpu", "BYOC_THREADS": "1", "BYOC_ENGINE": engine}
    return resolve({**chosen, **{name: os.environ[name] for name in PASSED_ON if name in os.environ}})


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
