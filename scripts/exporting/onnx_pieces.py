"""Pieces for onnxruntime, in full precision."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from exporting.cutting import Cut, quiet

SUFFIX = ".onnx"


def save(cut: Cut, folder: Path, advance: Callable[[], object]) -> None:
    """Every piece as a file of ONNX."""
    for part in cut.parts:
        with quiet(), torch.no_grad():
            program = torch.onnx.export(part.program(), dynamo=True, verbose=False, input_names=list(part.piece.inputs))
        if program is None:
            raise RuntimeError("the exporter gave nothing")
        program.save(folder / part.piece.file)
        advance()
