"""Engines that were exported when the model was packaged: a library runs the encoder between the attentions.

Everything but attention works token by token, so the library never learns of records: it is given one row. Attention
stays here, within each record and in full precision; that is why answers do not depend on neighbours in any precision.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy
import torch

from batch_handler.artefact import ArtefactError
from batch_handler.engines import Tokens
from batch_handler.engines.attention import Runs, attend
from batch_handler.engines.heads import Head
from batch_handler.engines.manifest import AGAIN, FOLDER, Attention, Manifest, Piece
from batch_handler.engines.rows import Layout, RowEngine
from batch_handler.settings import SettingError

Array = numpy.ndarray[Any, Any]
Run = Callable[[Sequence[Array]], Sequence[Array]]
"""Inputs to outputs, in the order of the piece's names. What comes out is valid until the same thread runs it again."""


class Runtime(Protocol):
    """A library that runs pieces: from several threads at once, each call on one core."""

    def load(self, path: Path) -> Run:
        """Read a piece. Raises what the library raises."""

    def room(self, tokens: int) -> int:
        """The length to fill a row of so many tokens up to."""


RUNTIMES: Mapping[str, str] = {"openvino": "openvino_runtime", "onnx": "onnx_runtime"}
"""Engine → the module with its ``start(precision, lanes)``, which imports the library."""


class Exported(RowEngine):
    """Padding-free forward passes through exported pieces. Keeps the head of the model that it was made from, and only it."""

    def __init__(
        self,
        model: Any,
        steps: Sequence[Piece | Attention],
        output: str,
        runs: Mapping[str, Run],
        head: Head | None = None,
    ) -> None:
        super().__init__(head or Head(model))
        self._layout = Layout.of(model.base_model)
        self._steps = steps
        self._output = output
        self._runs = runs
        self.room: Callable[[int], int] = lambda tokens: tokens

    def states(self, records: Sequence[Tokens]) -> torch.Tensor:
        """Total tokens × hidden size."""
        total = sum(len(record.ids) for record in records)
        row = self._layout.row(records, tokens=self.room(total))
        values: dict[str, Array] = {"ids": row.ids.numpy(), "positions": row.positions.numpy()}
        if row.types is not None:
            values["types"] = row.types.numpy()
        for step in self._steps:
            taken = [values[name] for name in step.inputs]
            if isinstance(step, Attention):
                values[step.output] = attended(taken, row.runs, step)
            else:
                values.update(zip(step.outputs, self._runs[step.file](taken), strict=True))
        return torch.from_numpy(values[self._output][:total].copy())


def attended(taken: Sequence[Array], runs: Runs, step: Attention) -> Array:
    """Attention between arrays, as the pieces lay them out."""
    query, key, value = (torch.from_numpy(array)[0].transpose(0, 1) for array in taken)
    result: Array = attend(query, key, value, runs, step.scale, step.window).unsqueeze(0).numpy()
    return result


def open_engine(model: Any, head: Head, directory: Path, manifest: Manifest, precision: str, lanes: int) -> Exported:
    """The engine in ``engine/``, for as many threads at once as there are `lanes`.

    Raises SettingError when this image lacks its library or the model is not on the CPU, ArtefactError when the files
    cannot be read.
    """
    if manifest.engine not in RUNTIMES:
        raise ArtefactError(f"{FOLDER}/ was made for {manifest.engine!r}, which this image does not know: {AGAIN}")
    if model.device.type != "cpu":
        raise SettingError(f"the artefact's {FOLDER}/ runs on the CPU alone: set BYOC_DEVICE=cpu, or BYOC_ENGINE=packed")
    runtime = open_runtime(manifest.engine, precision, lanes)
    try:
        runs = {step.file: runtime.load(directory / FOLDER / step.file) for step in manifest.steps if isinstance(step, Piece)}
    except Exception as error:  # noqa: BLE001 - a library's own errors, of many kinds
        made = ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
        raise ArtefactError(
            f"{FOLDER}/, made by {made}, cannot be read here ({type(error).__name__}): it is damaged, or {AGAIN}"
        ) from None
    engine = Exported(model, manifest.steps, manifest.output, runs, head)
    engine.name = manifest.engine if precision == "fp32" else f"{manifest.engine}-{precision}"
    engine.room = runtime.room
    return engine


def open_runtime(engine: str, precision: str, lanes: int) -> Runtime:
    """The library behind an engine. Raises SettingError when it is not installed."""
    try:
        module = importlib.import_module(f"batch_handler.engines.{RUNTIMES[engine]}")
    except ImportError:
        raise SettingError(
            f"the artefact's {FOLDER}/ needs {engine}, which is not in this image: build it with "
            f"make image DOCKER_BUILD_FLAGS='--build-arg ENGINES={engine}', or set BYOC_ENGINE=packed"
        ) from None
    runtime: Runtime = module.start(precision, lanes)
    return runtime
